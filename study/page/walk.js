// walk.js - RMSNorm's rows and blocks, one after the other: which program has which row, what each
// block of columns adds to its sum, and what the rows leave behind for dw.
(function(root) {
'use strict';
const {number} = root.worked || require('./worked.js');

const BLOCK = 4;
const sum = (list) => list.reduce((a, b) => a + b, 0);

// {rows: [{blocks: [{x, squares}], total, mean, rstd, y, products, m, dx, part}], dw}
function numbers({x, weight, dy, N, eps}) {
    const rows = [];
    for (let at = 0; at < x.length; at += N) {
        const row = x.slice(at, at + N), blocks = [];
        for (let k = 0; k < N; k += BLOCK)
            blocks.push({
                x : row.slice(k, k + BLOCK),
                squares : sum(row.slice(k, k + BLOCK).map((v) => v * v))
            });
        const total = sum(blocks.map((b) => b.squares));
        const rstd = 1 / Math.sqrt(total / N + eps);
        const g = dy.slice(at, at + N), xhat = row.map((v) => v * rstd);
        const h = g.map((v, k) => v * weight[k]);
        const products = [];
        for (let k = 0; k < N; k += BLOCK)
            products.push(sum(h.slice(k, k + BLOCK).map((v, i) => v * xhat[k + i])));
        const m = sum(products) / N;
        rows.push({
            blocks,
            total,
            mean : total / N,
            rstd,
            y : xhat.map((v, k) => v * weight[k]),
            products,
            m,
            dx : h.map((v, k) => rstd * (v - xhat[k] * m)),
            part : g.map((v, k) => v * xhat[k])
        });
    }
    const dw = rows[0].part.map((_, k) => sum(rows.map((row) => row.part[k])));
    return {rows, dw};
}

// Each cell has the step at which it is filled: a row's sum block by block, what follows from it,
// and its results block by block.
function render(request, eps) {
    const N = request.shapes.x[1];
    const {rows, dw} = numbers(
        {x : request.inputs.x, weight : request.inputs.weight, dy : request.cotangents[0], N, eps});
    const blocks = N / BLOCK, ofRow = 2 * blocks + 1, backward = rows.length * ofRow;
    // label: what is said before the number where the rows are turned, on a phone
    const cell = (step, v, kind = '', label = '') =>
        `<td data-at="${step}" data-value="${v}" class="${kind}"${label && ` data-label="${label}"`}>${number(v)}</td>`;
    const edge = (k) => (k % BLOCK ? '' : 'edge');
    // results(row, step of its first block): cells of the row's N results
    const results = (list, step) =>
        list.map((v, k) => cell(step + Math.floor(k / BLOCK), v, edge(k))).join('');
    const eachBlock = (html) => Array.from({length : blocks}, (_, b) => html(b)).join('');
    const table = (title, head, row) =>
        `<h3>${title}</h3><table class="numbers walk"><tr><th>program</th>${head}</tr>${
            rows.map((r, i) => `<tr><td>row ${i}</td>${row(r, i)}</tr>`).join('')}`;
    const names = (name) => eachBlock((b) => `<th colspan="${BLOCK}">block ${b}: ${name}</th>`);
    const html =
        table('Forward, first pass: the sum of squares, a block at a time',
            eachBlock((b) => `<th colspan="${BLOCK}">block ${b}: x</th><th>sum of squares</th>`) +
                '<th>sum</th><th>mean a</th><th>rstd</th>',
            (row, i) => row.blocks
                            .map(({x, squares}, b) =>
                                     x.map((v, k) => cell(i * ofRow + b, v, edge(k))).join('') +
                                     cell(i * ofRow + b, squares, 'sum', 'sum of squares'))
                            .join('') +
                        cell(i * ofRow + blocks, row.total, 'edge sum', 'sum') +
                        cell(i * ofRow + blocks, row.mean, '', 'mean a') + cell(i * ofRow + blocks, row.rstd, '', 'rstd')) +
        '</table>' +
        table('Forward, second pass: y', names('y'),
            (row, i) => results(row.y, i * ofRow + blocks + 1)) +
        '</table>' +
        table('Backward, first pass: the sum of h xhat',
            eachBlock((b) => `<th>block ${b}: h xhat</th>`) + `<th>sum / ${N} = m</th>`,
            (row, i) => row.products.map((v, b) => cell(backward + i * ofRow + b, v, 'sum', `block ${b}`)).join('') +
                        cell(backward + i * ofRow + blocks, row.m, 'edge sum', `sum / ${N} = m`)) +
        '</table>' +
        table('Backward, second pass: dx', names('dx'),
            (row, i) => results(row.dx, backward + i * ofRow + blocks + 1)) +
        '</table>' +
        table('and, in the same pass, each row\'s partial sums for dw', names('dy xhat'),
            (row, i) => results(row.part, backward + i * ofRow + blocks + 1)) +
        `<tr><td>dw, added in order</td>${
            dw.map((v, k) => cell(2 * backward, v, `${edge(k)} sum`)).join('')}</tr></table>`;
    return {html, steps : 2 * backward + 1};
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
    const body = place.querySelector('.body');
    const show = (at) => {
        for (const td of body.querySelectorAll('td[data-at]')) {
            const when = Number(td.dataset.at);
            td.classList.toggle('later', when >= at);
            td.classList.toggle('now', when === at - 1 && at < steps);
        }
    };
    let steps = Number(place.dataset.steps);
    const play = root.player.attach(place, {steps : () => steps, show});
    // It walks through the numbers of the example above, as the reader has them.
    document.addEventListener('numbers', ({detail : {it, dragged}}) => {
        if (dragged || it.request.op !== 'rms_norm') return;
        const fresh = render(it.request, it.own.eps);
        body.innerHTML = fresh.html;
        steps = fresh.steps;
        play.go(play.at());
    });
});
})(globalThis);
