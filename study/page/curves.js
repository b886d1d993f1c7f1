// curves.js - two curves to drag: the error of a central difference over its step, and the gradient
// layer by layer of a deep stack. Both are computed here, in JavaScript.
(function(root) {
'use strict';

// ---- The error of a central difference ------------------------------------------------------------

// f in float64, or, with every operation rounded, in float32 (Math.exp and Math.sin are rounded once).
const functions = {
    'exp(x) at 1' : {x : 1, f : (x, r) => r(Math.exp(x)), slope : Math.exp},
    'sin(20 x) at 1' : {x : 1, f : (x, r) => r(Math.sin(r(20 * x))), slope : (x) => 20 * Math.cos(20 * x)},
    'exp(x) + 1000 at 1' : {x : 1, f : (x, r) => r(r(Math.exp(x)) + 1000), slope : Math.exp},
    '|x - 1| at 1.001, beside a kink' : {x : 1.001, f : (x, r) => r(Math.abs(r(x - 1))), slope : () => 1}
};
const round = {float64 : (v) => v, float32 : Math.fround};

// {estimate, error}: of (f(x + h) - f(x - h)) / 2h.
function difference(name, type, h) {
    const {x, f, slope} = functions[name], r = round[type], at = r(x);
    const up = r(at + r(h)), down = r(at - r(h)); // the points that are really reached
    const estimate = up === down ? NaN : r(r(f(up, r) - f(down, r)) / r(up - down));
    return {estimate, error : Math.abs(estimate - slope(at))};
}

// ---- A stack of layers ----------------------------------------------------------------------------

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
    return Array.from({length : count}, () => Math.sqrt(-2 * Math.log(draw())) * Math.cos(2 * Math.PI * draw()));
}
const weights = normals(LAYERS * WIDTH * WIDTH), input = normals(WIDTH), target = normals(WIDTH);

const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0);

// Forward and backward of loss = target . x_20, x_{l+1} = [x_l +] act(gain W_l [norm](x_l)). Returns
// {loss, norms: |gradient| by x_0 ... x_20, gradient: by x_0}.
function stack({activation, gain, residual, norm}, x0 = input) {
    const [act, slope] = activations[activation], scale = gain / Math.sqrt(WIDTH), kept = [];
    let x = x0;
    for (let l = 0; l < LAYERS; l++) {
        const rstd = norm ? 1 / Math.sqrt(dot(x, x) / WIDTH + 1e-5) : 1, n = x.map((v) => v * rstd);
        const w = Array.from({length : WIDTH}, (_, i) => weights.slice((l * WIDTH + i) * WIDTH, (l * WIDTH + i + 1) * WIDTH));
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

root.curves = {
    functions,
    difference,
    activations,
    stack,
    input
};
if (typeof module !== 'undefined') {
    module.exports = root.curves;
    return;
}

// ---- In the page ---------------------------------------------------------------------------------

const W = 560, H = 260, LEFT = 52, BOTTOM = 30;
const clamp = (v, a, b) => Math.max(a, Math.min(b, v));

// Axes with powers of ten; x and y map exponents to places.
function axes(x0, x1, y0, y1, across, up) {
    const x = (e) => LEFT + (W - LEFT - 8) * (e - x0) / (x1 - x0), y = (e) => H - BOTTOM - (H - BOTTOM - 8) * (e - y0) / (y1 - y0);
    let html = '';
    for (let e = Math.ceil(y0); e <= y1; e += Math.ceil((y1 - y0) / 6))
        html += `<line x1="${LEFT}" x2="${W}" y1="${y(e)}" y2="${y(e)}" class="tick"/><text x="${LEFT - 6}" y="${y(e) + 4}" text-anchor="end">1e${e}</text>`;
    html += `<text x="${W - 8}" y="${H - 2}" text-anchor="end">${across}</text><text x="${LEFT + 4}" y="14">${up}</text>`;
    return {x, y, html};
}

function errorCurve(place) {
    const select = place.querySelector('select'), slider = place.querySelector('input'), said = place.querySelector('.said');
    const svg = place.querySelector('svg');
    const show = () => {
        const name = select.value, log_h = Number(slider.value), h = 10 ** log_h;
        const {x, y, html} = axes(-15, 0, -14, 2, 'step h, from 1e-15 to 1', 'error');
        const place_of = (error) => y(clamp(Math.log10(error || 1e-14), -14, 2));
        const lines = Object.keys(round).map((type) => {
            const points = [];
            for (let e = -15; e <= 0; e += 0.1) {
                const {error} = difference(name, type, 10 ** e);
                if (!Number.isNaN(error)) points.push(`${x(e).toFixed(1)},${place_of(error).toFixed(1)}`);
            }
            return `<polyline class="${type}" points="${points.join(' ')}"/>`;
        });
        svg.innerHTML = html + lines.join('') + `<line class="here" x1="${x(log_h)}" x2="${x(log_h)}" y1="8" y2="${H - BOTTOM}"/>`;
        const words = Object.keys(round).map((type) => {
            const {estimate, error} = difference(name, type, h);
            return Number.isNaN(error) ? `${type}: x + h and x - h are the same number`
                                       : `${type}: ${estimate.toPrecision(8)}, error ${error.toExponential(1)}`;
        });
        said.textContent = `h = ${h.toExponential(1)}. ${words.join('; ')}.`;
    };
    select.addEventListener('change', show);
    slider.addEventListener('input', show);
    show();
    place.dataset.ready = '1';
}

function deepStack(place) {
    const get = (name) => place.querySelector(`[name=${name}]`), svg = place.querySelector('svg');
    const show = () => {
        const gain = Number(get('gain').value);
        const {norms} = stack({activation : get('activation').value, gain, residual : get('residual').checked, norm : get('norm').checked});
        const {y, html} = axes(0, 1, -16, 8, 'layer, from the first to the last', '|gradient|');
        const width = (W - LEFT - 8) / norms.length;
        svg.innerHTML = html + norms.map((v, l) => {
            const top = y(clamp(Math.log10(v || 1e-16), -16, 8));
            return `<rect x="${LEFT + l * width + 2}" y="${top}" width="${width - 4}" height="${H - BOTTOM - top}"/>`;
        }).join('');
        place.querySelector('output').textContent = gain;
        place.querySelector('.said').textContent = `At the last layer the gradient has the norm ${
            norms[norms.length - 1].toPrecision(3)}, at the first ${norms[0].toExponential(2)}.`;
    };
    place.addEventListener('input', show);
    show();
    place.dataset.ready = '1';
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('#error-curve')) errorCurve(place);
    for (const place of document.querySelectorAll('#deep-stack')) deepStack(place);
});
})(globalThis);
