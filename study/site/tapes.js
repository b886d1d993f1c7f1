// tapes.js - the tapes of the example programs, and of an expression that the reader writes.
'use strict';
const fs = require('fs');
const path = require('path');
const {escape} = require('./tools.js');
const lessons = require('./lessons.js');
const sources = require('./sources.js');
require('../page/wasi.js');
const expression = require('../page/expression.js');
const formula = require('../page/formula.js');

const programs = [
    [
        'fit_line', 'A line',
        'The first program of the tutorial: w and b are broadcast to five points, and error is read twice. Here they begin at 0.5 and 1: of zeros a product shows nothing.'
    ],
    [ 'mlp', 'A network', 'Three linear layers with tanh between them.' ],
    [
        'custom_op', 'A custom op',
        'A record defined outside the library is a node like any other.'
    ],
    [
        'transformer_block', 'A block of a transformer',
        'The fourth program: norms, attention, SwiGLU and two residual streams, whose gradients are sums.'
    ],
];

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

exports.page = async function page(folder) {
    const parts = [];
    for (const [name, title, words] of programs) {
        const printed = await printedBy(folder, name);
        parts.push(`<h2 id="${name}">${title}</h2><p>${words} <a href="code-docs-examples-${
            name}.c.html">${name}.c</a></p>
${lessons.tapePanel(printed, {small : false, id : `tape-${name}`})}<details><summary>as gd_tape_print_dot prints it</summary><pre class="code">${
            escape(printed.slice(printed.indexOf('digraph')))}</pre></details>`);
    }
    return {
        title : 'Tape',
        description : 'The tapes of four example programs, played forward and back: values, gradients, and the memory that is freed.',
        scripts : lessons.scripts,
        headings : programs.map(([ id, text ]) => ({depth : 2, id, text})),
        html : `<h1 id="top">The tape</h1>
<p class="lead">What the example programs write down while they compute, and how the gradients
come back. Or write <a href="expression.html">an expression of your own</a>.</p>
<p>A box with corners is a node: an op, its result, its gradient once it has arrived, its 2-norm, and
the bytes that wait for its backward, blue until they are freed. A round one is a leaf. The
arrows carry values down and gradients up. A tensor with two readers gets two gradients, and they add up.</p>
${parts.join('\n')}`
    };
};

// ---- An expression of the reader's -------------------------------------------------------------------

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

exports.expressionPage = (expressions) => {
    const list = expression.compile(begin), hundred = sources.read('docs/examples/tape_in_100_lines.c');
    const head = hundred.slice(0, hundred.indexOf('/*  y  ')).replace(/\/\* tape_in_100_lines[^]*?\*\/\n/, '');
    return {
        title : 'Your expression, its tape',
        description : 'Write an expression with numbers, matrix products, tanh or softmax, and see its computation graph, played forward and backward, with every gradient.',
        about : [ 'expression', 'computation graph', 'autograd', 'backpropagation', 'visualize', 'vjp' ],
        scripts : [...lessons.scripts, 'editor.js' ],
        html : `<h1 id="top">Your expression, its tape</h1>
<p class="lead">Write a loss. The library computes it and goes back, here in the page.</p>
<div id="editor"><textarea rows="7" spellcheck="false" maxlength="${expression.MOST.text}" aria-label="the expression">${escape(begin)}</textarea>
<p class="refused bad" role="alert" hidden></p>
<div class="controls js"><button type="button" data-act="draw">Draw its tape</button><button type="button" data-act="c">As C</button><button type="button" data-act="hundred">As the 100 lines</button><a data-act="link" href="#">a link to it</a>
<label>or <select aria-label="an example"><option value="">an example</option>${others.map(([ name, text ]) => `<option value="${escape(text)}">${name}</option>`).join('')}</select></label></div>
<pre class="code words" tabindex="0" hidden></pre></div>
${lessons.tapePanel(expressions.run(list), {text : begin, list, small : false, id : 'expression'})}
<h2 id="language">What it understands</h2>
<p>A line gives a name to numbers or to a formula: <code>w = 0.5</code>, <code>x = [1, 2]</code>, <code>m = [[1, 2], [3, 4]]</code>.
<code>const</code> before it: no gradient goes there. The last line is the loss, one number. There are + - * /, and names side by
side are a product; <code>a @ b</code> is the matrix product, <code>a^2</code> and <code>a^3</code> powers;
${[...formula.tensorFunctions].map((name) => `<code>${name}</code>`).join(', ')}. softmax goes along the last axis. At most
${expression.MOST.ops} operations, ${expression.MOST.axes} axes, ${expression.MOST.elements} elements.</p>
<script type="text/plain" id="hundred">${escape(head)}</script><noscript>Another expression takes JavaScript.</noscript>`
    };
};
