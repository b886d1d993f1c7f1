// break.js - runs gradcheck on the mistake that was chosen, and shows both gradients.
'use strict';
(function() {
const {number} = worked;
const escape = (text) => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;');

// One heat map, of rows as long as the last axis; NaN is crossed out.
function heat(title, shape, values, largest) {
    const N = shape.length ? shape[shape.length - 1] || 1 : 1;
    let rows = '';
    for (let at = 0; at < values.length; at += N) {
        rows += '<tr>' +
                values.slice(at, at + N)
                    .map((v) => (Number.isFinite(v)
                                     ? `<td data-value="${v}" title="${
                                           number(v)}" style="background:rgba(var(${
                                           v < 0 ? '--minus' : '--plus'}),${
                                           Math.min(1, Math.abs(v) / largest)
                                               .toFixed(3)})"><span class="unseen">${
                                               number(v)}</span></td>`
                                     : `<td class="bad" title="${v}">&times;</td>`))
                    .join('') +
                '</tr>';
    }
    return `<div class="tensor"><b>${
        title}</b><table class="numbers jacobian grid" style="--columns:${N}">${
        rows}</table></div>`;
}

function show(found) {
    const {report, grids} = found;
    const good = report.verdict === 'PASS';
    let html = `<p class="${good ? 'good' : 'bad'}" id="verdict"><b>${report.verdict}</b> ${
        escape(report.op)}, case ${escape(report.case)}</p>`;
    report.inputs.forEach((input, k) => {
        const grid = grids[k];
        const words = [ input.finding, input.behaviour ].filter(Boolean).join('; ');
        html += `<h2 class="small">d${escape(input.name)} <span class="${
            input.verdict === 'PASS' ? 'good' : 'bad'}">${input.verdict}</span></h2>`;
        if (words) html += `<p class="finding"><b>${escape(words)}</b></p>`;
        if (input.wrong)
            html += `<p>${input.wrong} of ${input.elements} elements are wrong; the worst is ${
                number(input.analytic)} instead of ${number(input.numeric)}, a ratio of ${
                number(input.analytic / input.numeric)}.</p>`;
        if (grid && grid.analytic.length) {
            const largest = Math.max(...grid.numeric.filter(Number.isFinite).map(Math.abs), 1e-300);
            const ratio = grid.analytic
                .map((v, i) => (v === grid.numeric[i] ? 1 : v / grid.numeric[i]));
            html += heat('backward', grid.shape, grid.analytic, largest) +
                    heat('differences', grid.shape, grid.numeric, largest) +
                    heat('ratio of the two, minus 1', grid.shape,
                        ratio.map((v) => v - 1), 1);
        }
        if (input.sweep_step.length)
            html += `<p>Ladder of steps: ${
                input.sweep_step
                    .map((h, i) => `h = ${h.toExponential(0)}: ${number(input.sweep_numeric[i])}`)
                    .join(', ')}. ${
                input.sweep_stable ? 'The differences agree among themselves: suspect the backward.'
                                   : 'They do not settle.'}</p>`;
    });
    return html + `<details><summary>as gradus-gradcheck prints it</summary><pre class="code">${
                      escape(found.words)}</pre></details>`;
}

document.addEventListener('DOMContentLoaded', () => {
    const select = document.getElementById('bug'), result = document.getElementById('result');
    const controls = document.querySelector('#break .controls');
    let asked = '';
    const run = async () => {
        const of = asked = select.value, found = await workers.ask({bug : Number(of)}, controls);
        if (asked !== of) return; // another has begun
        result.innerHTML = found.error ? `<p class="bad">${escape(found.error)}</p>` : show(found);
        result.dataset.of = of;
    };
    select.addEventListener('change', run);
    document.getElementById('run').addEventListener('click', run);
    const group =
        [...select.querySelectorAll('optgroup') ].find((g) => '#' + g.label === location.hash);
    const wrong = [...select.options ].find(
        (o) => group ? o.parentElement === group : /mean term is missing/.test(o.text));
    if (wrong) select.value = wrong.value;
    run();
});
})();
