// kernel.js - RMSNorm's forward on its page about GPUs: the same formula plain, fast and in CUDA, and a
// walk through the lines of the whole kernel.
'use strict';
const {escape} = require('./tools.js');
const code = require('./code.js');
const sources = require('./sources.js');
const kernel = require('../page/kernel.js');
const player = require('../page/player.js');

const folder = 'kernels/rms_norm/', common = 'kernels/common/';
const shown = [ // in the order of the page
    [ folder + 'forward.cu', 'forward_kernel' ], [ common + 'pack.cuh', 'load_streaming' ],
    [ folder + 'kernels.cuh', 'add_squares' ], [ folder + 'forward.cu', 'row_sum' ],
    [ common + 'team.cuh', 'gd_combine' ], [ folder + 'kernels.cuh', 'rstd_of' ],
    [ folder + 'kernels.cuh', 'norm_pack' ], [ folder + 'forward.cu', 'forward_cap' ]
];

// The lines of a function, with what stands above it: {first, lines}.
function functionOf(file, name) {
    const all = sources.read(file).split('\n');
    const at = all.findIndex((text) => new RegExp(`\\b${name}\\)?\\(`).test(text) && /^\S|^    (?:__device__|forward_kernel|__maxnreg__)/.test(text));
    if (at < 0) throw new Error(`${file} has no function ${name}`);
    let first = at, last = at;
    const end = /^    __device__/.test(all[at]) ? '    }' : '}'; // of a member
    while (first > 0 && all[first - 1].trim() && !/^ *[}#]|^namespace/.test(all[first - 1])) first--;
    while (all[last] !== end) last++;
    return {first : first + 1, lines : all.slice(first, last + 1)};
}

const idOf = (file, line) => `k-${file.split('/').pop().replace(/\W/g, '-')}-${line}`;

function box(file, name) {
    const {first, lines} = functionOf(file, name), page = sources.page(file);
    const html = code.highlight(lines.join('\n')).split('\n').map(
        (text, i) => `<span class="line" id="${idOf(file, first + i)}"><a class="number" href="${page}#L${first + i}" tabindex="-1">${
            first + i}</a>${text}\n</span>`);
    return `<figure class="excerpt"><figcaption>${code.machineOf(file)}: <a href="${page}#L${first}">${escape(file)}</a>, <code>${
        name}</code></figcaption><pre class="code">${html.join('')}</pre></figure>`;
}

// The ids of the lines from the one that contains `from` to the one that contains `to`, in a function.
function linesOf([ name, from, to = from ]) {
    const [file] = shown.find(([, each ]) => each === name), {first, lines} = functionOf(file, name);
    const begin = lines.findIndex((text) => text.includes(from));
    const end = lines.findIndex((text, i) => i >= begin && text.includes(to));
    if (begin < 0 || end < 0) throw new Error(`${name} in ${file} has no line with ${begin < 0 ? from : to}`);
    return lines.slice(begin, end + 1).map((_, i) => idOf(file, first + begin + i));
}

const widths = () => `<div class="wide"><table class="numbers left"><thead><tr><th>a load of</th><th>a warp asks for</th><th>loads of a warp for a row of 4096 floats</th><th>in flight on a multiprocessor: 1024 threads, 4 loads each</th></tr></thead><tbody>${
    [ 4, 8, 16 ].map((bytes) => `<tr><td>${bytes} bytes</td><td>${32 * bytes} bytes, ${bytes} sectors</td><td>${4096 * 4 / (32 * bytes)}</td><td>${4 * bytes} KB</td></tr>`).join('')
}</tbody></table></div>`;

// values: of a row, whose squares the butterfly adds.
const thoughts = (values) => [
    [
        'Who has which row', [ [ 'forward_kernel', 'const int threads =', 'const bool here' ] ],
        `A row is shared by 2<sup>shift</sup> lanes of a warp, or by the whole block where shift is 10. <code>member</code> is a
thread's number within its row: thread <code>member</code> has the packs member, member + threads, member + 2 threads,
so that neighbouring lanes always read neighbouring bytes. In short rows a block has several rows.`
    ],
    [
        'Starting before the last kernel has ended', [ [ 'forward_kernel', 'const bool few', 'if (few) let_next_start' ] ],
        `The blocks may be resident while the preceding kernel still writes x. What does not depend on it happens
first: the first blocks ask L2 for their rows. <code>wait_for_previous</code> then waits until x is complete, and
<code>let_next_start</code> grants the next kernel the same head start. With few rows that comes only after the wait.`
    ],
    [
        'A row in registers', [ [ 'forward_kernel', 'gd_raw<W, V> weights', 'gd_raw<B, V> branch' ] ],
        `The row is read once and kept, as it was read: a pack is 16 bytes. Eight numbers of bfloat16 take four registers
so, and would take eight as floats. CHUNKS, the number of packs, is a template parameter: arrays with a constant
size and constant indices are registers; with a variable index they would be in memory.`
    ],
    [
        'Why 16 bytes', [ [ 'forward_kernel', 'for (int k = 0; k < CHUNKS; k++) {', 'i, policy);' ], [ 'load_streaming', 'asm volatile', '"l"(from)' ] ],
        `16 bytes are the most that one load instruction of a thread moves on all GPUs that the library runs on. Loads of 4
bytes would be as well coalesced, but four times as many instructions, and with the same number of loads under way a
quarter of the bytes in flight. DRAM answers after about 0.8 microseconds; to be busy it needs some 30 KB in flight
for each multiprocessor. All loads are issued before the first value is used: nothing in this loop reads x[k].${widths()}In
the <a href="#the-ladder">ladder</a> this step takes 262144 rows of 4096 from 3196 to 2146 microseconds. It is also why a row
must consist of whole packs here; the others go to <code>plain.cu</code>.`
    ],
    [
        'The weight, early', [ [ 'forward_kernel', 'for (int k = 0; EARLY && k < CHUNKS; k++)', 'weights[k] = load_weight' ] ],
        `Short rows load the weight right behind x, so that its latency passes together with that of x. Longer rows have no
registers left for it, and load it when y is computed; by then it is in the cache, since all rows use the same.`
    ],
    [
        'The sum of squares, fused', [ [ 'forward_kernel', 'float sum = 0;', 'sum = add_squares' ], [ 'add_squares', 'sum = fmaf' ] ],
        `<code>fmaf(a, b, c)</code> is a b + c with one rounding at the end, in one instruction where a product and a sum
would be two. The squares of a thread's own numbers are added here, in order. With a residual, x + residual is rounded
to its dtype and stored first, and the norm is that of the stored numbers.`
    ],
    [
        'A butterfly', [ [ 'row_sum', 'v = gd_sum', 'return gd_sum' ], [ 'gd_combine', 'for (unsigned step' ] ],
        `Now each thread has a number, and all need the sum. In a shuffle a lane reads a register of another one: here of
the lane whose number differs in one bit. After five exchanges (here three, for eight lanes) every lane has the
sum of all 32, with no memory and no barrier. Both lanes of a pair add the same two numbers, and a + b is b + a to the
last bit, so that all lanes have the same bits, in every run. A block then adds the sums of its warps in the same way,
through shared memory with one barrier.
<div id="butterfly" class="butterfly" data-values="${JSON.stringify(values.map((v) => v * v))}">${player.controls()}<div class="picture">${
            kernel.picture(values.map((v) => v * v), 3)}</div><p>Eight lanes, each with the square of a number of the worked example's first
row. Point at a number: the lanes that it is the sum of light up.</p></div>`
    ],
    [
        'rsqrt, and a Newton step', [ [ 'rstd_of', 'const float v =', 'return fabsf' ] ],
        `<code>rsqrtf</code> is one instruction of the special function unit, accurate to about two units in the last place;
a division and a square root would be many. One step of Newton's method for 1/r<sup>2</sup> = v makes up for it:
r + r/2 (1 - v r r). The difference 1 - v r r is tiny, and all its digits come from the rounding of the product: only
<code>fmaf</code>, which does not round the product, sees them. Rounded first, it is a multiple of
2<sup>-24</sup>, of which a digit or two are left. For v = 0, infinite or NaN the step would spoil the result, and is left out.
<div id="newton"><p><label>v = mean + eps <input type="text" inputmode="decimal" value="2.71875"></label></p><p class="refused bad" role="alert"></p><div class="body wide">${
            kernel.newtonTable(2.71875)}</div><p>The first r is set two units off, as far as rsqrtf may be.</p></div>`
    ],
    [
        'What is saved', [ [ 'forward_kernel', 'if (a.rstd && member == 0' ] ],
        `One number a row, by one of its threads, is all that the backward needs besides x and the weight.`
    ],
    [
        'y, from the registers', [ [ 'forward_kernel', 'if (!EARLY) weights[k]', 'store(at.of<B>(a.y' ], [ 'norm_pack', 'x.forget();', 'y[j] *= w[j]' ] ],
        `x rstd w + bias, a pack at a time; x is not read again. <code>forget</code> makes the compiler unpack the
16-bit numbers a second time instead of keeping the floats of the first pass: an instruction is cheaper than a register.
The results go out in stores of 16 bytes.`
    ],
    [
        'A cap on registers', [ [ 'forward_kernel', '__maxnreg__' ], [ 'forward_cap', 'if (chunks == 8) return 64', 'return 56' ] ],
        `A multiprocessor has 65536 registers. At 64 a thread it runs 1024 threads, at 40 some 1600, and more threads are
more bytes in flight. So the compiler is told how many it may use, even where it then has to spill a few.`
    ]
];

// One formula, three times.
const versions = () => `<h2 id="three-times">The same formula, three times</h2>
<p>First as the derivation has it, one loop for each sum and each result, for any dtype and stride.</p>
${box(folder + 'plain_cpu.c', 'rms_norm_plain_forward')}
<details><summary>Then fast, for the CPU: four squares at a time, a tile at a time, the next row prefetched</summary>${
    [ 'row_squares', 'forward_row' ].map((name) => box(folder + 'rms_norm_cpu.c', name)).join('')}</details>
<p>And on a GPU, below. All three compute rstd from the sum of a row and then y; what differs is who adds which numbers, and
how the bytes arrive.</p>`;

exports.functionOf = functionOf;
exports.walk = (values) => {
    const list = thoughts(values).map(
        ([ title, places, text ], i) => `<li value="${i + 1}" data-lines="${places.flatMap(linesOf).join(' ')}"><h3>${title}</h3><div>${text}</div></li>`);
    return `${versions()}<h2 id="the-kernel">The kernel, line by line</h2>
<p>The whole of <code>forward_kernel</code> and the functions that it calls. Step through the thoughts, or click a line.</p>
<div class="panel" id="kernel-walk">${player.controls()}<ol class="thoughts">${list.join('\n')}</ol>
<div class="sources" tabindex="0" role="region" aria-label="the kernel's source">${shown.map(([ file, name ]) => box(file, name)).join('')}</div></div>`;
};
