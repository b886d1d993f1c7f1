// page.js - the frame around every page.
'use strict';
const {escape} = require('./tools.js');

const sections = [
    [ 'Path', 'index.html' ],
    [ 'Tutorial', 'tutorial.html' ],
    [ 'Ops', 'ops.html' ],
    [ 'Tape', 'tape.html' ],
    [ 'Expression', 'expression.html' ],
    [ 'Break it', 'break.html' ],
    [ 'Exercises', 'exercises.html' ],
    [ 'Train', 'train.html' ],
    [ 'Reference', 'reference.html' ],
    [ 'Code', 'code.html' ],
];

// The way through the study, at a stop of it: stops: [{number, before, after}], the latter {href,
// title}.
const way = (stops) =>
    stops
        .map(({number, before, after}) => `<nav class="path" aria-label="stop ${
            number} of the path"><a href="${
                 before.href}">&larr; ${escape(before.title)}</a><span>stop ${number}</span>${
                 after ? `<a href="${after.href}">${escape(after.title)} &rarr;</a>`
                     : '<a href="index.html">the path</a>'}</nav>`)
        .join('');

// scripts: of this page alone, besides the ones that all have. site: what is known of the whole:
// {version, date, address, source}; hidden: no search engine should list the page.
module.exports = function page(
    {title, html, headings = [], scripts = [], here, kind = '', stops = [], description,
        site = {}, hidden}) {
    const known = (value, html) => (value ? html : '');
    const contents = headings.filter((h) => h.depth === 2);
    const aside = contents.length > 1
                      ? `<aside class="contents"><nav aria-label="on this page"><ul>${
                            contents.map((h) => `<li><a href="#${h.id}">${escape(h.text)}</a></li>`)
                                .join('')}</ul></nav></aside>`
                      : '';
    const links =
        sections
            .map(([ name, file ]) =>
                     `<a href="${file}"${file === here ? ' aria-current="page"' : ''}>${name}</a>`)
            .join(' ');
    return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(title)} - gradus</title>
${known(description, `<meta name="description" content="${escape(description)}">`)}
${known(hidden, '<meta name="robots" content="noindex">')}
<meta property="og:title" content="${escape(title)}"><meta property="og:type" content="${
    here === 'index.html' ? 'website' : 'article'}"><meta property="og:site_name" content="gradus">
${known(description, `<meta property="og:description" content="${escape(description)}">`)}
<meta name="twitter:card" content="${site.picture ? 'summary_large_image' : 'summary'}">
${known(site.address, `<link rel="canonical" href="${site.address}${
    here === 'index.html' ? '' : here}"><meta property="og:url" content="${site.address}${
    here === 'index.html' ? '' : here}">
${known(site.picture, `<meta property="og:image" content="${
    site.address}preview.png"><meta property="og:image:alt" content="the tape of loss = mean((w x - y)^2), with its gradients">`)}`)}
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="katex/katex.min.css">
<link rel="stylesheet" href="style.css">
<script src="frame.js"></script>
</head>
<body class="${kind}">
<a class="skip" href="#main">Skip to the text</a>
<header><a class="home" href="index.html">gradus</a><nav aria-label="pages">${links}</nav>
<div class="tools"><input id="search" type="search" placeholder="Search" aria-label="search" autocomplete="off"><ol id="found" aria-label="found" hidden></ol>
<button id="theme" type="button" aria-label="light or dark">&#9680;</button></div></header>
<div class="columns">${aside}
<main id="main" tabindex="-1">
${html}
${way(stops)}</main></div>
<footer><a href="licences.html">Licences</a> &middot; gradus ${site.version || ''}${
        known(site.date, ` &middot; ${site.date}`)}${
        known(site.source, ` &middot; <a href="${site.source}">source</a>`)}</footer>
${scripts.map((s) => `<script src="${s}" defer></script>`).join('\n')}
</body>
</html>
`;
};
