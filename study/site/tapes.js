// tapes.js - the tapes of the example programs, and of an expression that the reader writes.
'use strict';
const fs = require('fs');
const path = require('path');
const {escape} = require('./tools.js');
const lessons = require('./lessons.js');
require('../page/wasi.js');
const expression = require('../page/expression.js');

// What a program prints at its first backward (study/spy.c).
async function printedBy(folder, name) {
    let text = '';
    const exports = await wasi.start(fs.readFileSync(path.join(folder, `tape_${name}.wasm`)), {
        args : [ name ],
        print : (piece, fd) => {
            if (fd === 1) text += piece;
        }
    });
    try {
        exports._start();
    } catch (stop) {
        if (!(stop instanceof wasi.Exit) || stop.status) throw stop;
    }
    return text;
}

// The tapes of programs, as HTML: {name: html}.
exports.programs = async (folder, names) => Object.fromEntries(await Promise.all(names
    .map(async (name) => {
    const printed = await printedBy(folder, name);
    return [name, `${lessons.tapePanel(printed, {small : false, id : `tape-${
        name}`})}<details><summary>as gd_tape_print_dot prints it</summary><pre class="code">${
        escape(printed.slice(printed.indexOf('digraph')))}</pre></details>` ];
})));

// ---- An expression of the reader's --------------------------------------------------------------

const begin = `w = 0.5
b = 1
const x = [-2, -1, 0, 1, 2]
const y = [-5, -3, -1, 1, 3]
loss = mean((w x + b - y)^2)`;

const others = [
    [ 'a neuron', 'w = [0.5, -1, 2]\nconst x = [1, 2, 3]\nb = 0.1\na = tanh(sum(w x) + b)\nloss = (a - 1)^2' ],
    [ 'a layer', 'const x = [[1, 2], [0, 1], [-1, 3]]\nw = [[0.5, -1], [1, 0]]\nb = [1, -1]\nloss = mean(relu(x @ w + b)^2)' ],
    [ 'cross entropy', 'x = [2, 1, -1]\nconst truth = [0, 1, 0]\nloss = logsumexp(x) - sum(truth x)' ],
    [ 'attention', 'q = [[1, 0], [0.5, 1]]\nk = [[1, 1], [0, 2]]\nv = [[1, -1], [2, 0.5]]\np = softmax(q @ transpose(k))\ny = p @ v\nloss = sum(y y)' ]
];

exports.editor = (expressions) => {
    const list = expression.compile(begin);
    return `<div id="editor"><textarea rows="7" spellcheck="false" maxlength="${
        expression.MOST.text}" aria-label="the expression">${escape(begin)}</textarea>
<p class="refused bad" role="alert" hidden></p>
<div class="controls js"><button type="button" data-act="draw">Draw its tape</button><button type="button" data-act="c">As C</button><a data-act="link" href="#">a link to it</a>
<label>or <select aria-label="an example"><option value="">an example</option>${
        others.map(([ name, text ]) => `<option value="${escape(text)}">${name}</option>`)
        .join('')}</select></label></div>
<pre class="code words" tabindex="0" hidden></pre></div>
${lessons.tapePanel(expressions.run(list), {text : begin, list, small : false, id : 'expression'})}`;
};
