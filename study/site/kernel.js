// kernel.js - RMSNorm's forward on its page: three versions, a walk by lines, and a Newton step.
'use strict';
const {escape} = require('./tools.js');
const code = require('./code.js');
const markdown = require('./markdown.js');
const sources = require('./sources.js');
const kernel = require('../page/kernel.js');
const player = require('../page/player.js');

const folder = 'kernels/rms_norm/', common = 'kernels/common/';
const shown = [ // in the order of the page
    [ folder + 'forward.cu', 'forward_kernel' ], [ folder + 'kernels.cuh', 'load_pack' ],
    [ common + 'pack.cuh', 'load_streaming' ], [ folder + 'kernels.cuh', 'add_squares' ],
    [ folder + 'forward.cu', 'row_sum' ], [ common + 'team.cuh', 'gd_combine' ],
    [ folder + 'kernels.cuh', 'rstd_of' ], [ folder + 'kernels.cuh', 'norm_pack' ],
    [ folder + 'forward.cu', 'forward_cap' ]
];

// The lines of a function, with what stands above it: {first, lines}.
function functionOf(file, name) {
    const all = sources.read(file).split('\n');
    const at = all.findIndex((text) => new RegExp(`\\b${name}\\)?\\(`).test(text) &&
        /^\S|^    (?:__device__|forward_kernel|__maxnreg__)/.test(text));
    if (at < 0) throw new Error(`${file} has no function ${name}`);
    let first = at, last = at;
    const end = /^    __device__/.test(all[at]) ? '    }' : '}'; // of a member
    while (first > 0 && all[first - 1].trim() && !/^ *[}#]|^namespace/.test(all[first - 1]))
        first--;
    while (all[last] !== end) last++;
    return {first : first + 1, lines : all.slice(first, last + 1)};
}

const idOf = (file, line) => `k-${file.split('/').pop().replace(/\W/g, '-')}-${line}`;

function box(file, name) {
    const {first, lines} = functionOf(file, name), page = sources.page(file);
    const html = code.highlight(lines.join('\n')).split('\n').map(
        (text, i) => `<span class="line" id="${idOf(file, first + i)}"><a class="number" href="${
            page}#L${first + i}" tabindex="-1">${
            first + i}</a>${text}\n</span>`);
    return `<figure class="excerpt"><figcaption>${code.machineOf(file)}: <a href="${page}#L${
        first}">${escape(file)}</a>, <code>${
        name}</code></figcaption><pre class="code">${html.join('')}</pre></figure>`;
}

// The ids of the lines from the one that contains `from` to the one that contains `to`, in a
// function.
function linesOf([ name, from, to = from ]) {
    const [file] = shown.find(([, each ]) => each === name),
        {first, lines} = functionOf(file, name);
    const begin = lines.findIndex((text) => text.includes(from));
    const end = lines.findIndex((text, i) => i >= begin && text.includes(to));
    if (begin < 0 || end < 0)
        throw new Error(`${name} in ${file} has no line with ${begin < 0 ? from : to}`);
    return lines.slice(begin, end + 1).map((_, i) => idOf(file, first + begin + i));
}

const f32 = Math.fround, bits = new DataView(new ArrayBuffer(4));
function ulpsAway(v, n) { // the float that is n floats away
    bits.setFloat32(0, v);
    bits.setInt32(0, bits.getInt32(0) + n);
    return bits.getFloat32(0);
}

// rstd_of of kernels.cuh for v = mean + eps, from an approximation that is two units off, as
// rsqrtf's may be; once with fused multiply-adds and once without. A product of two floats is exact
// in a double.
function newton(v) {
    v = f32(v);
    const exact = 1 / Math.sqrt(v), r = ulpsAway(f32(exact), 2), vr = f32(-v * r);
    const unit = ulpsAway(Math.abs(r), 1) - Math.abs(r);
    const fused = f32(vr * r + 1), apart = f32(f32(vr * r) + 1);
    const results = {fused : f32(f32(0.5 * r) * fused + r),
        apart : f32(f32(f32(0.5 * r) * apart) + r)};
    return {
        exact,
        first : {value : r, off : (r - exact) / unit},
        fused : {error : fused, value : results.fused, off : (results.fused - exact) / unit},
        apart : {error : apart, value : results.apart, off : (results.apart - exact) / unit}
    };
}

function newtonTable(v) {
    const {exact, first, fused, apart} = newton(v), long = (x) => x.toPrecision(10),
        off = (x) => `${x.toFixed(2)} units`;
    const row = (name, error, it) => `<tr><td>${name}</td><td>${error}</td><td data-value="${
        it.value}">${
        long(it.value)}</td><td data-off="${it.off}">${off(it.off)}</td></tr>`;
    return `<table class="numbers left"><thead><tr><th>rstd</th><th>error = 1 - v r r</th>
<th>value</th><th>off by</th></tr></thead><tbody>${
        row('r, the approximation', '', first)}${
            row('after the step, fused', fused.error.toExponential(4), fused)}${
        row('after the step, each product rounded', apart.error.toExponential(4),
            apart)}<tr><td>1 / sqrt(v)</td><td></td><td>${
        long(exact)}</td><td></td></tr></tbody></table>`;
}

const widths = () => `<div class="wide"><table class="numbers left"><thead><tr><th>a load of</th><th>a warp asks for</th><th>loads of a warp for a row of 4096 floats</th><th>in flight on a multiprocessor: 1024 threads, 4 loads each</th></tr></thead><tbody>${
    [ 4, 8, 16 ].map((bytes) => `<tr><td>${bytes} bytes</td><td>${32 * bytes} bytes, ${
        bytes} sectors</td><td>${4096 * 4 / (32 * bytes)}</td><td>${
        4 * bytes} KB</td></tr>`).join('')
}</tbody></table></div>`;

// The thoughts of study/pages/kernel.md: [[title, [[function, from, to]], html]]. values: of a row,
// whose squares the butterfly adds.
function thoughts(values) {
    const squares = values.map((v) => v * v), file = 'study/pages/kernel.md';
    const blocks = {
        lines : () => '', widths,
        butterfly : () => `<div id="butterfly" class="butterfly" data-values="${
            JSON.stringify(squares)}">${player.controls()}<div class="picture">${
            kernel.picture(squares, 3)}</div><p>Eight lanes, each with the square of a number of the worked example's first
row. Point at a number: the lanes that it is the sum of light up.</p></div>`,
        newton : () => `<div id="newton"><div class="wide">For v = 2.71875:${
            newtonTable(2.71875)}</div><p>The first r is set two units off, as far as rsqrtf may be.</p></div>`
    };
    return sources.read(file).split(/^## /m).slice(1).map((part) => {
        const [title] = part.split('\n'), [, places] = /^```lines\n([^]*?)\n```$/m.exec(part);
        return [title, [...places.matchAll(/^(\w+): (.*?)(?: \.\. (.*))?$/gm) ].map((at) => at.slice(1)),
            markdown.render(file, part.slice(title.length), {known : new Set(), blocks}).html ];
    });
}

// One formula, three times.
const versions = () => `<h2 id="three-times">The same formula, three times</h2>
<p>First as the derivation has it, one loop for each sum and each result, for any dtype and stride.</p>
${box(folder + 'plain_cpu.c', 'rms_norm_plain_forward')}
<details><summary>Then fast, for the CPU: four squares at a time, a tile at a time, the next row prefetched</summary>${
    [ 'row_squares', 'forward_row' ].map((name) => box(folder + 'rms_norm_cpu.c', name))
        .join('')}</details>
<p>And on a GPU, below. All three compute rstd from the sum of a row and then y; what differs is who adds which numbers, and
how the bytes arrive.</p>`;

exports.functionOf = functionOf;
exports.walk = (values) => {
    const list = thoughts(values).map(
        ([ title, places, text ], i) => `<li value="${i + 1}" data-lines="${
            places.flatMap(linesOf).join(' ')}"><h3>${title}</h3><div>${text}</div></li>`);
    return `${versions()}<h2 id="the-kernel">The kernel, line by line</h2>
<p>The whole of <code>forward_kernel</code> and the functions that it calls. Step through the thoughts, or click a line.</p>
<div class="panel" id="kernel-walk">${player.controls()}<ol class="thoughts">${list.join('\n')}</ol>
<div class="sources" tabindex="0" role="region" aria-label="the kernel's source">${
    shown.map(([ file, name ]) => box(file, name)).join('')}</div></div>`;
};
