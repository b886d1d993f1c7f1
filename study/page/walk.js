// walk.js - RMSNorm's rows and blocks: three programs with a row each, what is in their registers
// as blocks of four slide by, which line runs, and what the rows leave behind for dw.
(function(root) {
'use strict';
const {steps : stepsOf} = root.examples || require('./examples.js');
const number = (v) => (Number.isFinite(v) ? String(Math.round(v * 1000) / 1000 + 0).replace('-',
    '−') : String(v));
const escape = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

const BLOCK = 4;
const sum = (list) => list.reduce((a, b) => a + b, 0);

// {rows: [{blocks: [{x, squares}], total, mean, rstd, y, products, m, dx, part}], dw}: the
// library's numbers, and what has been summed after each block.
function numbers({it, result}) {
    const {x} = it.request.inputs, N = it.request.shapes.x[1], M = x.length / N;
    const s = Object.fromEntries(stepsOf(it, result).map(({name, value}) => [name, value.values]));
    const rows = Array.from({length : M}, (_, i) => {
        const row = (values) => values.slice(i * N, i * N + N),
            at = Array.from({length : N / BLOCK}, (_, b) => b * BLOCK);
        const own = row(x), terms = row(s.h).map((h, k) => h * row(s.xhat)[k]);
        const blocks = at.map((k) => ({x : own.slice(k, k + BLOCK),
            squares : sum(own.slice(k, k + BLOCK).map((v) => v * v))}));
        return {
            blocks,
            total : sum(blocks.map((b) => b.squares)),
            mean : s.a[i],
            rstd : s.rstd[i],
            y : row(result.outputs[0].values),
            products : at.map((k) => sum(terms.slice(k, k + BLOCK))),
            m : s.m[i],
            dx : row(s.dx),
            part : row(s.parts)
        };
    });
    return {rows, dw : s.dw};
}

// The program of each row, and what happens: one step of all programs at once. line: of the code;
// block: the one that is in the window; said: of row 0.
const code = [
    'float sum = 0;', 'for (int b = 0; b < N; b += 4)',
    '    for (int k = b; k < b + 4; k++) sum += x[k] * x[k];',
    'const float rstd = 1 / sqrtf(sum / N + eps);',
    'for (int b = 0; b < N; b += 4)',
    '    for (int k = b; k < b + 4; k++) y[k] = x[k] * rstd * g[k];', '',
    'float m = 0;                      // the backward', 'for (int b = 0; b < N; b += 4)',
    '    for (int k = b; k < b + 4; k++) m += dy[k] * g[k] * x[k] * rstd;', 'm /= N;',
    'for (int b = 0; b < N; b += 4)',
    '    for (int k = b; k < b + 4; k++) {',
    '        dx[k] = rstd * (dy[k] * g[k] - x[k] * rstd * m);',
    '        part[row][k] = dy[k] * x[k] * rstd;', '    }', '',
    'dw[k] = part[0][k] + part[1][k] + part[2][k];    // after all of them, in order'
];
function story(rows, blocks) {
    const [{blocks : parts, total, mean, rstd, products, m}] = rows, N = blocks * BLOCK, list = [];
    const each = (lines, said) => Array.from({length : blocks},
        (_, block) => list.push({lines, block, said : said(block)}));
    let sums = 0, dots = 0;
    each([ 2 ], (b) => `Block ${b} is in the window: its squares add up to ${
        number(parts[b].squares)}, and row 0 has ${
        number(sums += parts[b].squares)} in its register. ` +
            'A row is longer than what a program holds at once.');
    list.push({lines : [ 3 ], said : `The sum is ${number(total)}: the mean of the squares is ${
        number(mean)}, and rstd = ${
        number(rstd)}. One number a row, which is saved for the backward.`});
    each([ 5 ], (b) => `The second pass reads block ${b} again: y = x rstd g.`);
    each([ 9 ], (b) => `Backward. Block ${b} of dy and x: its products h x̂ add up to ${
        number(products[b])}; in the register of row 0 is ${number(dots += products[b])}.`);
    list.push({lines : [ 10 ], said : `m = ${number(m * N)} / ${N} = ${
        number(m)}: how much of h points along x̂.`});
    each([ 13, 14 ], (b) => `Block ${
        b}: dx is h without its part along x̂, and dy x̂ goes to the row's own line of partial sums.`);
    list.push({lines : [ 17 ],
        said : 'All rows use the same g, so their parts are added, in order: the same bits in ' +
            'every run.'});
    return list;
}

// Three programs: rows with the window over them, registers, results; each cell has the step by
// which it is there.
function render({it, result}) {
    const {request} = it, N = request.shapes.x[1], blocks = N / BLOCK, x = request.inputs.x,
        dy = request.cotangents[0];
    const {rows, dw} = numbers({it, result}), list = story(rows, blocks);
    const cell = (at, v, kind = '', more = '') => `<td data-at="${at}" data-value="${v}" class="${
        kind}"${more}>${number(v)}</td>`;
    const second = blocks + 1, back = second + blocks, third = back + blocks + 1,
        end = third + blocks;
    const line = (name, values, first) => `<tr><th scope="row">${name}</th>${
        values.map((v, k) => cell(first < 0 ? -1 : first + Math.floor(k / BLOCK), v,
            k % BLOCK ? '' : 'edge', ` data-block="${Math.floor(k / BLOCK)}"`)).join('')}</tr>`;
    // A register's values one after the other, each until the next.
    const register = (name, values) => `<span class="register">${name} ${
        values.map(([ at, v ], i) => `<b data-at="${at}"${
            values[i + 1] ? ` data-until="${values[i + 1][0]}"` : ''}>${number(v)}</b>`)
            .join('')}</span>`;
    const program = (r, i) => {
        const running = (parts) => parts.map((_, b) => sum(parts.slice(0, b + 1)));
        return `<div class="program"><h3>program ${i}: row ${i}</h3><table class="numbers">${
            line('x', x.slice(i * N, i * N + N), -1)}${line('y', r.y, second)}${
            line('dy', dy.slice(i * N, i * N + N), -1)}${line('dx', r.dx, third)}${
                line('part', r.part, third)}</table>
<p>${register('sum', running(r.blocks.map((b) => b.squares)).map((v, b) => [b, v]))} ${
    register('rstd', [ [ blocks, r.rstd ] ])} ${
            register('m', [...running(r.products).map((v, b) => [back + b, v]),
                [ third - 1, r.m ] ])}</p></div>`;
    };
    const html = `<div class="story"><pre class="code">${
        code.map((text, i) => `<span class="line" data-line="${i}">${escape(text)}\n</span>`)
        .join('')}</pre><div class="programs">${
        rows.map(program).join('')}<div class="program"><h3>dw</h3><table class="numbers"><tr><th scope="row">dw</th>${dw.map((v) => cell(end, v)).join('')}</tr></table></div></div></div>`;
    return {html, steps : list};
}

const api = {
    numbers,
    render
};
root.walk = api;
if (typeof module !== 'undefined') {
    module.exports = api;
    return;
}

document.addEventListener('DOMContentLoaded', () => {
    const place = document.getElementById('walk');
    if (!place) return;
    const body = place.querySelector('.body'), said = place.querySelector('.said'),
        speed = place.querySelector('select');
    let steps = JSON.parse(place.dataset.steps);
    const show = (at) => {
        const step = steps[at - 1];
        for (const element of body.querySelectorAll('[data-at]')) {
            const when = Number(element.dataset.at),
                until = Number(element.dataset.until || Infinity);
            element.classList.toggle('later', when >= at || at > until);
            element.classList.toggle('now', Boolean(step) && at < steps.length &&
                (when === at - 1 || when < 0 && Number(element.dataset.block) === step.block));
        }
        for (const line of body.querySelectorAll('[data-line]'))
            line.classList.toggle('marked', Boolean(step) && at < steps.length &&
                step.lines.includes(Number(line.dataset.line)));
        said.textContent = step ? step.said
            : 'Three programs, a row each. Nothing has been read yet.';
    };
    const play = root.player.attach(place,
        {steps : () => steps.length, show, pace : () => 1600 / Number(speed.value)});
    // It walks through the numbers of the example below, as the reader has them.
    document.addEventListener('numbers', ({detail : {it, result, dragged}}) => {
        if (dragged || it.name !== 'rms_norm') return;
        const fresh = render({it, result});
        body.innerHTML = fresh.html;
        steps = fresh.steps;
        play.go(play.at());
    });
});
})(globalThis);
