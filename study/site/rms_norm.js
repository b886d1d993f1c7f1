// rms_norm.js - what the page of RMSNorm has besides: the walk through blocks, and the ladder.
'use strict';
const {escape} = require('./tools.js');
const {highlight} = require('./code.js');
const {functionOf} = require('./kernel.js');
const sources = require('./sources.js');
const ladder = require('../page/ladder.js');
const player = require('../page/player.js');
const walk = require('../page/walk.js');

exports.pages = [
    {name : 'rms_norm.html', title : 'RMSNorm: the derivation', part : 'the derivation', description :
        'The backward of RMSNorm is derived from one row of four numbers to dw, a sum over all rows, and each step stands beside its line of C.'},
    {name : 'rms_norm-worked.html', title : 'RMSNorm, with numbers', part : 'with numbers', description :
        'Each step of RMSNorm and of its backward has numbers here, first of one row and then of three, and they follow your input.'},
    {name : 'rms_norm-gpu.html', title : 'RMSNorm on a GPU', part : 'on a GPU', description :
        'Thirteen kernels lead from a thread a row to the bandwidth of the memory, one idea at a time, with what was measured of each.'}
];

// The example that the numbers begin with.
exports.row = 'rms_norm_row';

const bytes = (n) => (n >= 1e9   ? `${(n / 1e9).toFixed(1)} GB`
                      : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB`
                      : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB`
                                 : `${n} B`);

exports.walk = function(it, result) {
    const {html, steps} = walk.render({it, result});
    const speeds = [ 0.5, 1, 2, 4 ].map((v) => `<option value="${v}"${v === 1 ? ' selected' : ''}>${
        v} ×</option>`).join('');
    return `<div class="panel" id="walk" data-steps="${escape(JSON.stringify(steps))}">${
    player.controls(` <label>speed <select>${speeds}</select></label>`)}<p class="said">${
    steps[steps.length - 1].said}</p><div class="body">${
        html}</div></div>`;
};

// The rows of README's table of the ladder at the size of the pictures: {name: {us, share}}; and
// when and where it was measured.
function measured() {
    const text = sources.read('kernels/rms_norm/README.md'), figures = {};
    for (const [, name, us, share, read, written] of text
        .matchAll(/^\| ([^|]+) \| [\d.]+ \| \d+ \| [\d.]+ \| ([\d.]+) \| \d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$/gm))
        figures[name] = {us : Number(us), share : Number(share),
            dram : (Number(read) + Number(written)) * 1e9};
    const [, counted] = /by ncu, on (one NVIDIA [^:]*?):/.exec(text.replace(/\s+/g, ' '));
    const [, where] = /them\. (float32, [^(]*?\d{4}) \(/.exec(text.replace(/\s+/g, ' '));
    return {figures, where, counted};
}

// Which rows a picture shows: the first four, and the next that their blocks or others have.
function rowsOf(rung) {
    const {rows} = ladder.panels(rung)[0], ranges = [];
    for (const row of rows) {
        const last = ranges[ranges.length - 1];
        if (last && row === last[1] + 1)
            last[1] = row;
        else
            ranges.push([ row, row ]);
    }
    const words = ranges.map(([ a, b ]) => `${a} to ${b}`).join(', ');
    return words + (rung.threadARow ? ', the first 64 sectors of each' : '');
}

// The whole kernel of a rung, with the lines of its card lit; the library's own are walked through
// below.
const kernels = [ 'forward_naive', 'forward_block', 'block_sum_shuffle forward_block',
    'forward_vectors', 'forward_vectors', 'forward_vectors', 'forward_staged', 'forward_registers',
    '', 'backward_block sum_rows', 'backward_block', 'backward_block sum_rows', '' ];
function kernelOf({code : shown, source}, i) {
    if (!kernels[i]) return `<p><a href="${sources.page(`kernels/rms_norm/${source}`)}">${
        source}</a>${source === 'forward.cu' ? ', and <a href="#the-kernel">line by line</a> below'
        : ''}.</p>`;
    const file = 'kernels/rms_norm/ladder.cu',
        parts = kernels[i].split(' ').map((name) => functionOf(file, name)), {first} = parts[0],
        lines = parts.flatMap((part) => [...part.lines, '' ]), flat = (text) => text.replace(/\s+/g,
            ' ').trim(), lit = new Set();
    for (const line of shown.map(flat).filter(Boolean)) {
        const at = lines.findIndex((text, k) => flat(text) && flat(lines.slice(k, k + 6).join('\n'))
            .startsWith(line));
        for (let k = at; at >= 0 && (k === at || flat(lines.slice(at, k).join('\n')).length < line
            .length); k++) lit.add(k);
    }
    return `<details class="whole"><summary>The whole kernel, with ${
        lit.size > 1 ? 'these lines' : 'this line'} lit</summary><p><a href="${
        sources.page(file)}#L${first}">ladder.cu:${first}</a></p><pre class="code">${
        highlight(lines.join('\n')).split('\n').map((text, k) => `<span class="line${
            lit.has(k) ? ' marked' : ''}">${text}\n</span>`).join('')}</pre></details>`;
}

function figure(rung, i, {us, share, dram}, why, counted) {
    const {M, N, rungs} = ladder, {asked, moved} = ladder.load(rung, N, 0, 0, 0),
        all = ladder.total(rung, M, N);
    const way = ladder.onTheirWay(rung, M, N), blocks = ladder.atOnce(rung, M);
    const row = (what, value, shown) => `<tr><td>${what}</td><td data-value="${value}">${
        shown}</td></tr>`;
    const canvases =
        ladder.panels(rung)
            .map(({name, rows}) => `<div class="memory"><code>${name}</code><canvas data-tensor="${
                     name}" width="1024" height="${
                         rows.length * 20}" role="img" aria-label="sectors of ${
                     name} that are loaded or written"></canvas></div>`)
            .join('');
    const first = ladder.lanes(rung, N);
    const strip = first.map((sectors, lane) => {
        const [from, to] = sectors, odd = first.slice(0, lane + 1).filter(
            (s, k) => k && s[0] !== first[k - 1][0]).length % 2;
        return `<i class="${from === undefined ? 'idle' : odd ? 'odd' : ''}" title="lane ${lane}: ${
            from === undefined ? 'nothing' : from === to ? `sector ${from}` : `sectors ${from} to ${
                to}`}"></i>`;
    }).join('');
    const sectors = new Set(first.map((s) => s[0])).size;
    const link = (to, way, words) => (rungs[to] ? `<a href="#rung-${to}" data-go="${
        to}" data-way="${way}">${words}</a>` : '');
    return `<figure class="rung" data-rung="${i}" id="rung-${i}"><div class="path">${
        link(i - 1, 'back', '&larr; Previous')}<span>${
        i + 1} of ${rungs.length}</span>${link(i + 1, 'on', 'Next &rarr;')}</div>
<figcaption><b>${escape(rung.name)}</b></figcaption><p>${why}</p>
<div class="memory"><code>lanes</code><div class="lanes" role="group" aria-label="the lanes of a warp by sector">${
        strip}</div></div><small>${
        `the ${first.length} lanes of a warp load ${sectors} sectors: ${
            sectors === first.length ? `one each, ${first[1][0]} apart` : `${
                first.length / sectors} lanes per sector`}`}</small>
${canvases}<p class="turn"></p>
${player.controls(`<small>rows ${rowsOf(rung)}</small>`)}
<table class="numbers left">${
        row('a load of a warp requests', asked, bytes(asked))}${
        row('memory moves', moved, bytes(moved))}${
        row('all loads and stores', all.asked, bytes(all.asked))}${
        row('must move', all.moved, bytes(all.moved))}${
        row(`DRAM moved, as ncu counts on ${counted}`, dram, bytes(dram))}${
        row('resident blocks', blocks, blocks)}${
        row('in flight at once, at most', way, bytes(way))}${
        row('measured', us, `${us} us`)}${row('of the ceiling', share, share)}</table>
<pre class="code">${rung.code.map(escape).join('\n')}</pre>${kernelOf(rung, i)}</figure>`;
}

// What it takes beside PyTorch: a size a card, from the table of python/README.md.
exports.peers = () => {
    const text = sources.read('python/README.md'),
        [head] = /^\| rows x columns \| pass \|[^]*?Liger.*$/m
        .exec(text.slice(text.indexOf('On an H200')));
    const names = head.split('|').slice(3, -1).map((name) => name.trim().replace(/^torch$/,
        'torch, eager')), sizes = [];
    const [, where] = /(On an H200, [^(]*) \(/.exec(text),
        table = text.slice(text.indexOf(head)).split('\n\n')[0];
    for (const line of table.split('\n').slice(2)) {
        const [, size, pass, ...times] = line.split('|').map((cell) => cell.trim());
        if (size) sizes.push({size, passes : []});
        sizes[sizes.length - 1].passes
            .push({pass, times : times.slice(0, names.length).map(Number)});
    }
    const card = ({size, passes}) => {
        const most = Math.max(...passes.flatMap(({times}) => times));
        return `<figure><figcaption><b>${size}</b></figcaption>${
            passes.map(({pass, times}) => `<table class="times"><caption>${pass}, us</caption>${
                           times.map((us, i) => `<tr class="${i ? '' : 'ours'}"><th scope="row">${
                               names[i]}</th><td><i style="width:${
                                                    (100 * us / most).toFixed(1)}%"></i></td><td>${
                                                        us}</td></tr>`)
                               .join('')}</table>`)
                .join('')}</figure>`;
    };
    return `<h3 id="peers">Beside PyTorch</h3><p>${
        where}, in bfloat16, through autograd; torch.compile is PyTorch's compiled norm, Liger and
QuACK are libraries of kernels (<code>python/README.md</code> says how it was measured).</p><div class="peers">${sizes.map(card).join('')}</div>`;
};

// section: README's part on the ladder as HTML: a table, and a point for each rung, in their order,
// which stand in the cards here. text: what is said above them.
exports.ladder = (section, text) => {
    const {figures, where, counted} = measured(), {rungs, M, N} = ladder,
        why = [...section.matchAll(/<li>([^]*?)<\/li>/g) ].map(([ , html ]) => html);
    if (why.length !== rungs.length)
        throw new Error(`the ladder has ${rungs.length} rungs, README says why of ${why.length}`);
    const [table] = /<table>[^]*?<\/table>/.exec(section);
    const bar = (rung, i) => `<li><a href="#rung-${i}" data-go="${i}"><span>${
        escape(rung.name)}</span><i style="width:${
        Math.round(60 * figures[rung.name].share)}%"></i><small>${figures[rung.name].us} us, ${
            figures[rung.name].share}</small></a></li>`;
    const bars = (backward) => `<ol>${
        rungs.map((rung, i) => (Boolean(rung.backward) === backward ? bar(rung, i) : ''))
        .join('')}</ol>`;
    return `${text.replace('MxN', `${M} rows of ${N}`)}
<div class="story"><nav class="plot" aria-label="rungs of the ladder"><p>${
    where}. Bars: the speed as a part of the ceiling, a plain copy's.</p><b>Forward</b>${
        bars(false)}<b>Backward</b>${bars(true)}</nav>
<div class="rungs">${rungs.map((rung, i) => figure(rung, i, figures[rung.name], why[i], counted))
    .join('\n')}</div></div>
<details><summary>Two sizes as a table</summary><div class="wide">${table}</div></details>`;
};
