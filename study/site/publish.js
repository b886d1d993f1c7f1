// publish.js - what a site in public has besides its pages: version and date, an icon, a site map,
// a page for what is not there, and the licences of what is shipped. Nothing is invented: the
// address comes from the command line, the author from LICENSE.
'use strict';
const fs = require('fs');
const path = require('path');
const {execFileSync} = require('child_process');
const {escape} = require('./tools.js');
const sources = require('./sources.js');

// {version, date of the last commit, address and source, with a slash at the end, or nothing}
exports.site = (address, source) => {
    const date = (() => {
        try {
            return execFileSync('git', [ 'log', '-1', '--format=%cs' ],
                {cwd : sources.root, stdio : [ 'ignore', 'pipe', 'ignore' ]})
                .toString()
                .trim();
        } catch {
            return '';
        }
    })();
    for (const url of [ address, source ])
        if (url && !/^https?:\/\/[^\s"<>]+$/.test(url)) throw new Error(`not an address: ${url}`);
    return {
        version : /GD_VERSION_STRING "([^"]+)"/.exec(sources.read('include/gradus/context.h'))[1],
        date,
        address : address && address.replace(/\/*$/, '/'),
        source,
        picture : Boolean(address)
    };
};

// What is shipped, and where Debian's packages say under which terms.
const parts = [
    [ 'KaTeX: its styles and fonts', '/usr/share/doc/libjs-katex/copyright' ],
    [ 'wasi-libc, linked into the WebAssembly modules', '/usr/share/doc/wasi-libc/copyright' ],
    [ 'compiler-rt, linked into the WebAssembly modules',
        '/usr/share/doc/libclang-rt-14-dev-wasm32/copyright' ],
    [ 'Random123, compiled into the WebAssembly modules',
        '/usr/share/doc/librandom123-dev/copyright' ]
];

exports.pages = () => {
    const text = (file) =>
        fs.existsSync(file) ? `<pre class="code words">${
            escape(fs.readFileSync(file, 'utf8').slice(0, 40000))}</pre>`
                            : '<p>Its terms are not on the machine that made these pages.</p>';
    return [
        {
            name : 'licences.html',
            title : 'Licences',
            html : `<h1 id="top">Licences</h1><p>gradus, and these pages:</p><pre class="code words">${
                escape(sources.read('LICENSE'))}</pre><p>What is shipped with them:</p>${
                parts.map(([ what, file ]) => `<details><summary>${what}</summary>${
                    text(file)}</details>`).join('')}`
        },
        {
            name : '404.html',
            title : 'Not here',
            html : '<h1 id="top">Nothing is here</h1><p>The page has another name now, or never ' +
                'was. <a href="index.html">The path</a> leads to all of them; so does the search ' +
                'above.</p>'
        }
    ];
};

exports.files = (out, {address}) => {
    fs.writeFileSync(path.join(out, 'icon.svg'),
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" ' +
            'height="32" rx="6" fill="#a23b72"/><path d="M6 24 C14 24 12 8 26 8 M26 8 l-6 -2 M26 ' +
            '8 l-4 5" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>\n');
    if (!address) return;
    fs.writeFileSync(path.join(out, '.nojekyll'), ''); // GitHub Pages shall serve it as it is
    const names = fs.readdirSync(out).filter((name) => name.endsWith('.html')).filter(
        (name) => !fs.readFileSync(path.join(out, name), 'utf8').includes('content="noindex"'));
    fs.writeFileSync(path.join(out, 'sitemap.xml'),
        `<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n${
            names.map((name) => `<url><loc>${address}${
                name === 'index.html' ? '' : name}</loc></url>`).join('\n')}\n</urlset>\n`);
    if (new URL(address).pathname === '/') // only there is it read
        fs.writeFileSync(path.join(out, 'robots.txt'), `User-agent: *\nSitemap: ${
            address}sitemap.xml\n`);
};
