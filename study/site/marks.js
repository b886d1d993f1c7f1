// marks.js - the marks that tie a step of a derivation to its line of code: [dx] in a README,
// /* [dx] */ in the code of its folder.
'use strict';
const path = require('path');
const sources = require('./sources.js');

const inCode = /\/[*/] \[([\w. ]+)\](?: \*\/|$)/;

// [{mark, file, line, text}] of one source file.
exports.ofFile = (file) => sources.read(file).split('\n').flatMap((text, i) => {
    const found = inCode.exec(text);
    return found ? [{ mark: found[1], file, line: i + 1, text: text.trim() }] : [];
});

// The same of all sources in the folder of a README.
exports.ofFolder = (readme, files) => files
    .filter((file) => path.dirname(file) === path.dirname(readme) && sources.isCode(file))
    .flatMap(exports.ofFile);

exports.inCode = inCode;
