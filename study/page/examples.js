// examples.js - the worked example of each op: a case of its record, at a size that one can read,
// and the steps of its backward as the derivation names them. The steps are computed here, in
// float64, so that each can be seen; the last of them must be what the library says.
(function(root) {
'use strict';

// ---- Small arithmetic ----------------------------------------------------------------------

const sum = (list) => list.reduce((a, b) => a + b, 0);
const mean = (list) => sum(list) / list.length;
const dot = (a, b) => sum(a.map((v, i) => v * b[i]));
const last = (shape) => shape[shape.length - 1];

// A tensor from a function of row and column.
const grid = (M, N, f) => ({
    shape : [ M, N ],
    values : Array.from({length : M * N}, (_, i) => f(Math.floor(i / N), i % N)),
});
const rowsOf = (t) => {
    const N = last(t.shape) || 1;
    return Array.from({length : t.values.length / N}, (_, i) => t.values.slice(i * N, i * N + N));
};
const column = (list) => ({shape : [ list.length ], values : list});
const like = (t, f) => ({shape : t.shape, values : t.values.map(f)});
const multiply = (a, b) => grid(a.shape[0], b.shape[1],
    (i, j) => sum(Array.from({length : a.shape[1]},
        (_, k) => a.values[i * a.shape[1] + k] * b.values[k * b.shape[1] + j])));
const transposed = (a) => grid(a.shape[1], a.shape[0], (i, j) => a.values[j * a.shape[1] + i]);

const step = (name, tex, value, more = {}) => ({name, tex, value, ...more});

// ---- The steps of each backward: (v) => [step]; v has inputs, outputs, dy and saves ---------

function rmsNorm(v) {
    const eps = v.eps, x = rowsOf(v.x), dy = rowsOf(v.dy), N = x[0].length, M = x.length;
    const w = v.weight ? v.weight.values : Array(N).fill(1);
    const a = x.map((row) => mean(row.map((e) => e * e)));
    const rms = a.map((e) => Math.sqrt(e + eps)), rstd = rms.map((e) => 1 / e);
    const xhat = grid(M, N, (i, k) => x[i][k] * rstd[i]);
    const h = grid(M, N, (i, k) => dy[i][k] * w[k]);
    const m = rowsOf(h).map((row, i) => mean(row.map((e, k) => e * xhat.values[i * N + k])));
    const along = grid(M, N, (i, k) => xhat.values[i * N + k] * m[i]);
    const dx = grid(M, N, (i, k) => rstd[i] * (h.values[i * N + k] - along.values[i * N + k]));
    const parts = grid(M, N, (i, k) => dy[i][k] * xhat.values[i * N + k]);
    const dw = {
        shape : [ N ],
        values : Array.from({length : N}, (_, k) => sum(x.map((_, i) => parts.values[i * N + k])))
    };
    return [
        step('a', 'a_i = \\frac1N \\sum_k x_{ik}^2', column(a)),
        step('rms', '\\mathrm{rms}_i = \\sqrt{a_i + \\varepsilon}', column(rms)),
        step('rstd', '\\mathrm{rstd}_i = 1 / \\mathrm{rms}_i', column(rstd), {mark : 'rstd'}),
        step('xhat', '\\hat x_{ik} = x_{ik}\\,\\mathrm{rstd}_i', xhat, {mark : 'xhat'}),
        step('h', 'h_{ik} = dy_{ik}\\, w_k', h),
        step('m', 'm_i = \\frac1N \\sum_k h_{ik}\\,\\hat x_{ik}', column(m), {mark : 'm'}),
        step('along', '\\hat x_{ik}\\, m_i', along),
        step('dx', 'dx_{ik} = \\mathrm{rstd}_i\\,(h_{ik} - \\hat x_{ik}\\, m_i)', dx,
            {mark : 'dx', gradient : 'x'}),
        step('parts', 'dy_{ik}\\,\\hat x_{ik}', parts),
        step('dw', 'dw_k = \\sum_i dy_{ik}\\,\\hat x_{ik}', dw, {mark : 'dw', gradient : 'weight'}),
    ];
}

// The norm of the sum; the gradient of the sum itself comes on top.
function addRmsNorm(v) {
    const [, total] = v.outputs, [dy, dsum] = v.cotangents;
    const norm = rmsNorm({...v, x : total, dy});
    const through = norm.find((s) => s.name === 'dx').value;
    const dx = like(through, (e, i) => e + dsum.values[i]);
    return [
        step('sum', 's_{ik} = x_{ik} + \\mathrm{residual}_{ik}', total),
        ...norm.filter((s) => !s.gradient)
            .map((s) => ({
                     ...s,
                     tex : s.tex.replace(/(\\hat )?x_\{ik\}/g, (whole, hat) => hat ? whole : 's_{ik}')
                 })),
        step('through', '\\mathrm{rstd}_i\\,(h_{ik} - \\hat x_{ik}\\, m_i)', through, {mark : 'dx'}),
        step('dx', 'dx_{ik} = \\mathrm{rstd}_i\\,(h_{ik} - \\hat x_{ik}\\, m_i) + d\\mathrm{sum}_{ik}', dx,
            {mark : 'add_rms_norm', gradient : 'x'}),
        step('dresidual', 'd\\mathrm{residual} = dx', dx, {mark : 'add_rms_norm', gradient : 'residual'}),
        norm.find((s) => s.gradient === 'weight'),
    ];
}

function layerNorm(v) {
    const x = rowsOf(v.x), dy = rowsOf(v.dy), N = x[0].length, M = x.length;
    const w = v.weight ? v.weight.values : Array(N).fill(1);
    const m = x.map(mean), va = x.map((row, i) => mean(row.map((e) => (e - m[i]) ** 2)));
    const rstd = va.map((e) => 1 / Math.sqrt(e + v.eps));
    const xhat = grid(M, N, (i, k) => (x[i][k] - m[i]) * rstd[i]);
    const h = grid(M, N, (i, k) => dy[i][k] * w[k]);
    const mh = rowsOf(h).map(mean);
    const mhx = rowsOf(h).map((row, i) => mean(row.map((e, k) => e * xhat.values[i * N + k])));
    const dx = grid(
        M, N, (i, k) => rstd[i] * (h.values[i * N + k] - mh[i] - xhat.values[i * N + k] * mhx[i]));
    const total = (f) => ({
        shape : [ N ],
        values : Array.from({length : N}, (_, k) => sum(x.map((_, i) => f(i, k))))
    });
    return [
        step('mean', 'm_i = \\frac1N \\sum_k x_{ik}', column(m)),
        step('v', 'v_i = \\frac1N \\sum_k (x_{ik} - m_i)^2', column(va)),
        step('rstd', 'r_i = 1/\\sqrt{v_i + \\varepsilon}', column(rstd)),
        step('xhat', '\\hat x_{ik} = (x_{ik} - m_i)\\, r_i', xhat),
        step('h', 'h_{ik} = dy_{ik}\\, w_k', h),
        step('mean_h', '\\mathrm{mean}(h)_i', column(mh)),
        step('mean_hx', '\\mathrm{mean}(h \\hat x)_i', column(mhx)),
        step('dx',
            'dx_{ik} = r_i\\,(h_{ik} - \\mathrm{mean}(h)_i - \\hat x_{ik}\\,\\mathrm{mean}(h \\hat x)_i)',
            dx, {mark : 'dx', gradient : 'x'}),
        step('dw', 'dw_k = \\sum_i dy_{ik}\\,\\hat x_{ik}',
            total((i, k) => dy[i][k] * xhat.values[i * N + k]), {mark : 'dw', gradient : 'weight'}),
        step('db', 'db_k = \\sum_i dy_{ik}', total((i, k) => dy[i][k]),
            {mark : 'db', gradient : 'bias'}),
    ];
}

// x [B, C]: a channel is a column.
function batchNorm(v) {
    const x = rowsOf(v.x), dy = rowsOf(v.dy), B = x.length, C = x[0].length;
    const across = (f) =>
        Array.from({length : C}, (_, c) => mean(x.map((_, b) => f(b, c))));
    const w = v.weight.values, m = across((b, c) => x[b][c]);
    const va = across((b, c) => (x[b][c] - m[c]) ** 2);
    const rstd = va.map((e) => 1 / Math.sqrt(e + v.eps));
    const xhat = grid(B, C, (b, c) => (x[b][c] - m[c]) * rstd[c]);
    const row = (values) => ({shape : [ C ], values});
    const db = across((b, c) => dy[b][c]).map((e) => e * B);
    const dw = across((b, c) => dy[b][c] * xhat.values[b * C + c]).map((e) => e * B);
    return [
        step('mean', '\\mu_c = \\frac1n \\sum_k x_{kc}', row(m)),
        step('v', 'v_c = \\frac1n \\sum_k (x_{kc} - \\mu_c)^2', row(va)),
        step('rstd', 'r_c = 1/\\sqrt{v_c + \\varepsilon}', row(rstd)),
        step('xhat', '\\hat x_{kc} = (x_{kc} - \\mu_c)\\, r_c', xhat),
        step('db', 'db_c = \\sum_k dy_{kc}', row(db), {mark : 'db', gradient : 'bias'}),
        step('dw', 'dw_c = \\sum_k dy_{kc}\\,\\hat x_{kc}', row(dw),
            {mark : 'dw', gradient : 'weight'}),
        step('dx',
            'dx_{kc} = w_c\\, r_c\\, (dy_{kc} - db_c / n - \\hat x_{kc}\\, dw_c / n)',
            grid(B, C, (b, c) => w[c] * rstd[c] *
                (dy[b][c] - db[c] / B - xhat.values[b * C + c] * dw[c] / B)),
            {mark : 'dx', gradient : 'x'}),
    ];
}

// x [1, 4, 2]: two groups of two channels with two places each.
function groupNorm(v) {
    const N = 4, S = 2, w = v.weight.values, x = v.x.values, dy = v.dy.values;
    const rows = (values) => [values.slice(0, N), values.slice(N)];
    const each = (values) => ({shape : [ 1, 2 ], values});
    const m = rows(x).map(mean);
    const rstd = rows(x).map((row, i) =>
        1 / Math.sqrt(mean(row.map((e) => (e - m[i]) ** 2)) + v.eps));
    const group = (k) => Math.floor(k / N), channel = (k) => Math.floor(k / S);
    const xhat = like(v.x, (_, k) => (x[k] - m[group(k)]) * rstd[group(k)]);
    const h = like(v.x, (_, k) => dy[k] * w[channel(k)]);
    const mh = rows(h.values).map(mean);
    const mhx = rows(h.values.map((e, k) => e * xhat.values[k])).map(mean);
    const over = (f) => like(v.weight, (_, c) => sum(x.map((_, k) => (channel(k) === c ? f(k) : 0))));
    return [
        step('mean', '\\mu_g', each(m)),
        step('rstd', 'r_g', each(rstd)),
        step('xhat', '\\hat x_k = (x_k - \\mu_g)\\, r_g', xhat),
        step('h', 'h_k = dy_k\\, w_{c(k)}', h),
        step('mean_h', '\\mathrm{mean}(h)_g', each(mh)),
        step('mean_hx', '\\mathrm{mean}(h \\hat x)_g', each(mhx)),
        step('dx', 'dx_k = r\\,(h_k - \\mathrm{mean}(h) - \\hat x_k\\,\\mathrm{mean}(h \\hat x))',
            like(v.x, (_, k) => rstd[group(k)] *
                (h.values[k] - mh[group(k)] - xhat.values[k] * mhx[group(k)])),
            {mark : 'group_norm dx', gradient : 'x'}),
        step('dw', 'dw_c = \\sum_{k \\in c} dy_k\\,\\hat x_k', over((k) => dy[k] * xhat.values[k]),
            {mark : 'group_norm dw', gradient : 'weight'}),
        step('db', 'db_c = \\sum_{k \\in c} dy_k', over((k) => dy[k]),
            {mark : 'group_norm db', gradient : 'bias'}),
    ];
}

// The same with mean and var given.
function batchNormFixed(v) {
    const x = rowsOf(v.x), dy = rowsOf(v.dy), B = x.length, C = x[0].length;
    const rstd = v.var.values.map((e) => 1 / Math.sqrt(e + v.eps));
    const xhat = grid(B, C, (b, c) => (x[b][c] - v.mean.values[c]) * rstd[c]);
    const across = (f) =>
        ({shape : [ C ], values : rstd.map((_, c) => sum(x.map((_, b) => f(b, c))))});
    return [
        step('xhat', '\\hat x_{kc} = (x_{kc} - \\mu_c)\\, r_c', xhat),
        step('db', 'db_c = \\sum_k dy_{kc}', across((b, c) => dy[b][c]),
            {mark : 'db', gradient : 'bias'}),
        step('dw', 'dw_c = \\sum_k dy_{kc}\\,\\hat x_{kc}',
            across((b, c) => dy[b][c] * xhat.values[b * C + c]),
            {mark : 'dw', gradient : 'weight'}),
        step('dx', 'dx_{kc} = w_c\\, r_c\\, dy_{kc}',
            grid(B, C, (b, c) => v.weight.values[c] * rstd[c] * dy[b][c]),
            {mark : 'batch_norm_fixed', gradient : 'x'}),
    ];
}

function softmax(v) {
    const y = rowsOf(v.y), dy = rowsOf(v.dy), N = y[0].length, M = y.length;
    const s = y.map((row, i) => dot(row, dy[i]));
    return [
        step('s', 's_i = \\sum_k dy_{ik}\\, y_{ik}', column(s)),
        step('diff', 'dy_{ik} - s_i', grid(M, N, (i, k) => dy[i][k] - s[i])),
        step('dx', 'dx_{ik} = y_{ik}\\,(dy_{ik} - s_i)',
            grid(M, N, (i, k) => y[i][k] * (dy[i][k] - s[i])), {mark : 'softmax', gradient : 'x'}),
    ];
}

function logSoftmax(v) {
    const y = rowsOf(v.y), dy = rowsOf(v.dy), N = y[0].length, M = y.length;
    const s = dy.map(sum);
    return [
        step('s', 's_i = \\sum_k dy_{ik}', column(s)),
        step('p', 'e^{y_{ik}}', like(v.y, Math.exp)),
        step('dx', 'dx_{ik} = dy_{ik} - e^{y_{ik}}\\, s_i',
            grid(M, N, (i, k) => dy[i][k] - Math.exp(y[i][k]) * s[i]),
            {mark : 'log_softmax', gradient : 'x'}),
    ];
}

function crossEntropy(v) {
    const x = rowsOf(v.logits), t = v.targets.values, V = x[0].length, M = x.length;
    const m = x.map((row) => Math.max(...row));
    const l = x.map((row, i) => Math.log(sum(row.map((e) => Math.exp(e - m[i])))));
    const scale = v.dy.values[0] / M;
    const p = grid(M, V, (i, j) => Math.exp(x[i][j] - m[i] - l[i]));
    return [
        step('m', 'm_i = \\max_j x_{ij}', column(m)),
        step('l', 'l_i = \\log \\sum_j e^{x_{ij} - m_i}', column(l)),
        step('p', 'p_{ij} = e^{x_{ij} - m_i - l_i}', p),
        step('scale', 'd\\ell\\; r', {shape : [], values : [ scale ]}),
        step('dx', 'dx_{ij} = (p_{ij} - [j = t_i])\\; d\\ell\\; r',
            grid(M, V, (i, j) => (p.values[i * V + j] - (j === t[i] ? 1 : 0)) * scale),
            {mark : 'dx', gradient : 'logits'}),
    ];
}

function nllLoss(v) {
    const w = v.weight.values, t = v.targets.values, total = sum(t.map((k) => w[k]));
    return [
        step('W', 'W = \\sum_i w_{t_i}', {shape : [], values : [ total ]}),
        step('dx', 'dx_{ij} = -[j = t_i]\\; d\\mathrm{loss}\\; w_{t_i} / W',
            grid(t.length, w.length, (i, j) => (j === t[i] ? -v.dy.values[0] * w[j] / total : 0)),
            {mark : 'nll_loss', gradient : 'log_probs'}),
    ];
}

function linearCrossEntropy(v) {
    const x = v.x, w = v.weight, t = v.targets.values, l = multiply(x, transposed(w));
    const [M, V] = l.shape, rows = rowsOf(l);
    const log = rows.map((row) => Math.log(sum(row.map(Math.exp))));
    const d = grid(M, V, (i, j) => Math.exp(rows[i][j] - log[i]) - (j === t[i] ? 1 : 0));
    const alpha = v.dy.values[0] / M, times = (a) => like(a, (e) => alpha * e);
    return [
        step('l', 'l = x\\, w^T', l),
        step('d', 'd_{ij} = \\mathrm{softmax}(l_i)_j - [j = t_i]', d, {mark : 'd'}),
        step('alpha', '\\alpha = d\\mathrm{loss}\\; r', {shape : [], values : [ alpha ]},
            {mark : 'alpha'}),
        step('dx', 'dx = \\alpha\\; d\\, w', times(multiply(d, w)), {mark : 'dx', gradient : 'x'}),
        step('dw', 'dw = \\alpha\\; d^T x', times(multiply(transposed(d), x)),
            {mark : 'dw', gradient : 'weight'}),
    ];
}

function swiglu(v) {
    const z = v.gate, s = like(z, (e) => 1 / (1 + Math.exp(-e)));
    const at = (f) =>
        like(z, (_, i) => f(z.values[i], v.up.values[i], s.values[i], v.dy.values[i]));
    return [
        step('s', 's = 1 / (1 + e^{-z})', s),
        step('slope', 's\\,(1 + z (1 - s))', at((zi, up, si) => si * (1 + zi * (1 - si)))),
        step('dgate', 'd\\mathrm{gate} = dy\\, u\\, s\\,(1 + z (1 - s))',
            at((zi, up, si, dy) => dy * up * si * (1 + zi * (1 - si))),
            {mark : 'dgate', gradient : 'gate'}),
        step('dup', 'd\\mathrm{up} = dy\\, z\\, s', at((zi, up, si, dy) => dy * zi * si),
            {mark : 'dup', gradient : 'up'}),
    ];
}

function linear(v) {
    const M = v.x.values.length / last(v.x.shape),
          x = {shape : [ M, last(v.x.shape) ], values : v.x.values};
    const dy = {shape : [ M, last(v.dy.shape) ], values : v.dy.values};
    const N = dy.shape[1];
    return [
        step('dx', 'dx = dy\\; w', multiply(dy, v.weight), {mark : 'dx', gradient : 'x'}),
        step('dw', 'dw = dy^T x', multiply(transposed(dy), x), {mark : 'dw', gradient : 'weight'}),
        ...(v.bias ? [ step('db', 'db_n = \\sum_m dy_{mn}', {
            shape : [ N ],
            values : Array.from({length : N}, (_, n) => sum(rowsOf(dy).map((row) => row[n])))
        },
                         {mark : 'db', gradient : 'bias'}) ]
                   : []),
    ];
}

function matmul(v) {
    return [
        step(
            'da', 'da = dc\\; b^T', multiply(v.dy, transposed(v.b)), {mark : 'da', gradient : 'a'}),
        step('db', 'db = a^T dc', multiply(transposed(v.a), v.dy), {mark : 'db', gradient : 'b'}),
    ];
}

// One batch, one head: q [1, T, 1, D], k [1, S, 1, D], v [1, S, 1, E].
function attention(v) {
    const q = rowsOf(v.q), k = rowsOf(v.k), vv = rowsOf(v.v), dy = rowsOf(v.dy), y = rowsOf(v.y);
    const T = q.length, S = k.length, scale = v.scale;
    const s =
        grid(T, S, (i, j) => (j <= i + S - T || !v.causal ? scale * dot(q[i], k[j]) : -Infinity));
    const lse = rowsOf(s).map((row) => Math.log(sum(row.map(Math.exp))));
    const p = grid(T, S, (i, j) => Math.exp(s.values[i * S + j] - lse[i]));
    const dp = grid(T, S, (i, j) => dot(dy[i], vv[j]));
    const delta = dy.map((row, i) => dot(row, y[i]));
    const ds = grid(T, S, (i, j) => p.values[i * S + j] * (dp.values[i * S + j] - delta[i]));
    const times = (a, b, f) =>
        ({...multiply(a, b), ...(f ? {values : multiply(a, b).values.map((e) => e * f)} : {})});
    const rows = (list) => ({shape : [ list.length, list[0].length ], values : list.flat()});
    return [
        step('s', 's_{ij} = \\mathrm{scale}\\; q_i \\cdot k_j', s),
        step('lse', 'L_i = \\log \\sum_j e^{s_{ij}}', column(lse)),
        step('p', 'p_{ij} = e^{s_{ij} - L_i}', p, {mark : 'p'}),
        step('dv', 'dv_j = \\sum_i p_{ij}\\, dy_i', times(transposed(p), rows(dy)),
            {mark : 'dv', gradient : 'v'}),
        step('dp', 'dp_{ij} = dy_i \\cdot v_j', dp, {mark : 'dp'}),
        step('delta', '\\delta_i = dy_i \\cdot y_i', column(delta), {mark : 'delta'}),
        step('ds', 'ds_{ij} = p_{ij}\\,(dp_{ij} - \\delta_i)', ds, {mark : 'ds'}),
        step('dq', 'dq_i = \\mathrm{scale} \\sum_j ds_{ij}\\, k_j', times(ds, rows(k), scale),
            {mark : 'dq', gradient : 'q'}),
        step('dk', 'dk_j = \\mathrm{scale} \\sum_i ds_{ij}\\, q_i',
            times(transposed(ds), rows(q), scale), {mark : 'dk', gradient : 'k'}),
    ];
}

// The series of erf, which for the numbers of an example is exact enough.
function erf(x) {
    let term = x, total = x;
    for (let n = 1; n < 100; n++) {
        term *= -x * x / n;
        total += term / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * total;
}

// Functions of one variable: the slope, then dy times it.
const slopes = {
    neg : [ '-1', () => -1 ],
    exp : [ 'y', (x, y) => y ],
    log : [ '1 / x', (x) => 1 / x ],
    log1p : [ '1 / (1 + x)', (x) => 1 / (1 + x) ],
    expm1 : [ 'y + 1', (x, y) => y + 1 ],
    sqrt : [ '1 / (2 y)', (x, y) => 1 / (2 * y) ],
    rsqrt : [ '-y^3 / 2', (x, y) => -(y ** 3) / 2 ],
    reciprocal : [ '-y^2', (x, y) => -y * y ],
    atan : [ '1 / (1 + x^2)', (x) => 1 / (1 + x * x) ],
    sin : [ '\\cos x', Math.cos ],
    cos : [ '-\\sin x', (x) => -Math.sin(x) ],
    tanh : [ '1 - y^2', (x, y) => 1 - y * y ],
    sigmoid : [ 'y (1 - y)', (x, y) => y * (1 - y) ],
    silu : [
        's + x s (1 - s)',
        (x) => {
            const s = 1 / (1 + Math.exp(-x));
            return s + x * s * (1 - s);
        }
    ],
    erf : [
        '2 / \\sqrt\\pi\\; e^{-x^2}', (x) => 2 / Math.sqrt(Math.PI) * Math.exp(-x * x)
    ],
    softplus : [ '1 / (1 + e^{-x})', (x) => 1 / (1 + Math.exp(-x)) ],
    clamp : [ '[p \\le x \\le q],\\; p = -1,\\; q = 1.5', (x) => (x >= -1 && x <= 1.5 ? 1 : 0) ],
    hardtanh : [ '[p < x < q],\\; p = -1,\\; q = 1.5', (x) => (x > -1 && x < 1.5 ? 1 : 0) ],
    relu : [ '[y > 0]', (x, y) => (y > 0 ? 1 : 0) ],
    leaky_relu : [ '[x > 0] + p\\, [x \\le 0],\\; p = 0.1', (x) => (x > 0 ? 1 : 0.1) ],
    elu : [
        '[x > 0] + p\\, e^x\\, [x \\le 0],\\; p = 0.75', (x) => (x > 0 ? 1 : 0.75 * Math.exp(x))
    ],
    sign : [ '0', () => 0 ],
    floor : [ '0', () => 0 ],
    ceil : [ '0', () => 0 ],
    round : [ '0', () => 0 ],
    mish : [
        't + x (1 - t^2) s',
        (x) => {
            const t = Math.tanh(Math.log1p(Math.exp(x)));
            return t + x * (1 - t * t) / (1 + Math.exp(-x));
        }
    ],
    abs : [ '\\mathrm{sign}\\, x', (x) => Math.sign(x) ],
    scale : [ 'p = -2.5', () => -2.5 ],
    add_scalar : [ '1', () => 1 ],
    pow : [ 'p\\, x^{p - 1},\\; p = 3', (x) => 3 * x * x ],
    gelu : [
        '\\Phi(x) + x\\, \\varphi(x)',
        (x) => (1 + erf(x / Math.SQRT2)) / 2 + x * Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI)
    ],
    gelu_tanh : [
        '\\tfrac12 (1 + t) + \\tfrac12 x (1 - t^2) u\'',
        (x) => {
            const c = Math.sqrt(2 / Math.PI), u = c * (x + 0.044715 * x ** 3), t = Math.tanh(u);
            return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
        }
    ],
};
const unary = ([ tex, f ], mark) => (v) => {
    const slope = like(v.x, (x, i) => f(x, v.y.values[i]));
    return [
        step('slope', `f'(x) = ${tex}`, slope),
        step('dx', 'dx_i = dy_i\\, f\'(x_i)', like(v.x, (_, i) => v.dy.values[i] * slope.values[i]),
            {mark, gradient : 'x'}),
    ];
};

// Functions of two variables: a [2, 3], b [3] is repeated over the rows, and its gradient summed.
const parts = {
    add : [ 'dy', () => 1, 'dy', () => 1 ],
    sub : [ 'dy', () => 1, '-dy', () => -1 ],
    mul : [ 'dy\\, b', (a, b) => b, 'dy\\, a', (a) => a ],
    div : [ 'dy / b', (a, b) => 1 / b, '-(dy / b)(a / b)', (a, b) => -a / (b * b) ],
    maximum : [
        'dy\\, [a > b]',
        (a, b) => (a > b     ? 1
                   : a === b ? 0.5
                             : 0),
        'dy\\, [b > a]',
        (a, b) => (b > a     ? 1
                   : a === b ? 0.5
                             : 0)
    ],
    minimum : [
        'dy\\, [a < b]',
        (a, b) => (a < b     ? 1
                   : a === b ? 0.5
                             : 0),
        'dy\\, [b < a]',
        (a, b) => (b < a     ? 1
                   : a === b ? 0.5
                             : 0)
    ],
    pow_tensor : [
        'dy\\, b\\, a^{b - 1}', (a, b) => b * a ** (b - 1), 'dy\\, a^b \\log a',
        (a, b) => a ** b * Math.log(a)
    ],
};
const binary = ([ texA, da, texB, db ], mark) => (v) => {
    const N = last(v.a.shape),
          at = (f) => like(v.a, (a, i) => v.dy.values[i] * f(a, v.b.values[i % N]));
    const terms = at(db);
    return [
        step('da', `da = ${texA}`, at(da), {mark, gradient : 'a'}),
        step('terms', `\\text{each copy of } b: \\; ${texB}`, terms, {mark}),
        step('db', 'db_j = \\sum \\text{ over the copies}', {
            shape : [ N ],
            values : Array.from({length : N}, (_, j) => sum(rowsOf(terms).map((row) => row[j])))
        },
            {mark : 'broadcast', gradient : 'b'}),
    ];
};

// Losses of pairs, without a reduction: the slopes by x and by the target.
const logistic = (x) => 1 / (1 + Math.exp(-x));
const within = (e, p) => Math.max(-p, Math.min(p, e));
const pairLosses = {
    mse_loss : [ '2 (x - t)', (x, t) => 2 * (x - t), '-2 (x - t)', (x, t) => -2 * (x - t) ],
    l1_loss : [
        '\\mathrm{sign}(x - t)', (x, t) => Math.sign(x - t), '-\\mathrm{sign}(x - t)',
        (x, t) => -Math.sign(x - t)
    ],
    huber_loss : [
        'x - t \\text{ within } \\pm\\delta', (x, t) => within(x - t, 0.75), 't - x \\text{ within } \\pm\\delta',
        (x, t) => -within(x - t, 0.75)
    ],
    smooth_l1_loss : [
        '(x - t) / \\beta \\text{ within } \\pm 1', (x, t) => within((x - t) / 0.75, 1),
        '(t - x) / \\beta \\text{ within } \\pm 1', (x, t) => -within((x - t) / 0.75, 1)
    ],
    bce_with_logits : [ '\\mathrm{sigmoid}(x) - t', (x, t) => logistic(x) - t, '-x', (x) => -x ],
    kl_div : [ '-t', (x, t) => -t, '\\log t + 1 - x', (x, t) => Math.log(t) + 1 - x ],
};
const pairLoss = ([ texX, dx, texT, dt ], mark) => (v) => {
    const at = (f) => like(v.x, (x, i) => v.dy.values[i] * f(x, v.target.values[i]));
    return [
        step('dx', `dx = dy\\; (${texX})`, at(dx), {mark, gradient : 'x'}),
        step('dt', `dt = dy\\; (${texT})`, at(dt), {mark, gradient : 'target'}),
    ];
};

// Over the rows of x [2, 4].
const reduction = (tex, weight, mark) => (v) => {
    const N = last(v.x.shape),
          w = grid(v.x.shape[0], N, (i, j) => weight(rowsOf(v.x)[i], j, v.y.values[i]));
    return [
        step('weight', `\\partial y / \\partial x_j = ${tex}`, w),
        step('dx', 'dx_j = dy\\; \\partial y / \\partial x_j',
            like(w, (e, i) => e * v.dy.values[Math.floor(i / N)]), {mark, gradient : 'x'}),
    ];
};

// var and std with correction 0: each distance from the mean, with one weight for the row.
const variance = (share, tex, name) => (v) => {
    const N = last(v.x.shape), row = (i) => Math.floor(i / N), means = rowsOf(v.x).map(mean);
    const d = like(v.x, (e, i) => e - means[row(i)]);
    const shares = like(v.dy, (e, i) => e * share(N, v.y.values[i]));
    return [
        step('d', 'd_j = x_j - \\bar x', d, {mark : 'distance'}),
        step('share', `dy\\; ${tex}`, shares, {mark : `${name}_factor`}),
        step('dx', `dx_j = dy\\; ${tex}\\; d_j`, like(d, (e, i) => e * shares.values[row(i)]),
            {mark : name, gradient : 'x'})
    ];
};

// Over rows of which one has a zero: the product without the zeros, and what each element's slope is.
function prod(v) {
    const N = last(v.x.shape), rows = rowsOf(v.x), zeros = rows.map((row) => row.filter((e) => e === 0).length);
    const P = rows.map((row) => row.reduce((p, e) => (e === 0 ? p : p * e), 1));
    const slope = like(v.x, (e, i) => {
        const r = Math.floor(i / N);
        return zeros[r] > (e === 0 ? 1 : 0) ? 0 : P[r] / (e === 0 ? 1 : e);
    });
    return [
        step('P', 'P = \\prod_{i:\\, x_i \\ne 0} x_i', column(P), {mark : 'prod zeros'}),
        step('weight', '\\partial y / \\partial x_j = \\prod_{i \\ne j} x_i', slope, {mark : 'prod'}),
        step('dx', 'dx_j = dy\\; \\partial y / \\partial x_j',
            like(slope, (e, i) => e * v.dy.values[Math.floor(i / N)]), {mark : 'prod', gradient : 'x'}),
    ];
}

// The one that was chosen gets dy; b [3] is repeated over the rows, and its gradient summed.
function where(v) {
    const N = last(v.b.shape), chosen = v.condition.values;
    const terms = like(v.dy, (e, i) => (chosen[i] ? 0 : e));
    return [
        step('da', 'da_{ij} = dy_{ij}\\,[c_{ij} \\ne 0]', like(v.dy, (e, i) => (chosen[i] ? e : 0)),
            {mark : 'where', gradient : 'a'}),
        step('terms', '\\text{each copy of } b: \\; dy_{ij}\\,[c_{ij} = 0]', terms, {mark : 'where'}),
        step('db', 'db_j = \\sum \\text{ over the copies}', {
            shape : [ N ],
            values : Array.from({length : N}, (_, j) => sum(rowsOf(terms).map((row) => row[j])))
        },
            {mark : 'broadcast', gradient : 'b'}),
    ];
}

// ---- Positions: D = 2, so that the one pair of position t is turned by the angle t ------------

const angles = (T) => [
    step('cos', 'c_t = \\cos(t)', column(Array.from({length : T}, (_, t) => Math.cos(t)))),
    step('sin', 's_t = \\sin(t)', column(Array.from({length : T}, (_, t) => Math.sin(t)))),
];
const turnedBack = (t) => ({
    shape : t.shape,
    values : rowsOf(t).flatMap(([ a, b ], i) => [a * Math.cos(i) + b * Math.sin(i),
                                   b * Math.cos(i) - a * Math.sin(i)])
});
const rope = (v) => [
    ...angles(v.x.shape[1]),
    step('dx', 'dx_t = \\begin{pmatrix} c_t & s_t \\\\ -s_t & c_t \\end{pmatrix} dy_t', turnedBack(v.dy),
        {mark : 'dx a', gradient : 'x'}),
];

// One head of each: row t of qkv is q, k and v of position t.
function ropeQkv(v) {
    const [dq, dk, dv] = v.cotangents, back = [ turnedBack(dq), turnedBack(dk), dv ].map(rowsOf);
    return [
        ...angles(v.qkv.shape[1]),
        step('q', 'R_t^T\\, dq_t', turnedBack(dq), {mark : 'dx a'}),
        step('k', 'R_t^T\\, dk_t', turnedBack(dk), {mark : 'dx a'}),
        step('dqkv', 'd\\mathrm{qkv} = (R^T dq,\\; R^T dk,\\; dv)', {
            shape : v.qkv.shape,
            values : back[0].flatMap((row, t) => [...row, ...back[1][t], ...back[2][t] ])
        },
            {mark : 'rope_qkv', gradient : 'qkv'}),
    ];
}

// One head of each, causal: the gradients of attention by R q, R k and v, the first two turned back.
function ropeAttention(v) {
    const heads = rowsOf(v.qkv), T = heads.length / 3;
    const part = (k, turned) => {
        const rows = heads.filter((_, i) => i % 3 === k);
        return {
            shape : [ T, 2 ],
            values : rows.flatMap(([ a, b ], t) => turned ? [a * Math.cos(t) - b * Math.sin(t),
                                                             a * Math.sin(t) + b * Math.cos(t)]
                                                          : [ a, b ])
        };
    };
    const steps = attention({
        ...v,
        q : part(0, true),
        k : part(1, true),
        v : part(2, false)
    }).map(({mark, gradient, ...rest}) => rest);
    const [dv, dq, dk] = [ 'dv', 'dq', 'dk' ].map(
        (name) => steps.find((s) => s.name === name).value);
    const back = [ turnedBack(dq), turnedBack(dk), dv ].map(rowsOf);
    return [
        ...angles(T),
        ...steps,
        step('dqkv', 'd\\mathrm{qkv} = (R^T dq,\\; R^T dk,\\; dv)', {
            shape : v.qkv.shape,
            values : back[0].flatMap((row, t) => [...row, ...back[1][t], ...back[2][t] ])
        },
            {mark : 'dqkv', gradient : 'qkv'}),
    ];
}

// ---- Shapes: dx = P^T dy, where y = P x --------------------------------------------------------

const sameOrder = (mark) => (v) => [step('dx', 'dx = dy \\text{, in the same order}',
    {shape : v.x.shape, values : v.dy.values}, {mark, gradient : 'x'})];

// Two dimensions, exchanged.
const permute = (v) => [step('dx', 'dx_{ij} = dy_{ji}', transposed(v.dy), {mark : 'permute', gradient : 'x'})];

// Rows 1 and 2 of 4.
const slice = (v) => [step('dx', 'dx_{ij} = dy_{i-1,\\,j} \\text{ for } i = 1, 2, \\text{ else } 0',
    grid(v.x.shape[0], v.x.shape[1], (i, j) => (i === 1 || i === 2 ? v.dy.values[(i - 1) * v.x.shape[1] + j] : 0)),
    {mark : 'slice', gradient : 'x'})];

const expand = (v) => [step('dx', 'dx_j = \\textstyle\\sum_i dy_{ij} \\text{, over the copies}', {
    shape : v.x.shape,
    values : v.x.values.map((_, j) => sum(rowsOf(v.dy).map((row) => row[j])))
},
    {mark : 'expand', gradient : 'x'})];

// Along the last axis of x [2, 3].
const flip = (v) => [step('dx', 'dx_{i,\\, n - 1 - j} = dy_{ij}',
    like(v.x, (_, i) => v.dy.values[Math.floor(i / 3) * 3 + 2 - i % 3]), {mark : 'flip', gradient : 'x'})];

// Of x [3, 3], and the main diagonal.
const triangle = (tex, kept, mark) => (v) => [step('dx', `dx_{ij} = dy_{ij} \\text{ where } ${tex} \\text{, else } 0`,
    like(v.x, (_, i) => (kept(Math.floor(i / 3), i % 3) ? v.dy.values[i] : 0)), {mark, gradient : 'x'})];

// Each input's rows of dy.
function concat(v) {
    const [a, b] = [ v['x[0]'], v['x[1]'] ], own = a.values.length;
    return [
        step('dx0', 'dx_0 = dy \\text{, its first rows}', {...a, values : v.dy.values.slice(0, own)},
            {mark : 'concat', gradient : 'x[0]'}),
        step('dx1', 'dx_1 = dy \\text{, the rows after them}', {...b, values : v.dy.values.slice(own)},
            {mark : 'concat', gradient : 'x[1]'}),
    ];
}

function embedding(v) {
    const C = last(v.table.shape), dy = rowsOf(v.dy);
    return [ step('dtable', 'd\\mathrm{table}_v = \\sum_{i:\\, \\mathrm{ids}_i = v} dy_i',
        grid(v.table.shape[0], C,
            (row, c) => sum(dy.map((values, i) => (v.ids.values[i] === row ? values[c] : 0)))),
        {mark : 'dtable', gradient : 'table'}) ];
}

// Along the last axis of x [2, 4], or of rows of index and src [2, 3].
const placeOf = (v, i, n) => Math.floor(i / last(v.index.shape)) * n + v.index.values[i];
function gather(v) {
    const n = last(v.x.shape), dx = like(v.x, () => 0);
    v.dy.values.forEach((e, i) => {
        dx.values[placeOf(v, i, n)] += e;
    });
    return [ step('dx', 'dx_k = \\sum_{i:\\, t_i = k} dy_i', dx, {mark : 'gather', gradient : 'x'}) ];
}
function scatterAdd(v) {
    const n = last(v.x.shape);
    return [
        step('dx', 'dx = dy', v.dy, {mark : 'scatter_add', gradient : 'x'}),
        step('ds', 'ds_i = dy_{t_i}', like(v.src, (_, i) => v.dy.values[placeOf(v, i, n)]),
            {mark : 'scatter_add', gradient : 'src'}),
    ];
}
function cumsum(v) {
    const dy = rowsOf(v.dy), [M, N] = v.x.shape;
    return [ step('dx', 'dx_j = \\sum_{i \\ge j} dy_i', grid(M, N, (i, j) => sum(dy[i].slice(j))),
        {mark : 'cumsum', gradient : 'x'}) ];
}

// Windows of 2 x 2, one place apart, of an image 3 x 3: element k of window p is at
// windowPlace(k, p), and the columns are 4 x 4.
const windowPlace = (k, p) => 3 * (Math.floor(p / 2) + Math.floor(k / 2)) + p % 2 + k % 2;
const unfolded = (image) => grid(4, 4, (k, p) => image.values[windowPlace(k, p)]);
const folded = (cols, image) => like(image, (_, m) => sum(cols.values.filter(
    (_, at) => windowPlace(Math.floor(at / 4), at % 4) === m)));
function unfold(v) {
    return [ step('dx', 'dx = \\mathrm{fold}(dU)', folded(v.dy, v.x), {mark : 'unfold', gradient : 'x'}) ];
}
function fold(v) {
    return [ step('dU', 'dU = \\mathrm{unfold}(dy)', {...unfolded(v.dy), shape : v.x.shape},
        {mark : 'fold', gradient : 'x'}) ];
}
function conv2d(v) {
    const cols = unfolded(v.x), dcols = grid(4, 4, (k, p) => v.weight.values[k] * v.dy.values[p]);
    return [
        step('U', 'U = \\mathrm{unfold}(x)', cols),
        step('dU', 'dU = w^T dy', dcols),
        step('dx', 'dx = \\mathrm{fold}(dU)', folded(dcols, v.x), {mark : 'conv2d dx', gradient : 'x'}),
        step('dw', 'dw = dy\\, U^T', like(v.weight, (_, k) => dot(rowsOf(cols)[k], v.dy.values)),
            {mark : 'conv2d dw', gradient : 'weight'}),
        step('db', 'db_o = \\sum_{b,p} dy_{op}', column([ sum(v.dy.values) ]),
            {mark : 'conv2d db', gradient : 'bias'}),
    ];
}
function convTranspose2d(v) {
    const cols = unfolded(v.dy), rows = rowsOf(cols);
    return [
        step('dU', 'dU = \\mathrm{unfold}(dy)', cols),
        step('dx', 'dx = w\\, dU', like(v.x, (_, p) => sum(rows.map((row, k) => v.weight.values[k] * row[p]))),
            {mark : 'conv_transpose2d dx', gradient : 'x'}),
        step('dw', 'dw = x\\, dU^T', like(v.weight, (_, k) => dot(rows[k], v.x.values)),
            {mark : 'conv_transpose2d dw', gradient : 'weight'}),
        step('db', 'db_o = \\sum_{b,p} dy_{bop}', column([ sum(v.dy.values) ]),
            {mark : 'conv_transpose2d db', gradient : 'bias'}),
    ];
}

// Windows of 2 x 2, one place apart, over x [1, 3, 3]: y [1, 2, 2].
const poolPlaces = (j) => [0, 1, 3, 4].map((k) => 3 * Math.floor(j / 2) + j % 2 + k);
function maxPool(v) {
    const x = v.x.values;
    const place = like(v.dy, (_, j) => poolPlaces(j).reduce((m, k) => (x[k] > x[m] ? k : m)));
    const dx = like(v.x, (_, k) => sum(v.dy.values.filter((_, j) => place.values[j] === k)));
    return [
        step('m', 'm_i \\text{, the place of the maximum}', place),
        step('dx', 'dx_k = \\sum_{i:\\; m_i = k} dy_i', dx, {mark : 'max_pool2d', gradient : 'x'}),
    ];
}
function avgPool(v) {
    const dx = like(v.x,
        (_, k) => sum(v.dy.values.filter((_, j) => poolPlaces(j).includes(k))) / 4);
    return [ step('dx', 'dx_k = \\frac{1}{K} \\sum_{i:\\; k \\in W_i} dy_i', dx,
        {mark : 'avg_pool2d', gradient : 'x'}) ];
}

// A row of three, with two mirrored columns on each side: y shows the places 2 1 0 1 2 1 0.
function pad(v) {
    const source = [ 2, 1, 0, 1, 2, 1, 0 ];
    return [ step('dx', 'dx_k = \\sum_{l:\\; c(l) = k} dy_l',
        like(v.x, (_, k) => sum(v.dy.values.filter((_, l) => source[l] === k))),
        {mark : 'pad', gradient : 'x'}) ];
}

// One row and one column: gates [1, T, 3 or 4], T steps from the state 0.
const squash = (x) => 1 / (1 + Math.exp(-x));
function gru(v) {
    const w = v.weight.values, bias = v.bias.values, a = rowsOf(v.gates), dy = v.dy.values;
    const h = [ 0 ], r = [], z = [], n = [], m = [];
    a.forEach((row, t) => {
        r.push(squash(row[0] + h[t] * w[0] + bias[0]));
        z.push(squash(row[1] + h[t] * w[1] + bias[1]));
        m.push(h[t] * w[2] + bias[2]);
        n.push(Math.tanh(row[2] + r[t] * m[t]));
        h.push((1 - z[t]) * n[t] + z[t] * h[t]);
    });
    const dh = [], dn = [], dr = [], dz = [], u = [];
    for (let t = a.length - 1, later = 0; t >= 0; t--) {
        dh[t] = later + dy[t];
        dn[t] = dh[t] * (1 - z[t]) * (1 - n[t] ** 2);
        dz[t] = dh[t] * (h[t] - n[t]) * z[t] * (1 - z[t]);
        dr[t] = dn[t] * m[t] * r[t] * (1 - r[t]);
        u[t] = [ dr[t], dz[t], dn[t] * r[t] ];
        later = dh[t] * z[t] + sum(u[t].map((e, k) => e * w[k]));
    }
    const steps = (values) => ({shape : [ a.length ], values});
    const over = (f) => Array.from({length : 3}, (_, k) => sum(u.map((row, t) => row[k] * f(t))));
    return [
        step('r', 'r_t', steps(r)),
        step('z', 'z_t', steps(z)),
        step('n', 'n_t', steps(n)),
        step('dh', 'dh_t = dy_t + \\text{what step } t + 1 \\text{ passes on}', steps(dh)),
        step('dn', 'dn_t = dh_t\\, (1 - z_t)(1 - n_t^2)', steps(dn), {mark : 'gru dn'}),
        step('dz', 'dz_t = dh_t\\, (h_{t-1} - n_t)\\, z_t (1 - z_t)', steps(dz), {mark : 'dz'}),
        step('dr', 'dr_t = dn_t\\, m_t\\, r_t (1 - r_t)', steps(dr), {mark : 'dr'}),
        step('da', '(dr_t, dz_t, dn_t)', like(v.gates, (_, i) =>
            [ dr, dz, dn ][i % 3][Math.floor(i / 3)]), {mark : 'gru dn', gradient : 'gates'}),
        step('dW', 'dW = \\sum_t u_t^T h_{t-1}', like(v.weight, (_, k) => over((t) => h[t])[k]),
            {mark : 'dweight', gradient : 'weight'}),
        step('db', 'db = \\sum_t u_t', like(v.bias, (_, k) => over(() => 1)[k]),
            {mark : 'dbias', gradient : 'bias'}),
    ];
}
function lstm(v) {
    const w = v.weight.values, bias = v.bias.values, a = rowsOf(v.gates), dy = v.dy.values;
    const h = [ 0 ], c = [ 0 ], gates = [];
    a.forEach((row, t) => {
        const [i, f, g, o] = row.map((e, k) => (k === 2 ? Math.tanh : squash)(e + h[t] * w[k] + bias[k]));
        gates.push([ i, f, g, o ]);
        c.push(f * c[t] + i * g);
        h.push(o * Math.tanh(c[t + 1]));
    });
    const dh = [], dc = [], u = [];
    const last = v.cotangents[1] ? v.cotangents[1].values[0] : 0;
    for (let t = a.length - 1, later = 0, cell = last; t >= 0; t--) {
        const [i, f, g, o] = gates[t], s = Math.tanh(c[t + 1]);
        dh[t] = later + dy[t];
        dc[t] = cell + dh[t] * o * (1 - s * s);
        u[t] = [
            dc[t] * g * i * (1 - i), dc[t] * c[t] * f * (1 - f), dc[t] * i * (1 - g * g),
            dh[t] * s * o * (1 - o)
        ];
        cell = dc[t] * f;
        later = sum(u[t].map((e, k) => e * w[k]));
    }
    const steps = (values) => ({shape : [ a.length ], values});
    const over = (f) => Array.from({length : 4}, (_, k) => sum(u.map((row, t) => row[k] * f(t))));
    return [
        step('gates', '(i, f, g, o)_t', {shape : [ a.length, 4 ], values : gates.flat()}),
        step('c', 'c_t', steps(c.slice(1))),
        step('dh', 'dh_t = dy_t + \\text{what step } t + 1 \\text{ passes on}', steps(dh)),
        step('dc', 'dc_t = dc_{t+1} f_{t+1} + dh_t\\, o_t\\, (1 - \\tanh^2(c_t))', steps(dc),
            {mark : 'lstm dc'}),
        step('da', 'u_t', like(v.gates, (_, k) => u[Math.floor(k / 4)][k % 4]),
            {mark : 'di', gradient : 'gates'}),
        step('dW', 'dW = \\sum_t u_t^T h_{t-1}', like(v.weight, (_, k) => over((t) => h[t])[k]),
            {mark : 'dweight', gradient : 'weight'}),
        step('db', 'db = \\sum_t u_t', like(v.bias, (_, k) => over(() => 1)[k]),
            {mark : 'dbias', gradient : 'bias'}),
    ];
}

function dropout(v) {
    const keep = like(v.x, (_, i) => (v.y.values[i] === 0 ? 0 : 1));
    return [
        step('k', 'k_i \\text{, from the random stream}', keep),
        step('dx', 'dx_i = dy_i\\, k_i / (1 - p)',
            like(v.x, (_, i) => v.dy.values[i] * keep.values[i] / 0.75),
            {mark : 'dx', gradient : 'x'}),
    ];
}

// ---- The examples --------------------------------------------------------------------------

// case: of the record; shapes: instead of its own; values, cotangents: instead of the pattern below.
const examples = {
    rms_norm : {
        case : 'rows4_cols64',
        eps : 1e-5,
        shapes : {x : [ 3, 8 ], weight : [ 8 ]},
        saves : [ 'rstd' ],
        steps : rmsNorm,
        blocks : 4,
        // the same with another eps: cases of the record that differ in nothing else
        variants : {
            'eps = 0' : [ 'no_eps', 0 ],
            'eps = 1e-5' : [ 'rows4_cols64', 1e-5 ],
            'eps = 0.5' : [ 'cols3', 0.5 ],
            'eps = 100' : [ 'large_eps', 100 ]
        },
        values : {
            x : [
                2, -1, 3, 0.5, -0.5, 1.5, -2, 1, 4, -3, 2.5, 1, -1.5, 0, -0.5, 2, -1, 3.5, -2.5, 1.5, 0,
                -3, 2.5, -0.5
            ],
            weight : Array(8).fill(1),
        },
    },
    layer_norm : {
        shapes : {x : [ 2, 4 ], weight : [ 4 ], bias : [ 4 ]},
        values : {weight : [ 1, 0.5, 2, 1.5 ]},
        saves : [ 'mean', 'rstd' ],
        steps : layerNorm,
        eps : 1e-5
    },
    batch_norm : {
        case : 'no_statistics',
        shapes : {x : [ 4, 2 ], weight : [ 2 ], bias : [ 2 ]},
        values : {weight : [ 2, 0.5 ]},
        saves : [ 'mean', 'rstd' ],
        steps : batchNorm,
        eps : 1e-5
    },
    group_norm : {
        case : 'images',
        shapes : {x : [ 1, 4, 2 ], weight : [ 4 ], bias : [ 4 ]},
        values : {weight : [ 1, 2, 0.5, 1.5 ]},
        saves : [ 'mean', 'rstd' ],
        steps : groupNorm,
        eps : 1e-5
    },
    batch_norm_fixed : {
        case : 'rows',
        shapes : {x : [ 3, 2 ], weight : [ 2 ], bias : [ 2 ], mean : [ 2 ], var : [ 2 ]},
        values : {weight : [ 2, 0.5 ], mean : [ 1, -1 ], var : [ 4, 0.25 ]},
        steps : batchNormFixed,
        eps : 1e-5
    },
    softmax : {shapes : {x : [ 2, 4 ]}, steps : softmax},
    log_softmax : {shapes : {x : [ 2, 4 ]}, steps : logSoftmax},
    cross_entropy : {
        shapes : {logits : [ 2, 4 ], targets : [ 2 ]},
        values : {targets : [ 1, 3 ]},
        cotangents : [ [ 1 ] ], // so that p minus one-hot is seen with its own sign
        saves : [ 'm', 'l' ],
        outputs : [ 'loss' ],
        steps : crossEntropy
    },
    linear_cross_entropy : {
        shapes : {x : [ 2, 3 ], weight : [ 4, 3 ], targets : [ 2 ]},
        values : {targets : [ 1, 3 ]},
        cotangents : [ [ 1 ] ],
        outputs : [ 'loss' ],
        steps : linearCrossEntropy
    },
    nll_loss : {
        case : 'mean_weight',
        shapes : {log_probs : [ 3, 2 ], targets : [ 3 ], weight : [ 2 ]},
        values : {targets : [ 1, 0, 1 ], weight : [ 1, 0.5 ]},
        cotangents : [ [ 1 ] ],
        outputs : [ 'loss' ],
        steps : nllLoss
    },
    swiglu : {shapes : {gate : [ 2, 3 ], up : [ 2, 3 ]}, steps : swiglu},
    linear : {shapes : {x : [ 3, 4 ], weight : [ 2, 4 ], bias : [ 2 ]}, steps : linear},
    matmul : {shapes : {a : [ 2, 3 ], b : [ 3, 2 ]}, outputs : [ 'c' ], steps : matmul},
    attention : {
        case : 'causal',
        causal : true,
        scale : 0.5,
        shapes : {q : [ 1, 3, 1, 2 ], k : [ 1, 3, 1, 2 ], v : [ 1, 3, 1, 2 ]},
        values : {
            q : [ 1, 0.5, -1, 2, 1.5, -0.5 ],
            k : [ 0.5, 1, -1, 0.75, 2, -0.25 ],
            v : [ 1, -0.5, 0.25, 2, -1.5, 1 ]
        },
        cotangents : [ [ 1, -1, 0.5, 2, -0.75, 1.5 ] ],
        saves : [ 'L' ],
        steps : attention
    },
    add_rms_norm : {
        shapes : {x : [ 2, 4 ], residual : [ 2, 4 ], weight : [ 4 ]},
        saves : [ 'rstd' ],
        outputs : [ 'y', 'sum' ],
        eps : 1e-5,
        steps : addRmsNorm
    },
    embedding : {
        shapes : {table : [ 4, 2 ], ids : [ 5 ]},
        values : {ids : [ 1, 3, 1, 0, 3 ]},
        steps : embedding
    },
    gather : {
        shapes : {x : [ 2, 4 ], index : [ 2, 3 ]},
        values : {index : [ 3, 0, 3, 1, 1, 2 ]},
        steps : gather
    },
    scatter_add : {
        shapes : {x : [ 2, 4 ], index : [ 2, 3 ], src : [ 2, 3 ]},
        values : {index : [ 3, 0, 3, 1, 1, 2 ]},
        steps : scatterAdd
    },
    cumsum : {shapes : {x : [ 2, 4 ]}, steps : cumsum},
    unfold : {case : 'two_by_two', steps : unfold},
    fold : {case : 'two_by_two', steps : fold},
    conv2d : {case : 'k2x2', steps : conv2d},
    conv_transpose2d : {case : 'k2x2', steps : convTranspose2d},
    max_pool2d : {case : 'corners', shapes : {x : [ 1, 3, 3 ]}, steps : maxPool},
    avg_pool2d : {case : 'corners', shapes : {x : [ 1, 3, 3 ]}, steps : avgPool},
    pad : {case : 'mirrored_row', shapes : {x : [ 3 ]}, steps : pad},
    lstm : {
        case : 'bias_alone',
        shapes : {gates : [ 1, 3, 4 ], weight : [ 4, 1 ], bias : [ 4 ]},
        outputs : [ 'y', 'c' ],
        steps : lstm
    },
    gru : {
        case : 'bias_alone',
        shapes : {gates : [ 1, 3, 3 ], weight : [ 3, 1 ], bias : [ 3 ]},
        steps : gru
    },
    dropout : {case : 'p0.25_7x19', shapes : {x : [ 4, 4 ]}, steps : dropout},
    rope : {case : 'one_pair', shapes : {x : [ 1, 3, 1, 2 ]}, steps : rope},
    rope_qkv : {shapes : {qkv : [ 1, 2, 3, 2 ]}, outputs : [ 'q', 'k', 'v' ], steps : ropeQkv},
    rope_attention : {
        case : 'causal',
        causal : true,
        scale : 0.5,
        shapes : {qkv : [ 1, 3, 3, 2 ]},
        saves : [ 'L', 'R q', 'R k', 'v' ],
        steps : ropeAttention
    },
    reshape : {steps : sameOrder('reshape')},
    contiguous : {steps : sameOrder('contiguous')},
    cast : {steps : sameOrder('cast')},
    permute : {steps : permute},
    slice : {case : 'rows', steps : slice},
    expand : {steps : expand},
    concat : {steps : concat},
    flip : {case : 'rows', shapes : {x : [ 2, 3 ]}, steps : flip},
    tril : {case : 'square', shapes : {x : [ 3, 3 ]}, steps : triangle('j \\le i', (i, j) => j <= i, 'tril')},
    triu : {case : 'square', shapes : {x : [ 3, 3 ]}, steps : triangle('j \\ge i', (i, j) => j >= i, 'triu')},
    masked_fill : {
        shapes : {x : [ 2, 3 ], mask : [ 2, 3 ]},
        values : {mask : [ 1, 0, 0, 1, 0, 1 ]},
        steps : (v) => [step('dx', 'dx_i = dy_i\\, [\\mathrm{mask}_i = 0]',
            like(v.x, (_, i) => (v.mask.values[i] ? 0 : v.dy.values[i])),
            {mark : 'masked_fill', gradient : 'x'})]
    },
    where : {
        shapes : {condition : [ 2, 3 ], a : [ 2, 3 ], b : [ 3 ]},
        values : {condition : [ 1, 0, 1, 0, 1, 0 ]},
        steps : where
    },
    sum : {case : 'rows', shapes : {x : [ 2, 4 ]}, steps : reduction('1', () => 1, 'sum')},
    mean : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        steps : reduction('1 / n', (row) => 1 / row.length, 'mean')
    },
    max : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        values : {x : [ 0.5, 2, -1, 2, 1.5, -0.5, 0.25, 1 ]}, // a tie in the first row
        steps : reduction('[x_j = y] / k',
            (row, j, y) => (row[j] === y ? 1 / row.filter((e) => e === y).length : 0), 'max')
    },
    prod : {
        case : 'rows',
        shapes : {x : [ 2, 3 ]},
        values : {x : [ 2, -0.5, 3, 1.5, 0, -2 ]}, // a zero in the second row
        steps : prod
    },
    norm : {
        case : 'rows', // p = 2
        shapes : {x : [ 2, 4 ]},
        steps : reduction('x_j / y', (row, j, y) => row[j] / y, 'norm')
    },
    logsumexp : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        steps : reduction('e^{x_j - y}', (row, j, y) => Math.exp(row[j] - y), 'logsumexp')
    },
    var : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        saves : [ 'mean' ],
        steps : variance((n) => 2 / n, '2 / n', 'var')
    },
    std : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        saves : [ 'mean', 's' ],
        steps : variance((n, s) => 1 / (n * s), '1 / (n s)', 'std')
    },
};
for (const [name, slopes] of Object.entries(pairLosses)) {
    examples[name] = {
        case : 'none',
        shapes : {x : [ 2, 3 ], target : [ 2, 3 ]},
        outputs : [ 'loss' ],
        steps : pairLoss(slopes, name)
    };
}
for (const [name, part] of Object.entries(parts))
    examples[name] = {shapes : {a : [ 2, 3 ], b : [ 3 ]}, steps : binary(part, name)};
for (const [name, slope] of Object.entries(slopes))
    examples[name] = {shapes : {x : [ 2, 4 ]}, steps : unary(slope, name)};

// Where the usual numbers do not have every branch of a formula: a smaller, a larger and an equal one; errors
// on both sides of a limit; an element at a limit.
const differences = {x : [ 0.5, -1.5, 0.25, -0.25, 1, -1 ], target : [ 0.25, 1.09, -0.25, -0.25, -1.45, 0.36 ]};
for (const name of [ 'maximum', 'minimum' ]) examples[name].values = {a : [ 0.5, -1.5, 0.25, 2, 1, -1 ], b : [ 0.5, -1, 1 ]};
for (const name of Object.keys(pairLosses))
    if (name !== 'kl_div') examples[name].values = name === 'bce_with_logits' ? undefined : differences;
for (const name of [ 'clamp', 'hardtanh' ]) examples[name].values = {x : [ -2.73, 0, 2.73, -1, 1.5, -1.09, 1.25, -0.64 ]};

// ---- Numbers to begin with -----------------------------------------------------------------

const pattern = [ 0.5, -1, 1.5, -0.25, 2, -1.5, 0.75, -0.5, 1, -2, 0.25, 1.25 ];
const rounded = (v) => Math.round(v * 100) / 100;
const count = (shape) => shape.reduce((a, b) => a * b, 1);
const kinds = {
    NORMAL : 0,
    UNIFORM : 1,
    DISTINCT : 2,
    CONSTANT : 3,
    INDEX : 4
};

function fill(input, shape, k) {
    const {fill : kind, a, b} = input;
    return Array.from({length : count(shape)}, (_, i) => {
        const p = pattern[(5 * i + 7 * k) % 12];
        if (kind === kinds.UNIFORM)
            return rounded(a + (b - a) * (((5 * i + 3 * k) % 11) + 0.5) / 11);
        if (kind === kinds.CONSTANT) return a;
        if (kind === kinds.INDEX) return a + ((7 * i + 3) % (b - a));
        if (kind === kinds.DISTINCT) return rounded(p + 0.02 * Math.floor(i / 12));
        return rounded(a + (b || 1) * p);
    });
}

// The example of an op, with numbers: what Gradus.run takes, and what worked.js shows.
function example(gradus, op) {
    const own = examples[op] || {}, record = gradus.find(op);
    const small = (c) =>
        c.inputs.every((i) => i.absent || (count(i.shape) > 1 && count(i.shape) <= 24));
    const check = record.cases.find((c) => c.name === own.case) ||
                  (own.shapes ? record.cases[0] : record.cases.find(small) || record.cases[0]);
    const shapes = {}, inputs = {};
    check.inputs.forEach((input, k) => {
        if (input.absent) return;
        shapes[input.name] = (own.shapes && own.shapes[input.name]) || input.shape;
        inputs[input.name] = own.values && own.values[input.name]
                                 ? [...own.values[input.name] ]
                                 : fill(input, shapes[input.name], k);
    });
    const request = {op, case : check.name, shapes, inputs};
    const first = gradus.run(request);
    request.cotangents = first.outputs.map((t, k) => {
        if (!t) return [];
        return own.cotangents ? [...own.cotangents[k] ] : fill({fill : 0, a : 0, b : 1}, t.shape, 3 + k);
    });
    return {request, check, own};
}

// What the steps of an example are computed from.
function steps({request, check, own}, result) {
    if (!own.steps || result.error) return [];
    const cotangents = result.outputs.map((t, k) => ({...t, values : request.cotangents[k]}));
    const v = {
        outputs : result.outputs,
        cotangents,
        eps : own.eps,
        causal : own.causal,
        scale : own.scale,
        y : result.outputs[0],
        dy : cotangents[0]
    };
    for (const input of check.inputs)
        if (!input.absent)
            v[input.name] = {
                shape : request.shapes[input.name],
                values : request.inputs[input.name]
            };
    return own.steps(v);
}

const api = {
    example,
    steps,
    examples,
    count
};
root.examples = api;
if (typeof module !== 'undefined') module.exports = api;
})(globalThis);
