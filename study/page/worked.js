// worked.js - an op's worked example: numbers in, what the forward keeps, each step of the
// backward, gradients, the Jacobian. The build writes it into the page with numbers; in the page
// they change.
(function(root) {
'use strict';
const {example, steps, count} = root.examples || require('./examples.js');
const escape = (text) =>
    String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

// ---- A tensor as a table -------------------------------------------------------------------

function number(v) {
    if (typeof v !== 'number' || !isFinite(v)) return String(v).replace('-Infinity', '-inf');
    if (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-4)) return v.toExponential(2);
    return String(Math.round(v * 1e4) / 1e4);
}

// more: {edit: name of the input, blocks: columns between rules}
function table(t, more = {}) {
    const N = t.shape.length ? t.shape[t.shape.length - 1] || 1 : 1;
    let html = '<table class="numbers">';
    for (let at = 0; at < t.values.length; at += N) {
        html += '<tr>' +
                t.values.slice(at, at + N)
                    .map((v, k) => {
                        const edge =
                            more.blocks && k && k % more.blocks === 0 ? ' class="edge"' : '';
                        const what = more.edit ? `<input type="text" inputmode="decimal" value="${
                                                     v}" data-edit="${more.edit}" data-at="${
                                                     at + k}" aria-label="${more.edit} ${at + k}">`
                                               : number(v);
                        return `<td${edge} data-value="${v}">${what}</td>`;
                    })
                    .join('') +
                '</tr>';
    }
    return html + '</table>';
}

const shapeText = (shape) => (shape.length ? `[${shape.join(', ')}]` : 'a number');

// The symbol of the page's table that a tensor is: by its name in the code, by the formula, or by
// the letter that the formulas have for an input of that name. symbols: [[formula, name]].
const letters = {
    weight : 'w',
    bias : 'b',
    dweight : 'dw',
    dbias : 'db',
    logits : 'x',
    dlogits : 'dx',
    gate : 'z',
    up : 'u',
    targets : 't',
    lse : 'L'
};
function symbolOf(symbols, name) {
    const plain = (tex) => tex.replace(/\\mathrm\{(\w+)\}/g, '$1').replace(/^\\/, '');
    const found = symbols.find(([ , code ]) => code === name) ||
                  symbols.find(([ tex ]) => plain(tex) === name) ||
                  symbols.find(([ tex ]) => tex === letters[name]);
    return found ? found[1] : name;
}

function tensor(name, t, more = {}) {
    const symbol = symbolOf(more.symbols || [], name);
    return `<div class="tensor" data-tensor="${escape(more.id || name)}" data-symbol="${
        escape(symbol)}"><b>${more.label || `<code>${escape(name)}</code>`}</b> <small>${
        shapeText(t.shape)}</small>${table(t, more)}</div>`;
}

// ---- The Jacobian: a backward from each one-hot cotangent gives a row ------------------------

function jacobian(gradus, request, check, inputIndex) {
    const first = gradus.run(request), rows = [];
    const outputs = first.outputs[0].values.length;
    for (let o = 0; o < outputs; o++) {
        const cotangents = first.outputs.map(
            (t, k) => (t ? t.values.map((_, i) => (k === 0 && i === o ? 1 : 0)) : []));
        const g = gradus.run({...request, cotangents}).gradients[inputIndex];
        if (!g) return null;
        rows.push(g.values);
    }
    return rows;
}

function heatMap(rows, name) {
    const largest = Math.max(...rows.flat().map(Math.abs)) || 1;
    return `<div class="tensor" data-tensor="jacobian"><b>&part;y / &part;${
        escape(name)}</b> <small>[${rows.length}, ${rows[0].length}], row: element of y; largest ${
        number(largest)}</small><table class="numbers jacobian">${
        rows.map((row) =>
                     '<tr>' +
                     row.map((v) => `<td data-value="${v}" title="${
                                 number(v)}" style="background:rgba(var(${
                                 v < 0 ? '--minus'
                                       : '--plus'}),${(Math.abs(v) / largest).toFixed(3)})"></td>`)
                         .join('') +
                     '</tr>')
            .join('')}</table></div>`;
}

// ---- The example ---------------------------------------------------------------------------

// How far two tensors are apart, as a share of the largest number.
function apart(a, b) {
    const largest = Math.max(...b.values.map(Math.abs), 1e-300);
    return Math.max(...a.values.map((v, i) => Math.abs(v - b.values[i]))) / largest;
}

// format(tex): a formula as HTML; in the page, those that the build has set.
function render(gradus, it, format, symbols) {
    const {request, check, own} = it, result = gradus.run(request);
    if (result.error) return `<p class="bad words">${escape(result.error)}</p>`;
    const blocks = own.blocks, named = (name, t, more) => tensor(name, t, {symbols, ...more});
    const inputs = check.inputs.map((input, i) => ({...input, i})).filter((input) => !input.absent);
    const outputName = (k) => (own.outputs || [ 'y' ])[k] || `y${k}`;
    let html = '<h4>Inputs</h4>';
    for (const input of inputs)
        html += named(
            input.name, {shape : request.shapes[input.name], values : request.inputs[input.name]}, {
                edit : input.name,
                blocks : request.shapes[input.name].slice(-1)[0] === 8 ? blocks : 0
            });
    html += '<h4>Forward</h4>';
    (result.saves || []).forEach((t, k) => {
        if (t && own.saves && own.saves[k])
            html += named(own.saves[k], t,
                {id : 'saved ' + own.saves[k], label : `saved: <code>${own.saves[k]}</code>`});
    });
    result.outputs.forEach((t, k) => {
        if (t) html += named(outputName(k), t, {blocks});
    });
    html += '<h4>Backward</h4>';
    result.outputs.forEach((t, k) => {
        if (t)
            html += named('d' + outputName(k), {shape : t.shape, values : request.cotangents[k]},
                {edit : 'cotangent ' + k, blocks});
    });
    const list = steps(it, result);
    html +=
        list.map((s, n) => {
                const i =
                    s.gradient ? check.inputs.findIndex((input) => input.name === s.gradient) : -1;
                const theirs = i >= 0 ? result.gradients[i] : null;
                const off = theirs ? apart(s.value, theirs) : 0;
                const verdict =
                    theirs ? ` <span class="${off < 1e-9 ? 'good' : 'bad'}" data-agrees="${off}">${
                                 off < 1e-9 ? 'as in the library'
                                            : 'differs from the library'}, ${
                                 off ? `to ${off.toExponential(0)}` : 'to the last bit'}</span>`
                                     : '';
                return `<div class="step" data-step="${n}">${format(s.tex)}${
                    s.mark ? ` <a class="mark" href="#mark-${s.mark}" data-mark="${s.mark}">[${
                                 s.mark}]</a>`
                           : ''}${verdict}<br>${named(s.name, s.value, {
                    id : 'step ' + s.name,
                    label : ' ',
                    blocks : s.value.shape[1] === 8 ? blocks : 0
                })}</div>`;
            })
            .join('');
    inputs.forEach((input) => {
        const g = result.gradients[input.i];
        if (g)
            html += named('d' + input.name, g, {blocks : g.shape.slice(-1)[0] === 8 ? blocks : 0});
    });
    const wanted = inputs.find((input) => result.gradients[input.i]);
    if (wanted && result.outputs[0] &&
        count(result.outputs[0].shape) * count(request.shapes[wanted.name]) <= 1024) {
        const rows = jacobian(gradus, request, check, wanted.i);
        if (rows && rows.length) html += '<h4>Jacobian</h4>' + heatMap(rows, wanted.name);
    }
    return html;
}

const api = {
    render,
    number,
    table,
    tensor,
    jacobian,
    heatMap
};
root.worked = api;
if (typeof module !== 'undefined') {
    module.exports = api;
    return;
}

// ---- In the page ---------------------------------------------------------------------------

async function start(place) {
    const gradus = await root.Gradus.here();
    const op = place.dataset.op, body = place.querySelector('.body');
    const formulas = {};
    for (const element of place.querySelectorAll('template[data-tex]'))
        formulas[element.dataset.tex] = element.innerHTML;
    const format = (tex) => formulas[tex] || `<code>${escape(tex)}</code>`;
    const symbols = JSON.parse(place.dataset.symbols);
    let it = example(gradus, op), shown = Infinity;

    function show() {
        body.innerHTML = render(gradus, it, format, symbols);
        mask();
    }
    function mask() {
        for (const step of body.querySelectorAll('.step')) {
            const n = Number(step.dataset.step);
            step.classList.toggle('later', n > shown);
            step.classList.toggle('now', n === shown);
        }
    }
    body.addEventListener('change', (event) => {
        const {edit, at} = event.target.dataset, value = Number(event.target.value);
        if (!edit || !isFinite(value)) return;
        const cotangent = /^cotangent (\d)/.exec(edit);
        (cotangent ? it.request.cotangents[cotangent[1]] : it.request.inputs[edit])[at] = value;
        show();
    });
    const total = () => body.querySelectorAll('.step').length;
    const button = (name, act) =>
        place.querySelector(`[data-act=${name}]`)?.addEventListener('click', act);
    button('step', () => {
        shown = shown >= total() - 1 ? 0 : shown + 1;
        mask();
    });
    button('all', () => {
        shown = Infinity;
        mask();
    });
    button('again', () => {
        it = example(gradus, op);
        choose();
        show();
    });
    const variant = place.querySelector('select[data-act=variant]');
    function choose() {
        if (!variant) return;
        const [name, eps] = it.own.variants[variant.value];
        it = {...it, own : {...it.own, eps}, request : {...it.request, case : name}};
    }
    variant?.addEventListener('change', () => {
        choose();
        show();
    });
    show();
    place.dataset.ready = '1';
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.worked[data-op]')) {
        const closed = place.closest('details:not([open])');
        if (closed)
            closed.addEventListener('toggle', () => start(place), {once : true});
        else
            start(place);
    }
});
})(globalThis);
