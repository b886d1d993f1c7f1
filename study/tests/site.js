// site.js - the pages as files: every link leads somewhere, nothing comes from elsewhere, every
// public function is in the reference, every op has its example, and all of it is there without
// JavaScript.
//     node site.js FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const sources = require('../site/sources.js');
const ladder = require('../page/ladder.js');

const folder = process.argv[2];
const pages = Object.fromEntries(
    fs.readdirSync(folder)
        .filter((name) => name.endsWith('.html'))
        .map((name) => [name, fs.readFileSync(path.join(folder, name), 'utf8')]));
assert.ok(Object.keys(pages).length > 300);

// ---- Links -------------------------------------------------------------------------------------

let links = 0;
for (const [name, html] of Object.entries(pages)) {
    const ids = [...html.matchAll(/ id="([^"]*)"/g) ].map(([, id ]) => id);
    assert.equal(new Set(ids).size, ids.length,
        `${name}: an id twice: ${ids.find((id, i) => ids.indexOf(id) !== i)}`);
    for (const [, attribute, target] of html.matchAll(/ (href|src)="([^"]*)"/g)) {
        if (attribute === 'href' && /^https:\/\//.test(target))
            continue; // a link that a reader may follow
        if (/^data:,/.test(target)) continue;
        assert.doesNotMatch(target, /^\w+:|^\//, `${name}: ${target} is not in the folder`);
        const [file, anchor] = target.split('#');
        if (file)
            assert.ok(pages[file] || fs.existsSync(path.join(folder, file)),
                `${name}: there is no ${file}`);
        if (anchor)
            assert.ok((pages[file || name] || '').includes(` id="${anchor}"`),
                `${name}: nothing is called #${anchor} in ${file || name}`);
        links++;
    }
}

// ---- Without JavaScript ------------------------------------------------------------------------

assert.doesNotMatch(pages['rms_norm.html'], /\$\$|katex-error/);
const flat = new Set( // the ops without a backward
    [...sources.read('kernels/elementwise/compare.def').matchAll(/^COMPARE\((\w+),/gm) ].map(
        ([, name ]) => name));
assert.equal(flat.size, 6);
flat.add('topk').add('argmax');
for (const op of sources.read('kernels/ops.def').matchAll(/^GD_OP\((\w+)\)/gm)) {
    if (flat.has(op[1])) continue;
    const home = Object.entries(pages).find(([, html ]) => html.includes(`data-op="${op[1]}"`));
    assert.ok(home, `no page has an example of ${op[1]}`);
    const body = home[1].split(`data-op="${op[1]}"`)[1].split('</template>')[0];
    assert.ok(
        (body.match(/data-value=/g) || []).length >= 4, `${op[1]}: no numbers in the page itself`);
}
assert.ok((pages['break.html'].match(/data-bug=/g) || []).length >= 170);
assert.ok((pages['tape.html'].match(/<svg/g) || []).length >= 4);

// The lines at the marks, for both machines where there is code for both.
const onBoth = (name) => sources.list().some(
    (file) => file.startsWith(`kernels/${name.replace('.html', '')}/`) && file.endsWith('.cu'));
for (const [name, html] of Object.entries(pages).filter(([, html ]) => html.includes('id="marked"')))
    for (const machine of onBoth(name) ? ['CPU', 'CUDA'] : ['CPU'])
        assert.ok(html.includes(`<figcaption>${machine}: `), `${name} has no line for ${machine}`);

// ---- The reference -----------------------------------------------------------------------------

let functions = 0;
for (const file of sources.list().filter((name) => name.startsWith('include/gradus/'))) {
    const html = pages[sources.page(file)];
    const plain = sources.read(file).replace(/\/\*[^]*?\*\//g, '');
    for (const [, name] of plain.matchAll(/GD_API[^;(]*?\b(gd_\w+)\s*\(/g)) {
        assert.ok(html.includes(`<a id="${name}">`), `${file}: ${name} is not in the reference`);
        functions++;
    }
}
assert.ok(functions > 150, `${functions} functions`);

// ---- The ladder is the kernels' own ------------------------------------------------------------

const kernels = sources.read('kernels/rms_norm/ladder.cu').replace(/\s+/g, ' ');
for (const rung of ladder.rungs) {
    for (const line of rung.code) assert.ok(kernels.includes(line), `ladder.cu has no: ${line}`);
    assert.ok(pages['rms_norm.html'].includes(rung.name));
}
const moved = ladder.rungs.map((rung) => ladder.load(rung, 8192, 0, 0, 0));
assert.deepEqual([ moved[0].asked, moved[0].moved ], [ 128, 1024 ]); // 7 of 8 bytes
for (const {asked, moved : bytes} of moved.slice(1)) assert.equal(bytes, asked);
assert.doesNotMatch(
    pages['rms_norm.html'], /<td>\?<\/td>/, 'a rung has no measured share in the README');

console.log(`${Object.keys(pages).length} pages, ${links} links, ${functions} public functions`);
