// ladder.js - what the kernels of the ladder ask memory for and when, by the index formula of each
// rung (kernels/rms_norm/ladder.cu; of the last ones forward.cu and backward.cu), and what
// memory has to move for it.
(function(root) {
'use strict';

const SECTOR = 32, FLOAT = 4, LANES = 32; // bytes, bytes, threads of a warp
// An H200: multiprocessors, and what each has for the blocks that run on it at the same time.
const MULTIPROCESSORS = 132, THREADS = 2048, REGISTERS = 65536;
const WALKERS = 528, ADDED_AT_ONCE = 32; // blocks of the last rung; rows of sum_rows
const M = 262144, N = 4096;              // the size that all is shown at
const ROWS = [ 0, WALKERS, 2 * WALKERS, 3 * WALKERS ].flatMap((r) => [r, r + 1, r + 2, r + 3]);

// ---- The rungs ---------------------------------------------------------------------------------

// passes: what a block does with its row, one pass after the other; reads and writes name tensors
// that lie as x does. inFlight: turns of the loop whose loads are on their way together. registers
// of a thread, as nvcc 13.0 reports them for sm_90; most: blocks that shared memory has room for.
// address(N, row of the block, thread, turn): the first byte of the access. code: that formula, as
// the kernel in `source` has it.
const twice = [ {name : 'sum', reads : [ 'x' ]}, {name : 'y', reads : [ 'x' ], writes : [ 'y' ]} ];
const once = [ {name : 'sum', reads : [ 'x' ]}, {name : 'y', writes : [ 'y' ]} ];
const byColumn = (threads, width) => (N, row, thread, turn) =>
    (row * N + width * (turn * threads + thread)) * FLOAT;
const blockARow = {
    threads : 256,
    registers : 18,
    width : 1,
    inFlight : 1,
    passes : twice,
    address : byColumn(256, 1)
};
const vectors = {...blockARow, registers : 22, width : 4, address : byColumn(256, 4)};
const backward = (registers, last) => ({
    ...blockARow,
    registers,
    backward : true,
    passes : [
        {name : 'sum', reads : [ 'x', 'dy' ]},
        {name : 'dx', reads : [ 'x', 'dy' ], writes : [ 'dx', ...last.writes || [] ],
            adds : last.adds}
    ],
});
const loop = 'for (int j = threadIdx.x; j < cols; j += blockDim.x)';
const vectorLoop = 'for (int j = threadIdx.x; j < vectors; j += blockDim.x)';
const backwardLoop = [
    `${loop} dot += dy_row[j] * weight[j] * x_row[j] * rstd;`,
    'const int j = k * (int)blockDim.x + (int)threadIdx.x;',
    'dx[row * cols + j] = rstd * (dy_row[j] * weight[j] - xhat * mean);',
];
const addedUp = 'for (int64_t i = threadIdx.y; i < rows && j < cols; i += 32) sum += partial[i * cols + j];';

const rungs = [
    {
        ...blockARow,
        name : 'naive: a thread a row',
        threads : 64,
        registers : 31,
        threadARow : true,
        code : [
            'const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;',
            'x += row * cols, y += row * cols;',
            'for (int j = 0; j < cols; j++) sum += x[j] * x[j];'
        ],
        address : (N, block, thread, turn) => ((block * 64 + thread) * N + turn) * FLOAT
    },
    {
        ...blockARow,
        name : 'a block a row, sum in shared memory',
        code : [ 'const int64_t row = blockIdx.x;', `${loop} sum += x[j] * x[j];` ]
    },
    {
        ...blockARow,
        name : 'sum by warp shuffles',
        code :
            [ 'for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);' ]
    },
    {
        ...vectors,
        name : '16-byte loads, sum in shared memory',
        code : [ `${vectorLoop} sum += squares(x[j]);` ]
    },
    {
        ...vectors,
        name : '16-byte loads, sum by warp shuffles',
        code : [ `${vectorLoop} sum += squares(x[j]);` ]
    },
    {
        ...vectors,
        registers : 30,
        name : 'loops unrolled',
        code : [ '#pragma unroll UNROLL', `${vectorLoop} sum += squares(x[j]);` ]
    },
    {
        ...vectors,
        registers : 19,
        most : 7,
        name : 'row staged in shared memory',
        passes : once,
        code : [ 'staged[j] = x[j];', 'y[j] = scaled(staged[j], rstd, weight[j]);' ]
    },
    {
        ...vectors,
        registers : 48,
        name : 'row kept in registers',
        passes : once,
        inFlight : 8,
        code : [
            'const int j = k * (int)blockDim.x + (int)threadIdx.x;',
            'v[k] = j < vectors ? x[j] : make_float4(0, 0, 0, 0);'
        ]
    },
    {
        ...vectors,
        registers : 48,
        name : 'ours, forward',
        passes : once,
        inFlight : 8,
        source : 'forward.cu',
        code : [
            'const int i = k * threads + member;',
            'x[k] = load_pack<SPREAD, V>(ADD ? at.of<S>(a.residual, a.residual_stride)\n                                : at.of<S>(a.x, a.x_stride),\n                            i, a.cols, policy);'
        ]
    },
    {
        ...backward(80, {writes : [ 'partials' ]}),
        name : 'dw by M x N partials and a sum',
        code : [ ...backwardLoop, 'dw[row * cols + j] = dy_row[j] * xhat;', addedUp ]
    },
    {
        ...backward(54, {adds : [ 'dw' ]}),
        name : 'dw by atomic additions',
        code : [ ...backwardLoop, 'atomicAdd(dw + j, dy_row[j] * xhat);' ]
    },
    {
        ...backward(154, {}),
        name : 'dw by partials of each block',
        walkers : WALKERS,
        code : [
            'for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {', ...backwardLoop,
            'dw_of[k] += dy_row[j] * xhat;', addedUp
        ]
    },
    {
        ...backward(0, {}),
        name : 'ours, backward',
        source : 'backward.cu',
        threads : 512,
        width : 4,
        address : byColumn(512, 4),
        walkers : MULTIPROCESSORS,
        stages : 1,
        code : [
            'for (int step = at.block; step < rows.steps; step += at.blocks) {',
            'slots.copy<S_PARTS>(to, row.x + i * V, packs - i);',
            'fetch(s, step + p.stages * at.blocks);'
        ]
    },
];

// ---- Bytes -------------------------------------------------------------------------------------

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

// The sectors that each lane of the first warp asks for in its first load.
function lanes(rung, N) {
    return Array.from({length : LANES}, (_, lane) => {
        const at = rung.address(N, 0, lane, 0);
        return [ Math.floor(at / SECTOR), Math.floor((at + rung.width * FLOAT - 1) / SECTOR) ];
    });
}

// Turns of a loop over a row.
const turnsOf = (rung, N) => Math.ceil(N / ((rung.threadARow ? 1 : rung.threads) * rung.width));

// Blocks that one multiprocessor has room for. Registers are given out by eights.
function blocksOfOne({threads, registers, most = 32}) {
    const each = Math.ceil(registers / 8) * 8 || 1;
    return Math.min(most, Math.floor(THREADS / threads), Math.floor(REGISTERS / (each * threads)));
}

// Blocks that run at the same time; where copies run ahead, blocks that there are.
function atOnce(rung, M) {
    if (rung.stages) return rung.walkers;
    const blocks = rung.walkers || (rung.threadARow ? Math.ceil(M / rung.threads) : M);
    return Math.min(blocks, MULTIPROCESSORS * blocksOfOne(rung));
}

// Bytes that memory can be at work on at once: of all threads that are there, what each has asked
// for before it must wait; of copies that run ahead, all stages.
function onTheirWay(rung, M, N) {
    const reads = rung.passes[0].reads.length;
    if (rung.stages) return rung.walkers * rung.stages * reads * N * FLOAT;
    const {asked, moved} = load(rung, N, 0, 0, 0);
    return atOnce(rung, M) * rung.threads * rung.width * FLOAT * moved / asked * reads *
           Math.min(rung.inFlight, turnsOf(rung, N));
}

// Bytes that the kernels ask for in all, and those that must move if no cache forgets anything.
function total(rung, M, N) {
    const reads = rung.passes.map((pass) => pass.reads || []);
    const own = new Set(rung.passes.flatMap((pass) => pass.writes || []));
    const partials = (rung.walkers || (own.delete('partials') ? M : 0)) * N;
    const asked = rung.stages ? reads[0].length : reads.flat().length;
    const adds = rung.passes.flatMap((pass) => pass.adds || []).length;
    return {
        asked : ((asked + own.size + adds) * M * N + 2 * partials) * FLOAT,
        moved : ((new Set(reads.flat()).size + own.size) * M * N + 2 * partials) * FLOAT,
    };
}

// ---- When --------------------------------------------------------------------------------------

// The sectors of its row that a block, or the row's thread, asks for in one turn.
function sectorsOf(rung, N, row, turn) {
    const sectors = new Set(), first = row * N * FLOAT / SECTOR;
    const [block, from, to] = rung.threadARow
                                  ? [ Math.floor(row / rung.threads), row % rung.threads, 1 ]
                                  : [ row, 0, rung.threads ];
    for (let thread = from; thread < from + to; thread++) {
        const at = rung.address(N, block, thread, turn);
        if (at >= (row + 1) * N * FLOAT) break;
        for (let byte = 0; byte < rung.width * FLOAT; byte += FLOAT)
            sectors.add(Math.floor((at + byte) / SECTOR) - first);
    }
    return [...sectors ];
}

const whole = Array.from({length : N * FLOAT / SECTOR}, (_, i) => i);

// The tensors of a picture and the rows of each that it shows. Those of `walkers` are visited one
// after the other by four blocks.
function panels(rung) {
    const rows = rung.threadARow ? Array.from({length : 16}, (_, i) => i)
                 : rung.stages   ? ROWS.map((row) => row % WALKERS +
                     Math.floor(row / WALKERS) * rung.walkers)
                                 : ROWS;
    const names = new Set(rung.passes.flatMap((pass) => [...pass.reads || [],
        ...pass.writes || []]));
    const list = [...names ].map((name) => ({name, rows}));
    if (rung.walkers) list.push({name : 'partials', rows : rows.slice(0, 4)});
    if (rung.backward) list.push({name : 'dw', rows : [ 0 ]});
    return list;
}

// What happens to the rows that a picture shows, frame by frame: {said, marks: [{tensor, row,
// sectors, kind}]}, kind: load, store or add.
function frames(rung) {
    const {rows} = panels(rung)[0], list = [];
    const put = (frame, said, tensor, row, sectors, kind) => {
        list[frame] = list[frame] || {said, marks : []};
        list[frame].said = said;
        list[frame].marks.push({tensor, row, sectors, kind});
    };
    if (rung.stages) {
        // A block's visits: its copies are ordered `stages` visits ahead, and are on their way
        // until it comes to the row.
        rows.forEach((row) => {
            const visit = Math.floor(row / rung.walkers);
            for (let f = Math.max(0, 2 * (visit - rung.stages) + 2); f < 2 * visit + 1; f++)
                for (const tensor of rung.passes[0].reads)
                    put(f, '', tensor, row, whole, 'load');
            put(2 * visit + 2, '', 'dx', row, whole, 'store');
            list[2 * visit + 1] = list[2 * visit + 1] || {marks : []};
        });
        list.forEach((frame, f) => {
            frame.said = f === 0  ? 'each block issues the copies of its first row'
                         : f % 2 ? `visit ${(f - 1) / 2}: the row has arrived and is summed`
                                 : `visit ${f / 2 - 1}: dx is written; the copies of visit ${
                                       f / 2 - 1 + rung.stages} are on their way`;
        });
    } else {
        const turns = turnsOf(rung, N);
        const lengths = rung.passes.map(
            () => Math.min(rung.threadARow ? 24 : Infinity, Math.ceil(turns / rung.inFlight)));
        const visit = lengths.reduce((a, b) => a + b, 0), together = atOnce(rung, M);
        for (const row of rows) {
            // Walkers visit their rows one after the other; other blocks come when one has ended.
            let frame = visit * (rung.threadARow ? 0
                                 : rung.walkers  ? Math.floor(row / rung.walkers)
                                                 : Math.floor(row / together));
            rung.passes.forEach((pass, p) => {
                for (let f = 0; f < lengths[p]; f++, frame++) {
                    const first = f * rung.inFlight, sectors = [];
                    for (let t = first; t < Math.min(turns, first + rung.inFlight); t++)
                        sectors.push(...sectorsOf(rung, N, row, t));
                    const said = `for ${pass.name}: iteration ${first} of ${turns}`;
                    for (const name of pass.reads || [])
                        put(frame, said, name, row, sectors, 'load');
                    for (const name of pass.writes || [])
                        put(frame, said, name, row, sectors, 'store');
                    for (const name of pass.adds || [])
                        put(frame, said + `, and ${together} blocks add to the same addresses`,
                            name, 0,
                            sectors, 'add');
                }
            });
        }
    }
    // What is left for dw: each block's row of partial sums, and the kernel that adds them up.
    const left = panels(rung).find((panel) => panel.name === 'partials');
    if (left) {
        if (rung.walkers) {
            const frame = list.length;
            for (const row of left.rows)
                put(frame, `each of the ${rung.walkers} blocks writes its sums`, 'partials', row,
                    whole, 'store');
        }
        const turns = [...new Set(left.rows.map((row) => Math.floor(row / ADDED_AT_ONCE))) ];
        for (const turn of turns) {
            const frame = list.length;
            for (const row of left.rows.filter((r) => Math.floor(r / ADDED_AT_ONCE) === turn))
                put(frame, `a second kernel adds rows ${turn * ADDED_AT_ONCE} to ${
                        (turn + 1) * ADDED_AT_ONCE - 1} of the partial sums`, 'partials', row,
                            whole, 'load');
        }
        put(list.length, 'dw is written', 'dw', 0, whole, 'store');
    }
    return list.filter(Boolean); // where other rows are at work, nothing is to be seen
}

const api = {
    rungs,
    load,
    lanes,
    total,
    atOnce,
    onTheirWay,
    panels,
    frames,
    M,
    N
};
root.ladder = api;
if (typeof module !== 'undefined') {
    module.exports = api;
    return;
}

// ---- In the page: a canvas a tensor, rows downwards, sectors to the right -----------------------

const colours = {load : '--mark', store : '--link', add : '--bad'};

function player(figure) {
    const rung = rungs[Number(figure.dataset.rung)];
    const canvases = Object.fromEntries(
        [...figure.querySelectorAll('canvas') ].map((canvas) => [canvas.dataset.tensor, canvas]));
    const shown = Object.fromEntries(panels(rung).map((panel) => [panel.name, panel.rows]));
    const sectors = rung.threadARow ? 64 : whole.length; // of a row that are shown
    let list = null, painted = -1;
    function paint(mark, colour) {
        const canvas = canvases[mark.tensor], rows = shown[mark.tensor], y = rows.indexOf(mark.row);
        const draw = canvas.getContext('2d');
        const w = canvas.width / sectors, h = canvas.height / rows.length;
        draw.fillStyle = colour;
        for (const sector of mark.sectors) draw.fillRect(sector * w, y * h + 2, w, h - 4);
        canvas.dataset.last = mark.kind; // for the test
    }
    const frames_of = () => (list = list || frames(rung));
    // The picture after `at` frames; the next one is added, any other is drawn from the beginning.
    function show(at) {
        const style = getComputedStyle(document.documentElement);
        const colour = (name) => style.getPropertyValue(name);
        const pale = (frame) => frame.marks.forEach((mark) => paint(mark, colour('--line')));
        if (at !== painted + 1) {
            for (const canvas of Object.values(canvases))
                canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height);
            list.slice(0, Math.max(0, at - 1)).forEach(pale);
        } else if (at > 1) {
            pale(list[at - 2]);
        }
        painted = at;
        if (at) list[at - 1].marks.forEach((mark) => paint(mark, colour(colours[mark.kind])));
        for (const [name, canvas] of Object.entries(canvases)) {
            const marks = at ? list[at - 1].marks.filter(({tensor}) => tensor === name) : [];
            canvas.setAttribute('aria-label', `${name}:
                ${marks.length ? marks.map(({row, sectors : {length}, kind}) => `${
                    length} sectors of row ${row}, ${kind}`).join('; ') : 'nothing now'}`);
        }
        figure.querySelector('.turn').textContent = at ? list[at - 1].said
            : 'nothing has been loaded yet';
    }
    return root.player.attach(figure, {steps : () => frames_of().length, show, pace : 350,
        begin : matchMedia('(prefers-reduced-motion: reduce)').matches ? frames_of().length : 1});
}

// The story: one card at a time; the plot beside it, and the buttons of a card, lead to another.
function story(place) {
    const cards = [...place.querySelectorAll('figure.rung') ],
        links = [...place.querySelectorAll('.plot a') ];
    function go(to, seen) {
        cards.forEach((card, i) => card.classList.toggle('away', i !== to));
        links.forEach((link, i) => (i === to ? link.setAttribute('aria-current', 'true')
            : link.removeAttribute('aria-current')));
        if (seen) cards[to].scrollIntoView({block : 'nearest'});
    }
    place.addEventListener('click', (event) => {
        const link = event.target.closest('a[data-go]');
        if (!link) return;
        event.preventDefault();
        go(Number(link.dataset.go), true);
        if (!link.closest('.plot'))
            cards[link.dataset.go].querySelector(`a[data-way=${link.dataset.way}]`)?.focus();
    });
    go(0);
}

document.addEventListener('DOMContentLoaded', () => {
    document.querySelectorAll('.story').forEach(story);
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    for (const figure of document.querySelectorAll('figure.rung')) {
        // It begins when it is seen, and without motion where that is asked for.
        let play = null;
        const first = () => (play = play || player(figure));
        figure.addEventListener('click', first, {capture : true});
        new IntersectionObserver(([ seen ]) => {
            if (!seen.isIntersecting) return play && play.stop();
            const fresh = !play;
            first();
            if (fresh && !calm) figure.querySelector('[data-act=play]').click();
        }).observe(figure);
    }
});
})(globalThis);
