// rms_norm.js - what the page of RMSNorm has besides: the walk through blocks, and the ladder.
'use strict';
const {escape} = require('./tools.js');
const {formula} = require('./markdown.js');
const {highlight} = require('./code.js');
const {functionOf} = require('./kernel.js');
const sources = require('./sources.js');
const ladder = require('../page/ladder.js');
const player = require('../page/player.js');
const walk = require('../page/walk.js');

exports.pages = [
    {name : 'rms_norm.html', title : 'RMSNorm: the derivation', part : 'the derivation'},
    {name : 'rms_norm-worked.html', title : 'RMSNorm, with numbers', part : 'with numbers'},
    {name : 'rms_norm-gpu.html', title : 'RMSNorm on a GPU', part : 'on a GPU'}
];

const bytes = (n) => (n >= 1e9   ? `${(n / 1e9).toFixed(1)} GB`
                      : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB`
                      : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB`
                                 : `${n} B`);

exports.walk = function(it, result) {
    const {html, steps} = walk.render({it, result});
    const speeds = [ 0.5, 1, 2, 4 ].map((v) => `<option value="${v}"${v === 1 ? ' selected' : ''}>${v} ×</option>`).join('');
    return `<h2 id="walk-title">Three programs, a block at a time</h2>
<p>Each row has one program, on a GPU a block of threads, and is longer than what it holds at once: 8 numbers in
blocks of 4. Play it; the numbers are those of the example below.</p>
<div class="panel" id="walk" data-steps="${escape(JSON.stringify(steps))}">${player.controls(` <label>speed <select>${speeds}</select></label>`)}<p class="said">${steps[steps.length - 1].said}</p><div class="body">${
        html}</div></div>`;
};

exports.cheatSheet = () => {
    const rows = [
        [
            'forward',
            '\\mathrm{rstd} = (\\mathrm{mean}(x^2) + \\varepsilon)^{-1/2}, \\quad \\hat x = x\\,\\mathrm{rstd}, \\quad y = \\hat x\\, g + b'
        ],
        [ 'saved', '\\mathrm{rstd} \\text{, one number per row}' ],
        [
            'Jacobian',
            '\\partial \\hat x / \\partial x = \\mathrm{rstd}\\,(I - \\hat x \\hat x^T / N)'
        ],
        [
            'backward',
            'h = dy\\, g, \\quad m = \\mathrm{mean}(h \\hat x), \\quad dx = \\mathrm{rstd}\\,(h - \\hat x\\, m)'
        ],
        [ 'length', '|\\hat x|^2 = N a / (a + \\varepsilon)' ],
        [ 'along x', '\\textstyle\\sum_k x_k\\, dx_k = N m\\, \\varepsilon / (a + \\varepsilon) \\text{: 0 where } \\varepsilon = 0' ],
        [ 'parameters', 'dw = \\textstyle\\sum_{rows} dy\\, \\hat x, \\quad db = \\sum_{rows} dy' ],
        [ 'bytes', '2 M N \\text{ forward}, \\quad 3 M N \\text{ backward, times the size of an element}' ],
        [ 'bandwidth', '\\text{bytes in flight} / \\text{latency of a load}' ],
    ];
    return `<h2 id="cheat-sheet">Cheat sheet</h2><div class="wide"><table class="cheat"><tbody>${
        rows.map(([ name, tex ]) => `<tr><th>${name}</th><td>${formula(tex, false, [])}</td></tr>`)
            .join('')}</tbody></table></div>`;
};

// The rows of README's table of the ladder at the size of the pictures: {name: {us, share}}; and when and
// where it was measured.
function measured() {
    const text = sources.read('kernels/rms_norm/README.md'), figures = {};
    for (const [, name, us, share, read, written] of text.matchAll(/^\| ([^|]+) \| [\d.]+ \| \d+ \| [\d.]+ \| ([\d.]+) \| \d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$/gm))
        figures[name] = {us : Number(us), share : Number(share), dram : (Number(read) + Number(written)) * 1e9};
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

// The whole kernel of a rung, with the lines of its card lit; the library's own are walked through below.
const kernels = [ 'forward_naive', 'forward_block', 'block_sum_shuffle forward_block', 'forward_vectors', 'forward_vectors', 'forward_vectors', 'forward_staged', 'forward_registers', '', 'backward_block sum_rows', 'backward_block', 'backward_block sum_rows', '' ];
function kernelOf({code : shown, source}, i) {
    if (!kernels[i]) return `<p><a href="${sources.page(`kernels/rms_norm/${source}`)}">${source}</a>${source === 'forward.cu' ? ', and <a href="#the-kernel">line by line</a> below' : ''}.</p>`;
    const file = 'kernels/rms_norm/ladder.cu', parts = kernels[i].split(' ').map((name) => functionOf(file, name)), {first} = parts[0], lines = parts.flatMap((part) => [...part.lines, '' ]), flat = (text) => text.replace(/\s+/g, ' ').trim(), lit = new Set();
    for (const line of shown.map(flat).filter(Boolean)) {
        const at = lines.findIndex((text, k) => flat(text) && flat(lines.slice(k, k + 6).join('\n')).startsWith(line));
        for (let k = at; at >= 0 && (k === at || flat(lines.slice(at, k).join('\n')).length < line.length); k++) lit.add(k);
    }
    return `<details class="whole"><summary>The whole kernel, with ${lit.size > 1 ? 'these lines' : 'this line'} lit</summary><p><a href="${sources.page(file)}#L${first}">ladder.cu:${first}</a></p><pre class="code">${
        highlight(lines.join('\n')).split('\n').map((text, k) => `<span class="line${lit.has(k) ? ' marked' : ''}">${text}\n</span>`).join('')}</pre></details>`;
}

function figure(rung, i, {us, share, dram}, why, counted) {
    const {M, N, rungs} = ladder, {asked, moved} = ladder.load(rung, N, 0, 0, 0), all = ladder.total(rung, M, N);
    const way = ladder.onTheirWay(rung, M, N), blocks = ladder.atOnce(rung, M);
    const row = (what, value, shown) => `<tr><td>${what}</td><td data-value="${value}">${shown}</td></tr>`;
    const canvases =
        ladder.panels(rung)
            .map(({name, rows}) => `<div class="memory"><code>${name}</code><canvas data-tensor="${
                     name}" width="1024" height="${rows.length * 20}" role="img" aria-label="sectors of ${
                     name} that are loaded or written"></canvas></div>`)
            .join('');
    const first = ladder.lanes(rung, N);
    const strip = first.map((sectors, lane) => {
        const [from, to] = sectors, odd = first.slice(0, lane + 1).filter(
            (s, k) => k && s[0] !== first[k - 1][0]).length % 2;
        return `<i class="${from === undefined ? 'idle' : odd ? 'odd' : ''}" title="lane ${lane}: ${
            from === undefined ? 'nothing' : from === to ? `sector ${from}` : `sectors ${from} to ${to}`}"></i>`;
    }).join('');
    const sectors = new Set(first.map((s) => s[0])).size;
    const link = (to, way, words) => (rungs[to] ? `<a href="#rung-${to}" data-go="${to}" data-way="${way}">${words}</a>` : '');
    return `<figure class="rung" data-rung="${i}" id="rung-${i}"><div class="path">${link(i - 1, 'back', '&larr; Previous')}<span>${
        i + 1} of ${rungs.length}</span>${link(i + 1, 'on', 'Next &rarr;')}</div>
<figcaption><b>${escape(rung.name)}</b></figcaption><p>${why}</p>
<div class="memory"><code>lanes</code><div class="lanes" role="group" aria-label="the lanes of a warp by sector">${
        strip}</div></div><small>${
        `the ${first.length} lanes of a warp load ${sectors} sectors: ${
            sectors === first.length ? `one each, ${first[1][0]} apart` : `${first.length / sectors} lanes per sector`}`}</small>
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
function peers() {
    const text = sources.read('python/README.md'), [head] = /^\| rows x columns \| pass \|[^]*?Liger.*$/m.exec(text.slice(text.indexOf('On an H200')));
    const names = head.split('|').slice(3, -1).map((name) => name.trim().replace(/^torch$/, 'torch, eager')), sizes = [];
    const [, where] = /(On an H200, [^(]*) \(/.exec(text), table = text.slice(text.indexOf(head)).split('\n\n')[0];
    for (const line of table.split('\n').slice(2)) {
        const [, size, pass, ...times] = line.split('|').map((cell) => cell.trim());
        if (size) sizes.push({size, passes : []});
        sizes[sizes.length - 1].passes.push({pass, times : times.slice(0, names.length).map(Number)});
    }
    const card = ({size, passes}) => {
        const most = Math.max(...passes.flatMap(({times}) => times));
        return `<figure><figcaption><b>${size}</b></figcaption>${
            passes.map(({pass, times}) => `<table class="times"><caption>${pass}, us</caption>${
                           times.map((us, i) => `<tr class="${i ? '' : 'ours'}"><th scope="row">${names[i]}</th><td><i style="width:${
                                                    (100 * us / most).toFixed(1)}%"></i></td><td>${us}</td></tr>`)
                               .join('')}</table>`)
                .join('')}</figure>`;
    };
    return `<h3 id="peers">Beside PyTorch</h3><p>${where}, in bfloat16, through autograd; torch.compile is PyTorch's compiled norm, Liger and
QuACK are libraries of kernels (<code>python/README.md</code> says how it was measured).</p><div class="peers">${sizes.map(card).join('')}</div>`;
}

// section: README's part on the ladder as HTML: a table, and a point for each rung, in their order, which
// stand in the cards here.
exports.ladder = (section) => {
    const {figures, where, counted} = measured(), {rungs, M, N} = ladder, why = [...section.matchAll(/<li>([^]*?)<\/li>/g) ].map(([ , html ]) => html);
    if (why.length !== rungs.length) throw new Error(`the ladder has ${rungs.length} rungs, README says why of ${why.length}`);
    const [table] = /<table>[^]*?<\/table>/.exec(section);
    const bar = (rung, i) => `<li><a href="#rung-${i}" data-go="${i}"><span>${escape(rung.name)}</span><i style="width:${
        Math.round(60 * figures[rung.name].share)}%"></i><small>${figures[rung.name].us} us, ${figures[rung.name].share}</small></a></li>`;
    const bars = (backward) => `<ol>${rungs.map((rung, i) => (Boolean(rung.backward) === backward ? bar(rung, i) : '')).join('')}</ol>`;
    return `<h2 id="the-ladder">The ladder</h2>
<p>From one thread a row to the library's kernels, one idea a rung, all at one size: ${M} rows of ${N} numbers. DRAM needs some 4 MB
in flight to be busy, and that decides more than anything else. Each strip in a card is a tensor in memory: rows run downwards, the sectors of
a row, of 32 bytes, to the right. <b class="asked">Loaded</b> in this iteration of the loop, by the warps of all rows; <b
class="stored">written</b>; <b class="added">added to</b>, by many blocks at once; pale: accessed before. It is computed from the index
formula under it, which is the kernel's. As many blocks run at a time as fit on an H200, limited by threads, by shared memory, and by the
registers that the compiler allocates. The weight, which stays in the cache, is not drawn.</p>
<div class="story"><nav class="plot" aria-label="rungs of the ladder"><p>${where}. Bars: the speed as a part of the ceiling, a plain copy's.</p><b>Forward</b>${
        bars(false)}<b>Backward</b>${bars(true)}</nav>
<div class="rungs">${rungs.map((rung, i) => figure(rung, i, figures[rung.name], why[i], counted)).join('\n')}</div></div>
<details><summary>Two sizes as a table</summary><div class="wide">${table}</div></details>`;
};

// What the page ends with.
exports.after = () => `${peers()}
<h2 id="glossary">Glossary</h2>
<dl>
<dt>thread, warp, lane</dt><dd>A thread runs the kernel's code on its own data. 32 of them,
a warp, run each instruction together; a thread's place in its warp is its lane.</dd>
<dt>block, multiprocessor</dt><dd>Threads that can wait for one another and share memory are a
block. A block runs on one multiprocessor (SM), which has several at a time; an H200 has 132.</dd>
<dt>cluster</dt><dd>Blocks that run at the same time on neighbouring multiprocessors and can read
each other's shared memory.</dd>
<dt>sector, coalescing</dt><dd>Memory moves at least 32 bytes, a sector. The addresses of a warp's
load are coalesced: lanes that access neighbouring addresses share sectors, and then nothing is
wasted.</dd>
<dt>shared memory, registers, L2</dt><dd>Registers belong to a thread, shared memory to a block,
the L2 cache to all. Each is an order of magnitude larger and slower than the one before.</dd>
<dt>bytes in flight</dt><dd>A load takes hundreds of cycles. Bandwidth is the bytes in flight
divided by that latency, so a kernel with few loads in flight is slow however few bytes it
reads.</dd>
<dt>shuffle</dt><dd>An instruction by which lanes of a warp read each other's registers.</dd>
<dt>bulk copy, st.async</dt><dd>A copy of a contiguous piece of a row that one thread starts and the
hardware performs asynchronously (cp.async.bulk); and a store into another block's shared memory
that signals its arrival on a barrier.</dd>
<dt>arithmetic intensity</dt><dd>Operations for each byte moved. RMSNorm has about one, where an
H200 could do more than ten in float32: the memory is the limit.</dd>
<dt>ceiling</dt><dd>The speed of a plain copy of as many bytes, measured in the same run; shares
are relative to it.</dd>
</dl>`;
