// worked.js - an op's worked example: numbers in, what the forward keeps, each step of the
// backward, gradients, the Jacobian. The build writes it into the page; there its numbers change.
(function(root) {
'use strict';
const {example, solve, steps, count} = root.examples || require('./examples.js');
const escape = (text) =>
    String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

// ---- A tensor as a table -------------------------------------------------------------------

function number(v) {
    if (typeof v !== 'number' || !isFinite(v)) return String(v).replace('-Infinity', '-inf');
    if (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-4)) return v.toExponential(2);
    return String(Math.round(v * 1e4) / 1e4);
}

// The place of element i: [row, column], as a reader of the page writes it.
function placeOf(shape, i) {
    const place = [];
    for (let d = shape.length - 1; d >= 0; d--) {
        place.unshift(i % shape[d]);
        i = Math.floor(i / shape[d]);
    }
    return place.length ? `[${place.join(', ')}]` : '';
}

// more: {edit: name of the input, blocks: columns between rules, pick: name of the gradient whose
// elements can be pointed at}. The page's script puts boxes into what can be edited: without it the
// numbers are there, and nothing to type into that would not answer.
function table(t, more = {}) {
    const N = t.shape.length ? t.shape[t.shape.length - 1] || 1 : 1;
    const cell = (v, i) => {
        const edge = more.blocks && i % N && i % N % more.blocks === 0 ? ' class="edge"' : '';
        return `<td${edge} data-value="${v}">${more.edit ? v : number(v)}</td>`;
    };
    const own = more.edit ? ` data-edits="${escape(more.edit)}" data-name="${
        escape(more.name || more.edit)}" data-shape="${t.shape}"`
        : more.pick ? ` data-picks="${escape(more.pick)}"` : '';
    // On a phone a row of more than six goes on in a second line.
    let html = `<table class="numbers${N > 6 ? ' long' : ''}"${own}>`;
    for (let at = 0; at < t.values.length; at += N)
        html += `<tr>${t.values.slice(at, at + N).map((v, k) => cell(v, at + k)).join('')}</tr>`;
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
        shapeText(t.shape)}</small>${table(t, {name, ...more})}</div>`;
}

// ---- The Jacobians: a backward from each one-hot cotangent gives a row of each ---------------

// For each input with a gradient its rows, one for each element of the outputs, in their order;
// null for the others.
function jacobians(gradus, request, result) {
    const rows = result.gradients.map((g) => (g ? [] : null));
    result.outputs.forEach((t, k) => (t ? t.values : []).forEach((_, o) => {
        const cotangents = result.outputs.map(
            (other, l) => (other ? other.values.map((_, i) => (l === k && i === o ? 1 : 0)) : []));
        gradus.run({...request, cotangents})
            .gradients.forEach((g, i) => rows[i] && rows[i].push(g.values));
    }));
    return rows;
}

// dy: what each row is multiplied by, which stands before it.
function heatMap(rows, name, output, dy) {
    const largest = Math.max(...rows.flat().map(Math.abs)) || 1;
    return `<div class="tensor" data-tensor="jacobian" data-of="${escape(name)}"><b>&part;${
        escape(output)} / &part;${
        escape(name)}</b> <small>[${rows.length}, ${rows[0].length}], row: element of ${
        escape(output)}, after its gradient; largest ${
            number(largest)}</small><table class="numbers jacobian" style="--columns:${
            rows[0].length}">${
        rows.map((row, o) => `<tr><th scope="row">${number(dy[o])}</th>${
            row.map((v) => `<td data-value="${v}"${
                v ? `${v < 0 ? ' class="minus"' : ''} style="--part:${
                    (Math.abs(v) / largest).toFixed(2)}"` : ''}><i>${number(v)}</i></td>`)
                .join('')}</tr>`).join('')}</table></div>`;
}

// ---- One element's gradient: dx[j] is the sum over all elements o of the outputs of dy[o] J[o, j] --

// {terms: [{output, o, at: row of the Jacobian, dy, slope}], total}: what reaches element j.
function contributions(rows, j, cotangents) {
    const terms = [];
    let at = 0;
    cotangents.forEach((values, output) => values.forEach((dy, o) => {
        const slope = rows[at][j];
        if (slope !== 0) terms.push({output, o, at, dy, slope});
        at++;
    }));
    return {terms, total : terms.reduce((sum, term) => sum + term.dy * term.slope, 0)};
}

// ---- The example ---------------------------------------------------------------------------

// How far two tensors are apart, as a share of the largest number.
function apart(a, b) {
    const largest = Math.max(...b.values.map(Math.abs), 1e-300);
    return Math.max(...a.values.map((v, i) => Math.abs(v - b.values[i]))) / largest;
}

// The Jacobian by input i, of all outputs.
function jacobian({own, check, request}, result, i) {
    const names = result.outputs.map((t, k) => t && own.outputs[k]).filter(Boolean);
    return heatMap(result.jacobians[i], check.inputs[i].name, names.length > 1 ? `(
        ${names.join(', ')})` : names[0], request.cotangents.flat());
}

// What the library says of an example, and the Jacobians where they are small enough to be shown.
function compute(gradus, it) {
    const result = solve(gradus, it), {request, check} = it;
    if (result.error) return result;
    const elements = result.outputs.reduce((n, t) => n + (t ? t.values.length : 0), 0);
    const wanted =
        check.inputs.filter((input, i) => result.gradients[i])
            .map((input) => request.shapes[input.name]);
    if (wanted.length && elements * Math.max(...wanted.map(count)) <= 1024)
        result.jacobians = jacobians(gradus, request, result);
    return result;
}

// How far the plain twin's gradient is from that of the library's fast kernels, in words.
function verdictOf(value, theirs) {
    const off = apart(value, theirs);
    return `<span class="${off < 1e-9 ? 'good' : 'bad'}" data-agrees="${off}">${
        off < 1e-9 ? 'as by the fast kernels' : 'differs from the fast kernels'}, ${
        off ? `to ${off.toExponential(0)}` : 'to the last bit'}</span>`;
}

// What stands in an example, in order: {heading}, or {name, t, more} for a tensor, of a step with
// {step, n, theirs: what it must agree with}.
function parts({request, check, own, ...it}, result) {
    const {blocks} = own, blocksOf = (shape) => (shape.slice(-1)[0] === 8 ? blocks : 0);
    const inputs = check.inputs.map((input, i) => ({...input, i})).filter((input) => !input.absent);
    const list = [ {heading : 'Inputs'} ],
        add = (name, t, more, step = {}) => list.push({name, t, more, ...step});
    for (const {name} of inputs) {
        const shape = request.shapes[name];
        add(name, {shape, values : request.inputs[name]}, {edit : name, blocks : blocksOf(shape)});
    }
    list.push({heading : 'Forward'});
    (result.saves || []).forEach((t, k) => {
        if (t && own.saves && own.saves[k])
            add(own.saves[k], t, {id : 'saved ' + own.saves[k], label : `saved: <code>${
                own.saves[k]}</code>`});
    });
    result.outputs.forEach((t, k) => t && add(own.outputs[k], t, {blocks}));
    list.push({heading : 'Backward'});
    result.outputs.forEach((t, k) => t && add('d' + own.outputs[k],
        {shape : t.shape, values : request.cotangents[k]}, {edit : 'cotangent ' + k, blocks}));
    steps({request, check, own, ...it}, result).forEach((step, n) => {
        const i = step.gradient ? check.inputs.findIndex((input) => input.name === step.gradient)
            : -1;
        add(step.name, step.value, {id : 'step ' + step.name, label : ' ',
            blocks : step.value.shape[1] === 8 ? blocks : 0},
            {step, n, theirs : i >= 0 && result.derived.twin && result.gradients[i]});
    });
    for (const {name, i} of inputs) {
        const g = result.gradients[i];
        if (g) add('d' + name, g, {blocks : blocksOf(g.shape), pick : result.jacobians ? name
            : undefined});
    }
    return list;
}

const invitation = 'Point at an element of a gradient (or go there with Tab and the arrow keys): ' +
    'what it is the sum of lights up.';

// The input whose Jacobian is shown at first; -1: of none.
const firstOf = ({check}, result) =>
    check.inputs.findIndex((input, i) => !input.absent && result.gradients[i] && result.jacobians);

// The build's: format(tex) is a formula as HTML, line(mark) the lines of code at a mark; result: of
// compute().
function render(it, result, format, symbols, line) {
    if (result.error) return `<p class="bad words">${escape(result.error)}</p>`;
    const one = ({heading, name, t, more, step, n, theirs}) => {
        if (heading) return `<h4>${heading}</h4>`;
        const html = tensor(name, t, {symbols, ...more}), mark = step?.mark;
        if (!step) return html;
        return `<div class="step" data-step="${n}"${mark ? ` data-line="${mark}"` : ''}>${
            format(step.tex)}${
            mark ? ` <a class="mark" href="${it.home}#mark-${mark.replace(/ /g, '-')}" data-mark="${
                mark}">[${mark}]</a>` : ''}${
            theirs ? ` ${verdictOf(t, theirs)}` : ''}${mark ? line(mark) : '<br>'}${html}</div>`;
    };
    const first = firstOf(it, result);
    return parts(it, result).map(one).join('') +
        (first < 0 ? '' : `<p class="sum" aria-live="polite">${invitation}</p>${
        result.jacobians[first].length ? `<h4>Jacobian</h4>${jacobian(it, result, first)}` : ''}`);
}

const api = {
    compute,
    contributions,
    render,
    number,
    placeOf,
    table,
    tensor,
    heatMap
};
root.worked = api;
if (typeof module !== 'undefined') {
    module.exports = api;
    return;
}

// ---- In the page ---------------------------------------------------------------------------

// What can be changed gets boxes, and what can be pointed at can be reached.
function enliven(place) {
    for (const table of place.querySelectorAll('table[data-edits], table[data-picks]')) {
        const {edits, name, shape} = table.dataset,
            axes = (shape || '').split(',').filter(Boolean).map(Number);
        table.querySelectorAll('td').forEach((cell, i) => {
            if (!edits) {
                cell.tabIndex = i ? -1 : 0;
                cell.dataset.pick = i;
                return;
            }
            const box = document.createElement('input');
            Object.assign(box, {type : 'text', inputMode : 'decimal', autocomplete : 'off',
                value : cell.dataset.value});
            box.setAttribute('aria-label', `${name}${placeOf(axes, i)}`);
            Object.assign(box.dataset, {edit : edits, at : i});
            cell.replaceChildren(box);
        });
    }
}

const finite = (t) => !t || t.values.every((v) => typeof v === 'number');

// Puts new numbers into the cells that are there, so that Tab goes on from box to box, and no table
// and no formula is made again. before: the result whose Jacobian is shown.
function renew(body, it, result, before) {
    for (const lit of body.querySelectorAll('.part')) lit.classList.remove('part');
    const places = body.querySelectorAll('.tensor:not([data-tensor="jacobian"])'),
        verdicts = body.querySelectorAll('[data-agrees]');
    const all = parts(it, result).filter(({t}) => t);
    all.forEach(({t}, k) => places[k].querySelectorAll('td[data-value]').forEach((cell, i) => {
        const v = t.values[i], box = cell.firstElementChild;
        if (box && box.value !== String(v)) box.value = v;
        if (cell.dataset.value === String(v)) return;
        cell.dataset.value = v;
        if (!box) cell.textContent = number(v);
    }));
    all.filter(({theirs}) => theirs).forEach(({t, theirs}, k) => {
        const html = verdictOf(t, theirs);
        if (verdicts[k].outerHTML !== html) verdicts[k].outerHTML = html;
    });
    const first = firstOf(it, result), map = body.querySelector('[data-tensor="jacobian"]');
    if (first >= 0) body.querySelector('.sum').textContent = invitation;
    if (!map) return;
    if (map.dataset.of !== it.check.inputs[first].name || before.jacobians !== result.jacobians)
        map.outerHTML = jacobian(it, result, first);
    else
        map.querySelectorAll('th')
            .forEach((th, o) => { th.textContent = number(it.request.cotangents.flat()[o]); });
}

// The sentence under a tensor whose number was refused.
function refuse(box, sentence) {
    const place = box.closest('.tensor');
    let line = place.querySelector('.refused');
    if (line) line.remove();
    box.toggleAttribute('aria-invalid', Boolean(sentence));
    if (!sentence) return;
    line = document.createElement('p');
    line.className = 'refused bad';
    line.setAttribute('role', 'alert');
    line.textContent = sentence;
    place.append(line);
}

// Which elements of dy and of the Jacobian make one element of a gradient, and their sum in words.
function point(body, it, result, cell) {
    for (const lit of body.querySelectorAll('.part')) lit.classList.remove('part');
    const name = cell.closest('table').dataset.picks, j = Number(cell.dataset.pick);
    const index = it.check.inputs.findIndex((input) => input.name === name);
    const {terms, total} = contributions(result.jacobians[index], j, it.request.cotangents);
    cell.classList.add('part');
    // The Jacobian is that of the input whose gradient is pointed at.
    const map = body.querySelector('[data-tensor="jacobian"]');
    if (map && map.dataset.of !== name) map.outerHTML = jacobian(it, result, index);
    for (const {output, o, at} of terms) {
        body.querySelector(`input[data-edit="cotangent ${output}"][data-at="${o}"]`)
            ?.parentElement.classList.add('part');
        const row = body.querySelector('table.jacobian')?.rows[at].cells;
        for (const part of row ? [ row[0], row[j + 1] ] : []) part.classList.add('part');
    }
    const signed = (v) => (v < 0 ? `(${number(v)})` : number(v));
    const shown = terms.slice(0, 8).map(({output, o, dy, slope}) => `d${
        it.own.outputs[output]}${
                                            placeOf(result.outputs[output].shape, o)} ${
                                                signed(dy)} × ${
                                            signed(slope)}`);
    const line = body.querySelector('.sum');
    line.textContent = `d${name}${placeOf(result.gradients[index].shape, j)} = ${
        shown.length ? shown.join(' + ') : '0: no element of the output depends on it'}${
        terms.length > 8 ? ` + ${terms.length - 8} more` : ''}${
        shown.length ? ` = ${number(total)}` : ''}`;
    line.dataset.total = total;
}

async function start(place) {
    const gradus = await root.Gradus.here();
    const op = place.dataset.op, body = place.querySelector('.body');
    let it = example(gradus, op), shown = Infinity, result = null, resting = 0;

    function show(computed = compute(gradus, it)) {
        renew(body, it, computed, result || computed);
        result = computed;
        mask();
        place.dispatchEvent(new CustomEvent('numbers', {bubbles : true, detail : {it, result}}));
    }
    function mask() {
        for (const step of body.querySelectorAll('.step')) {
            const n = Number(step.dataset.step);
            step.classList.toggle('later', n > shown);
            step.classList.toggle('now', n === shown);
        }
    }
    // Takes a number that the reader has typed, or says in a sentence why not.
    function take(box) {
        const {edit, at} = box.dataset, text = box.value.trim(), value = Number(text);
        const cotangent = /^cotangent (\d)/.exec(edit);
        // GD_FILL_INDEX
        if (!cotangent && !Number.isInteger(value) &&
            it.check.inputs.find(({name}) => name === edit)?.fill === 4)
            return `“${text}” is not a whole number, and ${edit} has ${
                it.request.inputs[edit].length} of them; the example keeps ${
                it.request.inputs[edit][at]}.`;
        const list = cotangent ? it.request.cotangents[cotangent[1]] : it.request.inputs[edit];
        const kept = list[at];
        if (text === '' || !Number.isFinite(value))
            return `“${text}” is not a finite number; the example keeps ${kept}.`;
        list[at] = value;
        const next = compute(gradus, it);
        let trouble = next.error;
        if (!trouble && ![...next.outputs, ...next.gradients ].every(finite))
            trouble = `With ${number(value)} here a result is not finite in float64`;
        // -Infinity is a score that is masked.
        if (!trouble && steps(it, next).some((s) => s.value.values.some((v) => !(v < Infinity))))
            trouble = `With ${number(value)} here a step is not finite in float64`;
        if (trouble) {
            list[at] = kept;
            return `${trouble.replace(/\.$/, '')}; the example keeps ${kept}.`;
        }
        show(next);
        return '';
    }
    body.addEventListener('change', (event) => {
        if (event.target.dataset.edit) refuse(event.target, take(event.target));
    });
    // a number of the Jacobian, which is seen as a colour
    body.addEventListener('mouseover', ({target}) => {
        const cell = target.closest('.jacobian td');
        if (cell) cell.title = cell.textContent;
    });
    const pick = (event) => {
        const cell = event.target.closest && event.target.closest('td[data-pick]');
        if (cell && result.jacobians) point(body, it, result, cell);
    };
    // A picture that is dragged sets elements of the first dy: [place, value].
    document.addEventListener('cotangent', ({detail}) => {
        if (detail.op !== op) return;
        for (const [at, value] of detail.values) it.request.cotangents[0][at] = value;
        // The Jacobians stay, and the picture comes first: the tables follow when it rests.
        result = {...solve(gradus, it), jacobians : result.jacobians};
        place.dispatchEvent(new CustomEvent('numbers',
            {bubbles : true, detail : {it, result, dragged : true}}));
        clearTimeout(resting);
        resting = setTimeout(() => show(result), 150);
    });
    body.addEventListener('mouseover', pick);
    body.addEventListener('focusin', pick);
    body.addEventListener('click', pick);
    body.addEventListener('keydown', (event) => root.rove(event, 'td[data-pick]'));
    const total = () => body.querySelectorAll('.step').length;
    const button = (name, act) =>
        place.querySelector(`[data-act=${name}]`)?.addEventListener('click', act);
    const go = (n) => {
        shown = n;
        mask();
        const now = body.querySelector('.step.now');
        if (!now) return;
        now.scrollIntoView({block : 'nearest'});
        place.dispatchEvent(new CustomEvent('step', {bubbles : true, detail : now.dataset.line}));
    };
    button('step', () => go(shown >= total() - 1 ? 0 : shown + 1));
    button('back', () => go(shown === Infinity ? total() - 1 : Math.max(0, shown - 1)));
    button('all', () => go(Infinity));
    button('again', () => {
        it = example(gradus, op);
        for (const box of body.querySelectorAll('[aria-invalid]')) refuse(box, '');
        choose();
        show();
    });
    const variant = place.querySelector('select[data-act=variant]');
    function choose() {
        if (!variant) return;
        it = {...it, request : {...it.request, case : it.own.variants[variant.value][0]}};
    }
    variant?.addEventListener('change', () => {
        choose();
        show();
    });
    choose();
    show();
    place.dataset.ready = '1';
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.worked[data-op]')) {
        enliven(place);
        const closed = place.closest('details:not([open])');
        if (closed)
            closed.addEventListener('toggle', () => start(place), {once : true});
        else
            start(place);
    }
});
})(globalThis);
