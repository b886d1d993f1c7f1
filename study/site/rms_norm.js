// rms_norm.js - what the page of RMSNorm has besides: the walk through blocks, and the ladder.
'use strict';
const {escape} = require('./tools.js');
const {formula} = require('./markdown.js');
const sources = require('./sources.js');
const ladder = require('../page/ladder.js');
const walk = require('../page/walk.js');

const bytes = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB`
                      : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB`
                                 : `${n} B`);

exports.walk = function(it) {
    const {html, steps} = walk.render(it.request, it.own.eps);
    return `<h3 id="walk-title">Row to program, block by block</h3>
<p>A kernel gives each row to one program (on a GPU a block of threads). The row is longer than
what the program holds at once, so it walks: here 8 numbers in blocks of 4. The sum of squares
grows block by block; only then rstd is known, and the row is gone through again for y. The
backward walks the same way for the sum of h xhat. What it leaves for dw is a row of its own for
every program, and these rows are added at the end, in order.</p>
<div class="panel" id="walk" data-steps="${
        steps}"><div class="controls"><button type="button" data-act="step">Step</button><button type="button" data-act="play">Play</button></div>${
        html}</div>`;
};

exports.cheatSheet = () => {
    const rows = [
        [
            'forward',
            '\\mathrm{rstd} = (\\mathrm{mean}(x^2) + \\varepsilon)^{-1/2}, \\quad \\hat x = x\\,\\mathrm{rstd}, \\quad y = \\hat x\\, g + b'
        ],
        [ 'saved', '\\mathrm{rstd} \\text{, one number a row}' ],
        [
            'Jacobian',
            '\\partial \\hat x / \\partial x = \\mathrm{rstd}\\,(I - \\hat x \\hat x^T / N)'
        ],
        [
            'backward',
            'h = dy\\, g, \\quad m = \\mathrm{mean}(h \\hat x), \\quad dx = \\mathrm{rstd}\\,(h - \\hat x\\, m)'
        ],
        [ 'parameters', 'dw = \\textstyle\\sum_{rows} dy\\, \\hat x, \\quad db = \\sum_{rows} dy' ],
        [ 'bytes', '2 M N \\text{ forward}, \\quad 3 M N \\text{ backward, of one element each}' ],
    ];
    return `<h3 id="cheat-sheet">Cheat sheet</h3><div class="wide"><table class="cheat"><tbody>${
        rows.map(([ name, tex ]) => `<tr><th>${name}</th><td>${formula(tex, false, [])}</td></tr>`)
            .join('')}</tbody></table></div>`;
};

// The rows of README's table of the ladder: {name: [share at 2048 x 8192, share at 262144 x 4096]}.
function measured() {
    const shares = {};
    for (const [, name, a, b] of sources.read('kernels/rms_norm/README.md')
             .matchAll(
                 /^\| ([^|]+) \| [\d.]+ \| \d+ \| ([\d.]+) \| [\d.]+ \| \d+ \| ([\d.]+) \|$/gm))
        shares[name] = [ a, b ];
    return shares;
}

exports.ladder = () => {
    const shares = measured();
    const figures =
        ladder.rungs
            .map((rung, i) => {
                const {asked, moved} = ladder.load(rung, 8192, 0, 0, 0);
                const share = shares[rung.name] || [ '?', '?' ];
                const way = ladder.onTheirWay(rung, 2048, 8192);
                return `<figure class="rung" data-rung="${i}"><figcaption><b>${i}. ${
                    escape(rung.name)}</b> <span class="turn"></span></figcaption>
<canvas width="1024" height="256" role="img" aria-label="which sectors of memory are asked for"></canvas>
<div class="controls"><button type="button">Play or stop</button></div>
<table class="numbers left"><tr><td>a load of a warp asks for</td><td data-value="${asked}">${
                    bytes(asked)}</td></tr><tr><td>memory moves</td><td data-value="${moved}">${
                    bytes(
                        moved)}</td></tr><tr><td>on their way at once, at most (2048 x 8192)</td><td data-value="${
                    way}">${bytes(way)}</td></tr><tr><td>reads the row</td><td>${
                    rung.once
                        ? 'once'
                        : 'twice'}</td></tr><tr><td>measured share of the ceiling, 2048 x 8192</td><td>${
                    share[0]}</td></tr><tr><td>262144 x 4096</td><td>${share[1]}</td></tr></table>
<pre class="code">${rung.code.map(escape).join('\n')}</pre></figure>`;
            })
            .join('\n');
    return `<h3 id="ladder-pictures">The ladder in pictures</h3>
<p>Rows of x run downwards, 32 of them; a cell is a sector, the 32 bytes that memory moves at
least. Bright: what the warps of all rows ask for with this load. Pale: what has come. The picture
is computed from the index formula under it, which is the kernel's.</p>
<p>The naive rung wastes 7 of 8 bytes of what a load moves, unless a cache keeps the sector for
the next seven loads. That explains a factor of 8, and the rung is 20 to 50 times too slow: with a
thread a row, 2048 rows are 32 blocks on 132 multiprocessors, each thread has one load on its way,
and memory waits.</p>
<div class="rungs">${figures}</div>
<h3 id="glossary">Glossary</h3>
<dl>
<dt>thread, warp, lane</dt><dd>A thread runs the kernel's code on numbers of its own. 32 of them,
a warp, run each instruction together; a thread's place in its warp is its lane.</dd>
<dt>block, multiprocessor</dt><dd>Threads that can wait for one another and share memory are a
block. A block runs on one multiprocessor (SM), which has several at a time; an H200 has 132.</dd>
<dt>cluster</dt><dd>Blocks that run at the same time on neighbouring multiprocessors and can read
each other's shared memory.</dd>
<dt>sector, coalescing</dt><dd>Memory moves 32 bytes at least, a sector. The addresses of a warp's
load are taken together: lanes that are neighbours in memory share sectors, and then nothing is
wasted.</dd>
<dt>shared memory, registers, L2</dt><dd>Registers belong to a thread, shared memory to a block,
the L2 cache to all. Each is an order of magnitude larger and slower than the one before.</dd>
<dt>loads on their way</dt><dd>A load takes hundreds of cycles. Bandwidth is bytes on their way
divided by that time, so a kernel that asks for little at once is slow however few bytes it
reads.</dd>
<dt>shuffle</dt><dd>An instruction by which lanes of a warp read each other's registers.</dd>
<dt>bulk copy, st.async</dt><dd>A copy of a whole piece of a row that one thread starts and the
hardware carries out (cp.async.bulk); and a store into another block's shared memory that says
when it has arrived.</dd>
<dt>arithmetic intensity</dt><dd>Operations for each byte moved. RMSNorm has about one, where an
H200 could do more than ten in float32: the memory is the limit.</dd>
<dt>ceiling</dt><dd>The speed of a plain copy of as many bytes, measured in the same run. Shares
are of that.</dd>
</dl>`;
};
