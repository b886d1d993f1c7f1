// ladder.js - what a warp asks memory for at each rung of the ladder, by the index formula of the
// rung's kernel in kernels/rms_norm/ladder.cu, and what memory has to move for it.
(function(root) {
'use strict';

const SECTOR = 32, FLOAT = 4, LANES = 32;     // bytes, bytes, threads of a warp
const MULTIPROCESSORS = 132, RESIDENT = 2048; // of an H200; threads of one at a time

// address(row of the block, thread, turn): the first byte of the load, the kernel's formula with
// the row's first byte at row * 4 N. `code` is that formula, as the kernel has it.
const rungs = [
        { name: 'naive: a thread a row', threads: 64, width: 1, inFlight: 1, threadARow: true,
            code: ['const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;', 'x += row * cols, y += row * cols;', 'for (int j = 0; j < cols; j++) sum += x[j] * x[j];'],
            address: (N, block, thread, turn) => ((block * 64 + thread) * N + turn) * FLOAT },
        { name: 'a block a row, sum in shared memory', threads: 256, width: 1, inFlight: 1,
            code: ['const int64_t row = blockIdx.x;', 'for (int j = threadIdx.x; j < cols; j += blockDim.x) sum += x[j] * x[j];'],
            address: (N, block, thread, turn) => (block * N + turn * 256 + thread) * FLOAT },
        { name: 'sum by warp shuffles', threads: 256, width: 1, inFlight: 1, as: 1,
            code: ['for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);'],
            address: (N, block, thread, turn) => (block * N + turn * 256 + thread) * FLOAT },
        { name: '16-byte loads, sum in shared memory', threads: 256, width: 4, inFlight: 1,
            code: ['for (int j = threadIdx.x; j < vectors; j += blockDim.x) sum += squares(x[j]);'],
            address: (N, block, thread, turn) => (block * N + 4 * (turn * 256 + thread)) * FLOAT },
        { name: '16-byte loads, sum by warp shuffles', threads: 256, width: 4, inFlight: 1, as: 3,
            code: ['for (int j = threadIdx.x; j < vectors; j += blockDim.x) sum += squares(x[j]);'],
            address: (N, block, thread, turn) => (block * N + 4 * (turn * 256 + thread)) * FLOAT },
        { name: 'row kept in registers', threads: 256, width: 4, inFlight: 8, once: true,
            code: ['const int j = k * (int)blockDim.x + (int)threadIdx.x;', 'v[k] = j < vectors ? x[j] : make_float4(0, 0, 0, 0);'],
            address: (N, block, thread, turn) => (block * N + 4 * (turn * 256 + thread)) * FLOAT },
    ];

// One load of one warp: the sectors it touches, bytes asked and bytes moved.
function load(rung, N, block, warp, turn) {
    const sectors = new Set();
    for (let lane = 0; lane < LANES; lane++) {
        const at = rung.address(N, block, warp * LANES + lane, turn);
        for (let byte = 0; byte < rung.width * FLOAT; byte += FLOAT)
            sectors.add(Math.floor((at + byte) / SECTOR));
    }
    return {
        sectors : [...sectors ],
        asked : LANES * rung.width * FLOAT,
        moved : sectors.size * SECTOR
    };
}

// Bytes that can be on their way at once: threads that are there, times what each has asked for
// before it must wait.
function onTheirWay(rung, M, N) {
    const threads = rung.threadARow ? M : M * rung.threads;
    return Math.min(threads, MULTIPROCESSORS * RESIDENT) * rung.width * FLOAT *
           Math.min(rung.inFlight, Math.ceil(N / (rung.threads * rung.width)));
}

const api = {
    rungs,
    load,
    onTheirWay,
    SECTOR
};
root.ladder = api;
if (typeof module !== 'undefined') {
    module.exports = api;
    return;
}

// ---- In the page: rows downwards, sectors to the right -------------------------------------

const ROWS = 32, SHOWN = 256, N = 8192;

// The sectors that all rows' warps ask for in one turn, as [row, sector in the row].
function asked(rung, turn) {
    const cells = [];
    const turns = rung.once ? Array.from({length : rung.inFlight}, (_, k) => k) : [ turn ];
    for (const t of turns) {
        for (let block = 0; block < (rung.threadARow ? 1 : ROWS); block++)
            for (let warp = 0; warp < (rung.threadARow ? 1 : rung.threads / LANES); warp++)
                for (const sector of load(rung, N, block, warp, t).sectors) {
                    const perRow = N * FLOAT / SECTOR, row = Math.floor(sector / perRow);
                    if (row < ROWS && sector % perRow < SHOWN) cells.push([ row, sector % perRow ]);
                }
    }
    return cells;
}

function play(figure) {
    const rung = rungs[Number(figure.dataset.rung)], canvas = figure.querySelector('canvas');
    const draw = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const w = canvas.width / SHOWN, h = canvas.height / ROWS;
    const came = new Set();
    let turn = 0;
    function frame() {
        draw.clearRect(0, 0, canvas.width, canvas.height);
        const now = asked(rung, turn);
        draw.fillStyle = style.getPropertyValue('--line');
        for (const key of came)
            draw.fillRect((key % SHOWN) * w + 1, Math.floor(key / SHOWN) * h + 1, w - 0.5, h - 1);
        draw.fillStyle = style.getPropertyValue('--mark');
        for (const [row, sector] of now) {
            draw.fillRect(sector * w + 1, row * h + 1, w - 0.5, h - 1);
            came.add(row * SHOWN + sector);
        }
        figure.querySelector('.turn').textContent = `load ${turn}`;
        turn++;
        if (turn > 40 || came.size >= ROWS * SHOWN) {
            turn = 0;
            came.clear();
        }
    }
    frame();
    return frame;
}

document.addEventListener('DOMContentLoaded', () => {
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    for (const figure of document.querySelectorAll('figure.rung')) {
        const frame = play(figure);
        let timer = 0;
        const toggle =
            () => { timer = timer ? clearInterval(timer) || 0 : setInterval(frame, 350); };
        figure.querySelector('button').addEventListener('click', toggle);
        if (!calm)
            new IntersectionObserver((seen) => {
                if (seen[0].isIntersecting !== Boolean(timer)) toggle();
            }).observe(figure);
    }
});
})(globalThis);
