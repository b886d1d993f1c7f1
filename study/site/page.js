// page.js - the frame around every page.
'use strict';
const {escape} = require('./tools.js');

const sections = [
    [ 'Path', 'index.html' ],
    [ 'Tutorial', 'tutorial.html' ],
    [ 'Ops', 'ops.html' ],
    [ 'Tape', 'tape.html' ],
    [ 'Break it', 'break.html' ],
    [ 'Train', 'train.html' ],
    [ 'Reference', 'reference.html' ],
    [ 'Code', 'code.html' ],
];

// scripts: of this page alone, besides the ones that all have.
module.exports = function page({title, html, headings = [], scripts = [], here, kind = ''}) {
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
<link rel="icon" href="data:,">
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
</main></div>
${scripts.map((s) => `<script src="${s}" defer></script>`).join('\n')}
</body>
</html>
`;
};
