// marks.js - the marks that tie a step of a derivation to its line of code: [dx] in a README,
// /* [dx] */ in the code of its folder.
'use strict';
const path = require('path');
const sources = require('./sources.js');

const inCode = /((?: \[[a-z][\w. ]*\])+) \*\/$/;

// [{mark, file, line}] of one source file. A mark above its line counts for the line; a row
// of a table is a mark by its name.
exports.ofFile = (file) => sources.read(file).split('\n').flatMap((text, i) => {
    const row = /^(?:UNARY|SCALAR|RANGE|BINARY|LOSS)\((\w+),/.exec(text);
    if (row) return [ {mark : row[1], file, line : i + 1} ];
    const found = inCode.exec(text);
    if (!found) return [];
    const line = /^\s*\/\*/.test(text) ? i + 2 : i + 1;
    return [...found[1].matchAll(/\[([^\]]*)\]/g) ].map(([, mark ]) => ({mark, file, line}));
});

// The same of all sources in the folder of a README.
exports.ofFolder = (readme, files) =>
    files.filter((file) => path.dirname(file) === path.dirname(readme) && sources.isCode(file) &&
                          !sources.isTest(file))
        .flatMap(exports.ofFile);

exports.inCode = inCode;
