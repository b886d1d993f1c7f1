// rms_norm.js - what the page of RMSNorm has besides: the walk through blocks, and the ladder.
'use strict';
const {escape} = require('./tools.js');
const {formula} = require('./markdown.js');
const sources = require('./sources.js');
const ladder = require('../page/ladder.js');
const player = require('../page/player.js');
const walk = require('../page/walk.js');

exports.pages = [
    {name : 'rms_norm.html', title : 'RMSNorm: the derivation', part : 'the derivation'},
    {name : 'rms_norm-worked.html', title : 'RMSNorm, with numbers', part : 'with numbers'},
    {name : 'rms_norm-gpu.html', title : 'RMSNorm on a GPU', part : 'on a GPU'}
];

const bytes = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB`
                      : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB`
                                 : `${n} B`);

exports.walk = function(it) {
    const {html, steps} = walk.render(it.request, it.own.eps);
    return `<h2 id="walk-title">Row to program, block by block</h2>
<p>A kernel assigns each row to one program (on a GPU a block of threads). The row is longer than
what the program holds at once, so it is processed in blocks: here 8 numbers in blocks of 4. The
first pass accumulates the sum of squares block by block; then rstd is known, and a second pass
computes y. The backward has two passes as well: one for the sum of h xhat, one for dx. For dw every
program writes its own row of partial sums, and these rows are added at the end, in order.</p>
<div class="panel" id="walk" data-steps="${steps}">${player.controls()}<div class="body">${
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
        [ 'parameters', 'dw = \\textstyle\\sum_{rows} dy\\, \\hat x, \\quad db = \\sum_{rows} dy' ],
        [ 'bytes', '2 M N \\text{ forward}, \\quad 3 M N \\text{ backward, times the size of an element}' ],
    ];
    return `<h2 id="cheat-sheet">Cheat sheet</h2><div class="wide"><table class="cheat"><tbody>${
        rows.map(([ name, tex ]) => `<tr><th>${name}</th><td>${formula(tex, false, [])}</td></tr>`)
            .join('')}</tbody></table></div>`;
};

// The rows of README's table of the ladder: {name: share at 2048 x 8192}.
function measured() {
    const shares = {};
    for (const [, name, share] of sources.read('kernels/rms_norm/README.md')
             .matchAll(
                 /^\| ([^|]+) \| [\d.]+ \| \d+ \| ([\d.]+) \| [\d.]+ \| \d+ \| ([\d.]+) \|$/gm))
        shares[name] = share;
    return shares;
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

function figure(rung, i, shares) {
    const {asked, moved} = ladder.load(rung, 8192, 0, 0, 0), all = ladder.total(rung, 2048, 8192);
    const share = shares[rung.name] || '?';
    const [M, N] = [ 2048, 8192 ];
    const way = ladder.onTheirWay(rung, M, N), blocks = ladder.atOnce(rung, M);
    const row = (what, value, shown) => `<tr><td>${what}</td><td${
        value === null ? '' : ` data-value="${value}"`}>${shown}</td></tr>`;
    const canvases =
        ladder.panels(rung)
            .map(({name, rows}) => `<div class="memory"><code>${name}</code><canvas data-tensor="${
                     name}" width="1024" height="${rows.length * 20}" role="img" aria-label="sectors of ${
                     name} that are loaded or written"></canvas></div>`)
            .join('');
    const first = ladder.lanes(rung, 8192);
    const strip = first.map((sectors, lane) => {
        const [from, to] = sectors, odd = first.slice(0, lane + 1).filter(
            (s, k) => k && s[0] !== first[k - 1][0]).length % 2;
        return `<i class="${from === undefined ? 'idle' : odd ? 'odd' : ''}" title="lane ${lane}: ${
            from === undefined ? 'nothing' : from === to ? `sector ${from}` : `sectors ${from} to ${to}`}"></i>`;
    }).join('');
    const sectors = new Set(first.map((s) => s[0])).size;
    return `<figure class="rung" data-rung="${i}"><figcaption><b>${escape(rung.name)}</b></figcaption>
<div class="memory"><code>lanes</code><div class="lanes" role="img" aria-label="the lanes of a warp by sector">${
        strip}</div></div><small>${
        rung.stages ? 'one lane issues the copy of a row'
                    : `the ${first.length} lanes of a warp load ${sectors} sectors: ${
                          sectors === first.length ? `one each, ${first[1][0]} apart`
                                                   : `${first.length / sectors} lanes per sector`}`}</small>
${canvases}<p class="turn"></p>
${player.controls(`<small>rows ${rowsOf(rung)}</small>`)}
<table class="numbers left">${
        row(rung.stages ? 'a bulk copy requests' : 'a load of a warp requests', asked, bytes(asked))}${
        row('memory moves', moved, bytes(moved))}${
        row('all loads and stores', all.asked, bytes(all.asked))}${
        row('must move', all.moved, bytes(all.moved))}${
        row('resident blocks', blocks, blocks)}${
        row('in flight at once, at most', way, bytes(way))}${
        row('measured share of the ceiling', null, share)}</table>
<div class="bar" role="img" aria-label="${share} of the ceiling"><i style="width:${100 * share}%"></i></div>
<pre class="code">${rung.code.map(escape).join('\n')}</pre></figure>`;
}

exports.ladder = () => {
    const shares = measured();
    const figures = (backward) =>
        ladder.rungs
            .map((rung, i) => (Boolean(rung.backward) === backward ? figure(rung, i, shares) : ''))
            .join('\n');
    return `<h2 id="ladder-pictures">The ladder in pictures</h2>
<p>The rungs of the ladder at one size, 2048 rows of 8192 numbers. Each strip is a tensor in memory: rows run downwards, the sectors of a row to the right. A sector
is the 32 bytes that memory moves at least. The colours: <b class="asked">loaded</b> in this
iteration of the loop, by the warps of all rows; <b class="stored">written</b>;
<b class="added">added to</b>, by many blocks at once; pale: accessed before. The pictures are
computed from the index formula under them, which is the kernel's; they show rows of 4096. As
many blocks run at a time as fit on an H200, limited by threads, by shared memory, and by the
registers that the compiler allocates. The weight, which stays in the cache, is not drawn.</p>
<p>What decides is how many bytes are in flight: DRAM needs some 4 MB to be busy. <a href="#the-ladder">The
ladder</a> below says why each rung is as fast as it is.</p>
<div class="rungs">${figures(false)}</div>
<h2 id="ladder-backward">The backward's ladder</h2>
<p>Two tensors are read, so an iteration has twice the bytes in flight; and every element of dw is a
sum over all rows. Its partial sums are written and read again (the first rung), or added to the
same N addresses by all blocks (the second), or kept in registers from row to row. In the third rung
these are 32 sums per thread, 154 registers in all: only one block of 256 threads fits on a
multiprocessor, with a quarter of the first rung's bytes in flight. Ours keeps dw in registers, too,
but lets bulk copies, which need none, run two rows ahead.</p>
<div class="rungs">${figures(true)}</div>
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
};
