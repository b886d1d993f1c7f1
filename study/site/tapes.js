// tapes.js - the tapes of the example programs as graphs: drawn by Graphviz, put in motion by
// page/tape.js.
'use strict';
const {execFileSync} = require('child_process');
const fs = require('fs');
const path = require('path');
const {escape} = require('./tools.js');
require('../page/wasi.js');
const player = require('../page/player.js');

const programs = [
    [
        'fit_line', 'A line',
        'The first program of the tutorial: w and b are broadcast to five points, and error is read twice.'
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

// What the program prints at its first backward: the graph, and by id the values, what arrives by
// each arrow of a gradient, and what has arrived so far: {dot, numbers: {values, parts, totals}}.
async function tapeOf(folder, name) {
    let text = '';
    const file = path.join(folder, `tape_${name}.wasm`);
    const exports = await wasi.start(fs.readFileSync(file), {
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
    const numbers = (what) => Object.fromEntries(
        [...text.matchAll(new RegExp(`^${what} (\\w+) (.*?) *$`, 'gm')) ].map(
            ([ , id, list ]) => [id, list.replace(/ /g, ', ')]));
    return {
        dot : text.slice(text.indexOf('digraph')),
        numbers : {values : numbers('value'), parts : numbers('part'), totals : numbers('total')}
    };
}

// The same numbers as tables, for whoever does not see the picture.
function numbersTable(dot, {values, parts, totals}) {
    const label = (id) =>
        escape((new RegExp(`^ *${id} \\[.*label="([^"\\\\]*)`, 'm').exec(dot) || [ '', id ])[1]);
    const forward = Object.keys(values).filter((id) => new RegExp(`^ *${id} \\[`, 'm').test(dot));
    const arrows = [...dot.matchAll(/id="(n\d+)_(\d+)_([nt]\d+(?:_\d+)?)", style=dashed/g) ]
                       .sort((a, b) => b[1].slice(1) - a[1].slice(1));
    return `<details><summary>all numbers, as tables</summary><div class="wide"><table><thead><tr><th>tensor</th><th>its first values</th></tr></thead><tbody>${
        forward.map((id) => `<tr><td>${label(id)}</td><td>${values[id]}</td></tr>`).join('')}</tbody></table></div>
<div class="wide"><table><thead><tr><th>gradient from</th><th>to</th><th>what it sends</th><th>what has arrived there so far</th></tr></thead><tbody>${
        arrows
            .map(([ , node, k, to ]) => `<tr><td>${label(node)}</td><td>${label(to)}</td><td>${
                     parts[`${node}_${k}`] || ''}</td><td>${totals[`${node}_${k}`] || ''}</td></tr>`)
            .join('')}</tbody></table></div></details>`;
}

// The graph as SVG in the page's colours.
function draw(dot, title) {
    const svg = execFileSync('dot',
        [
            '-Tsvg', '-Gbgcolor=transparent', '-Gfontname=monospace', '-Nfontsize=11',
            '-Efontsize=10', '-Gnodesep=0.3', '-Granksep=0.35'
        ],
        {
            input : dot
        }).toString();
    return svg.slice(svg.indexOf('<svg'))
        .replace(/<title>[^]*?<\/title>\n?/g, '')
        .replace(/ (stroke|fill)="(black|lightgrey)"/g, '')
        .replace(/<svg width="[^"]*" height="[^"]*"/, `<svg role="img" aria-label="the tape of ${title}"`)
        .replace(/<polygon fill="transparent"[^>]*>/, '')
        .replace(/ id="/g, ' data-id="');
}

exports.page = async function page(folder) {
    const parts = [];
    for (const [name, title, words] of programs) {
        const {dot, numbers} = await tapeOf(folder, name), svg = draw(dot, title);
        const width = Number(/viewBox="[\d.]+ [\d.]+ ([\d.]+)/.exec(svg)[1]);
        parts.push(`<h2 id="${name}">${title}</h2><p>${words} <a href="code-docs-examples-${
            name}.c.html">${name}.c</a></p>
<div class="panel tape" id="tape-${name}" data-numbers="${escape(JSON.stringify(numbers))}">${
            player.controls()}<p class="said"></p>
<div class="wide" style="--width:${width}pt">${svg}</div>${numbersTable(dot, numbers)}
<details><summary>as gd_tape_print_dot prints it</summary><pre class="code">${
            escape(dot)}</pre></details></div>`);
    }
    return {
        title : 'Tape',
        scripts : [ 'player.js', 'tape.js' ],
        headings : programs.map(([ id, text ]) => ({depth : 2, id, text})),
        html : `<h1 id="top">The tape</h1>
<p class="lead">What the example programs write down while they compute, and how the gradients
come back. The graphs are what <code>gd_tape_print_dot</code> prints after the first backward,
drawn by Graphviz.</p>
<p>A box is a node: an op, the shape of what it made, the 2-norm of the gradient that reached it,
the bytes that waited for its backward. An ellipse is a leaf, filled where it requires a gradient.
Solid arrows carry values, dashed ones gradients. Press Play, or drag: nodes appear in the order of
the forward, with their first values; then the walk goes back, one arrow at a time. A tensor with two
readers gets two gradients, and they add up. Last, what a node had saved is freed.</p>
${parts.join('\n')}`,
    };
};
