// curves.js - two curves to drag: the error of a central difference over its step, and the gradient
// layer by layer of a deep stack. Both are computed here, in JavaScript.
(function(root) {
'use strict';

// ---- The error of a central difference ----------------------------------------------------------

// f in float64, or, with every operation rounded, in float32 (Math.exp and Math.sin are rounded
// once).
const functions = {
    'exp(x) at 1' : {x : 1, f : (x, r) => r(Math.exp(x)), slope : Math.exp},
    'sin(20 x) at 1' : {x : 1, f : (x, r) => r(Math.sin(r(20 * x))),
        slope : (x) => 20 * Math.cos(20 * x)},
    'exp(x) + 1000 at 1' : {x : 1, f : (x, r) => r(r(Math.exp(x)) + 1000), slope : Math.exp},
    // away
    '|x - 1| at 1.001, beside a kink' : {x : 1.001, f : (x, r) => r(Math.abs(r(x - 1))),
        slope : () => 1, kink : 1e-3}
};
const round = {float64 : (v) => v, float32 : Math.fround};

// {estimate, error}: of (f(x + h) - f(x - h)) / 2h.
function difference(name, type, h) {
    const {x, f, slope} = functions[name], r = round[type], at = r(x);
    const up = r(at + r(h)), down = r(at - r(h)); // the points that are really reached
    const estimate = up === down ? NaN : r(r(f(up, r) - f(down, r)) / r(up - down));
    return {estimate, error : Math.abs(estimate - slope(at))};
}

// ---- A stack of layers --------------------------------------------------------------------------

const LAYERS = 20, WIDTH = 16;
const activations = {
    sigmoid : [ (z) => 1 / (1 + Math.exp(-z)), (z, y) => y * (1 - y) ],
    tanh : [ Math.tanh, (z, y) => 1 - y * y ],
    relu : [ (z) => Math.max(0, z), (z) => Number(z > 0) ]
};

// The same numbers every time, about normal.
function normals(count) {
    let state = 1;
    const draw = () => (state = (state * 48271) % 2147483647) / 2147483647;
    return Array.from({length : count},
        () => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw()));
}
const weights = normals(LAYERS * WIDTH * WIDTH), input = normals(WIDTH), target = normals(WIDTH);

const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0);

// Forward and backward of loss = target . x_20, x_{l+1} = [x_l +] act(gain W_l [norm](x_l)).
// Returns {loss, norms: |gradient| by x_0 ... x_20, gradient: by x_0}.
function stack({activation, gain, residual, norm}, x0 = input) {
    const [act, slope] = activations[activation], scale = gain / Math.sqrt(WIDTH), kept = [];
    let x = x0;
    for (let l = 0; l < LAYERS; l++) {
        const rstd = norm ? 1 / Math.sqrt(dot(x, x) / WIDTH + 1e-5) : 1, n = x.map((v) => v * rstd);
        const w = Array.from({length : WIDTH}, (_, i) => weights.slice((l * WIDTH + i) * WIDTH,
            (l * WIDTH + i + 1) * WIDTH));
        const z = w.map((row) => scale * dot(row, n)), y = z.map(act);
        kept.push({n, rstd, w, z, y});
        x = residual ? y.map((v, i) => v + x[i]) : y;
    }
    const loss = dot(target, x), norms = [];
    let g = target;
    for (let l = LAYERS; l >= 0; l--) {
        norms[l] = Math.sqrt(dot(g, g));
        if (!l) break;
        const {n, rstd, w, z, y} = kept[l - 1], dz = g.map((v, i) => v * slope(z[i], y[i]) * scale);
        let dn = n.map((_, k) => dz.reduce((sum, v, i) => sum + v * w[i][k], 0));
        if (norm) {
            const m = dot(dn, n) / WIDTH;
            dn = dn.map((v, k) => rstd * (v - n[k] * m));
        }
        g = residual ? dn.map((v, k) => v + g[k]) : dn;
    }
    return {loss, norms, gradient : g};
}

// ---- The pictures, as HTML ----------------------------------------------------------------------

const W = 340, H = 230, LEFT = 40, BOTTOM = 34;
const clamp = (v, a, b) => Math.max(a, Math.min(b, v));

// Axes with powers of ten; x and y map exponents to places.
function axes([x0, x1, each], [y0, y1, step], across, up) {
    const x = (e) => LEFT + (W - LEFT - 8) * (e - x0) / (x1 - x0),
        y = (e) => H - BOTTOM - (H - BOTTOM - 18) * (e - y0) / (y1 - y0);
    let html = `<text x="${LEFT}" y="10">${up}</text><text x="${W - 8}" y="${
        H - 4}" text-anchor="end">${across}</text>`;
    for (let e = y0; e <= y1; e += step)
        html += `<line x1="${LEFT}" x2="${W}" y1="${y(e)}" y2="${y(e)}" class="tick"/><text x="${
            LEFT - 4}" y="${y(e) + 4}" text-anchor="end">1e${e}</text>`;
    for (let e = x0; each && e <= x1; e += each) html += `<text x="${x(e)}" y="${
        H - 20}" text-anchor="${e < x1 ? 'middle' : 'end'}">1e${e}</text>`;
    return {x, y, html};
}

// The steps of the picture with their errors; a step at which x + h is x - h has none.
const steps = Array.from({length : 151}, (_, i) => -15 + i / 10);
const points = (name, type) => steps
    .map((e) => ({e, error : difference(name, type, 10 ** e).error}))
    .filter(({error}) => !Number.isNaN(error));

// {svg, said}: the error over the step 10^e, and where h stands.
function errorPicture(name, log_h) {
    const {x, y, html} = axes([ -15, 0, 3 ], [ -14, 2, 4 ], 'step h', 'error'), h = 10 ** log_h;
    const place = (error) => y(clamp(Math.log10(error || 1e-14), -14, 2));
    const {kink} = functions[name], right = kink ? 'across the kink' : 'truncation';
    const lowest = Object.fromEntries(Object.keys(round).map(
        (type) => [type, kink ? Math.log10(kink)
            : points(name, type).reduce((a, b) => (b.error < a.error ? b : a)).e]));
    const lines = Object.keys(round).map(
        (type) => `<polyline class="${type}" points="${
            points(name, type).map(({e, error}) => `${x(e).toFixed(1)},${place(error).toFixed(1)}`)
            .join(' ')}"/>`);
    const middle = x(lowest.float64);
    const sides = `<text x="${
        middle - 4}" y="10" text-anchor="end">&larr; rounding</text><text x="${
        middle + 4}" y="10">${right} &rarr;</text>`;
    const words = Object.keys(round).map((type) => {
        const {estimate, error} = difference(name, type, h);
        return Number.isNaN(error) ? `${type}: x + h and x - h are the same number`
                                   : `${type}: ${estimate.toPrecision(8)}, error ${
                                       error.toExponential(1)}, ${
                                         Math.abs(log_h - lowest[type]) < 0.5 && !kink
                                             ? 'about the lowest' : log_h < lowest[type]
                                             ? 'mostly rounding' : kink ? right
                                             : `mostly ${right}`}`;
    });
    return {
        svg : `${html}${sides}${lines.join('')}<line class="here" x1="${x(log_h)}" x2="${
            x(log_h)}" y1="14" y2="${H - BOTTOM}"/>`,
        said : `h = ${h.toExponential(1)}. ${words.join('; ')}.`
    };
}

function stackPicture(options) {
    const {norms} = stack(options), {y, html} = axes([ 0, 1, 0 ], [ -16, 8, 4 ],
        'layer, from the first to the last', '|gradient|');
    const width = (W - LEFT - 8) / norms.length;
    const bars = norms.map((v, l) => {
        const top = y(clamp(Math.log10(v || 1e-16), -16, 8));
        return `<rect x="${LEFT + l * width + 1.5}" y="${top}" width="${width - 3}" height="${
            H - BOTTOM - top}"><title>before layer ${l}: ${v.toExponential(1)}</title></rect>`;
    });
    const last = norms[norms.length - 1], ratio = norms[0] / last;
    return {
        svg : html + bars.join(''),
        said : `At the last layer the gradient has the norm ${last.toPrecision(3)}, at the first ${
            norms[0].toExponential(2)}: ${
            ratio < 1e-3 ? 'it vanishes' : ratio > 1e3 ? 'it explodes' : 'it arrives'}.`
    };
}

root.curves = {
    functions,
    difference,
    activations,
    stack,
    input,
    errorPicture,
    stackPicture,
    W,
    H
};
if (typeof module !== 'undefined') {
    module.exports = root.curves;
    return;
}

// ---- In the page --------------------------------------------------------------------------------

// Shows what draw() returns, now and after whatever changes in `place`.
function live(place, draw) {
    const show = () => {
        const {svg, said} = draw();
        place.querySelector('svg').innerHTML = svg;
        place.querySelector('.said').textContent = said;
    };
    place.addEventListener('input', show);
    show();
    place.dataset.ready = '1';
}

function errorCurve(place) {
    const select = place.querySelector('select'), slider = place.querySelector('input'),
        svg = place.querySelector('svg');
    // The step can be dragged in the picture as well.
    const drag = (event) => {
        if (event.type === 'pointermove' && !event.buttons) return;
        const box = svg.getBoundingClientRect(),
            at = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - 8);
        slider.value = -15 + 15 * at;
        slider.dispatchEvent(new Event('input', {bubbles : true}));
    };
    for (const event of ['pointerdown', 'pointermove']) svg.addEventListener(event, drag);
    live(place, () => errorPicture(select.value, Number(slider.value)));
}

function deepStack(place) {
    const get = (name) => place.querySelector(`[name=${name}]`);
    live(place, () => {
        const gain = Number(get('gain').value);
        place.querySelector('output').textContent = gain;
        return stackPicture({activation : get('activation').value, gain,
            residual : get('residual').checked, norm : get('norm').checked});
    });
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('#error-curve')) errorCurve(place);
    for (const place of document.querySelectorAll('#deep-stack')) deepStack(place);
});
})(globalThis);
