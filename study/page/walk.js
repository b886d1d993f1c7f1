// walk.js - RMSNorm's rows and blocks, one after the other: which program has which row, what each
// block of columns adds to its sum, and what the rows leave behind for dw.
(function(root) {
'use strict';
const {number} = root.worked || require('./worked.js');

const BLOCK = 4;
const sum = (list) => list.reduce((a, b) => a + b, 0);

// {rows: [{blocks: [{x, squares}], total, mean, rstd}], h, m, parts: [[dy xhat]], dw}
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
        const products = [];
        for (let k = 0; k < N; k += BLOCK)
            products.push(
                sum(g.slice(k, k + BLOCK).map((v, i) => v * weight[k + i] * xhat[k + i])));
        rows.push({
            blocks,
            total,
            mean : total / N,
            rstd,
            products,
            m : sum(products) / N,
            part : g.map((v, k) => v * xhat[k])
        });
    }
    const dw = rows[0].part.map((_, k) => sum(rows.map((row) => row.part[k])));
    return {rows, dw};
}

// Each cell has the step at which it is filled.
function render(request, eps) {
    const N = request.shapes.x[1];
    const {rows, dw} = numbers(
        {x : request.inputs.x, weight : request.inputs.weight, dy : request.cotangents[0], N, eps});
    const blocks = N / BLOCK;
    let step = 0;
    const cell = (v, more = '') =>
        `<td data-at="${step}" data-value="${v}"${more}>${number(v)}</td>`;
    let html =
        '<h4>Forward: a program a row, a block at a time</h4><table class="numbers walk"><tr><th>program</th>' +
        Array
            .from({length : blocks},
                (_, b) => `<th colspan="${BLOCK}">block ${b}: x</th><th>sum of squares</th>`)
            .join('') +
        '<th>sum</th><th>mean a</th><th>rstd</th></tr>';
    rows.forEach((row, i) => {
        html += `<tr><td>row ${i}</td>`;
        row.blocks.forEach((block) => {
            html += block.x.map((v, k) => cell(v, k ? '' : ' class="edge"')).join('');
            html += cell(block.squares, ' class="sum"');
            step++;
        });
        html += cell(row.total, ' class="edge sum"') + cell(row.mean) + cell(row.rstd) + '</tr>';
        step++;
    });
    html +=
        '</table><h4>Backward: the sum of h xhat, block by block, and what each row leaves for dw</h4><table class="numbers walk"><tr><th>program</th>' +
        Array.from({length : blocks}, (_, b) => `<th>block ${b}: h xhat</th>`).join('') +
        `<th>sum / ${N} = m</th><th colspan="${N}">dy xhat, a row of partial sums</th></tr>`;
    rows.forEach((row, i) => {
        html += `<tr><td>row ${i}</td>`;
        row.products.forEach((v) => {
            html += cell(v, ' class="sum"');
            step++;
        });
        html += cell(row.m, ' class="edge sum"') +
                row.part.map((v, k) => cell(v, k % BLOCK ? '' : ' class="edge"')).join('') +
                '</tr>';
        step++;
    });
    html += `<tr><td>dw</td><td colspan="${blocks + 1}">added in order, column by column</td>${
        dw.map((v, k) => cell(v, k % BLOCK ? ' class="sum"' : ' class="edge sum"'))
            .join('')}</tr></table>`;
    return {html, steps : step + 1};
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
    const steps = Number(place.dataset.steps);
    let at = steps, timer = 0;
    const show = () => {
        for (const td of place.querySelectorAll('td[data-at]')) {
            const when = Number(td.dataset.at);
            td.classList.toggle('later', when > at);
            td.classList.toggle('now', when === at);
        }
    };
    const next = () => {
        at = at >= steps ? 0 : at + 1;
        show();
        if (at >= steps) {
            clearInterval(timer);
            timer = 0;
        }
    };
    place.querySelector('[data-act=step]').addEventListener('click', next);
    place.querySelector('[data-act=play]').addEventListener('click', () => {
        clearInterval(timer);
        at = -1;
        timer = setInterval(next, 500);
    });
});
})(globalThis);
