// practice.js - an exercise for every op that has a backward and no rung on the ladder of exercises.js.
// Where a backward is long, all of it is given but one line, which is chosen from a few.
(function(root) {
'use strict';

// ---- Functions of one and two elements: [op, what one may think, what is right, numbers, why it is not so, if
// gradcheck has no word for it] ---------------------------------------------------------------------

const written = (name, rows) => rows.map(([ op, begin, answer, numbers, because ]) => ({
    op,
    case : name,
    numbers,
    begin,
    answer,
    mistakes : because && {[because] : begin}
}));

const slopes = [
    [ 'neg', 'dx = dy', 'dx = -dy' ],
    [ 'scale', 'dx = dy * x', 'dx = dy * factor', {factor : -2.5} ],
    [ 'add_scalar', 'dx = dy * term', 'dx = dy', {term : 0.75} ],
    [ 'exp', 'dx = dy', 'dx = dy * y' ],
    [ 'log', 'dx = dy * y', 'dx = dy / x' ],
    [ 'log1p', 'dx = dy / x', 'dx = dy / (1 + x)' ],
    [ 'expm1', 'dx = dy * y', 'dx = dy * (y + 1)' ],
    [ 'sqrt', 'dx = dy / y', 'dx = dy / (2 * y)' ],
    [ 'rsqrt', 'dx = dy * y / 2', 'dx = -dy * y * y * y / 2' ],
    [ 'reciprocal', 'dx = dy / (x * x)', 'dx = -dy / (x * x)' ],
    [ 'sin', 'dx = dy * sin(x)', 'dx = dy * cos(x)' ],
    [ 'cos', 'dx = dy * sin(x)', 'dx = -dy * sin(x)' ],
    [ 'atan', 'dx = dy / (1 - x * x)', 'dx = dy / (1 + x * x)', {}, 'that is the slope of atanh: here x * x is added' ],
    [ 'tanh', 'dx = dy * (1 - y)', 'dx = dy * (1 - y * y)' ],
    [ 'erf', 'dx = dy * exp(-x * x)', 'dx = dy * 2 / sqrt(pi) * exp(-x * x)', {pi : Math.PI} ],
    [ 'softplus', 'dx = dy * exp(x)', 'dx = dy / (1 + exp(-x))' ],
    [ 'clamp', 'dx = dy', 'dx = x >= low ? x <= high ? dy : 0 : 0', {low : -1, high : 1.5} ],
    [ 'hardtanh', 'dx = dy', 'dx = x > low ? x < high ? dy : 0 : 0', {low : -1, high : 1.5} ],
    [ 'relu', 'dx = y * dy', 'dx = y > 0 ? dy : 0' ],
    [ 'leaky_relu', 'dx = x > 0 ? dy : 0', 'dx = x > 0 ? dy : slope * dy', {slope : 0.1} ],
    [ 'elu', 'dx = x > 0 ? dy : dy * alpha', 'dx = x > 0 ? dy : dy * alpha * exp(x)', {alpha : 0.75}, 'as if elu were a line below 0: its slope there is alpha exp(x)' ],
    [
        'gelu', 'dx = dy * (1 + erf(x / sqrt(2))) / 2',
        'dx = dy * ((1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi))', {pi : Math.PI}
    ],
    [
        'gelu_tanh', 'u = sqrt(2 / pi) * (x + 0.044715 * x * x * x)\nt = tanh(u)\ndx = dy * (1 + t) / 2',
        'u = sqrt(2 / pi) * (x + 0.044715 * x * x * x)\nt = tanh(u)\ndx = dy * ((1 + t) / 2 + x / 2 * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x))',
        {pi : Math.PI}
    ],
    [ 'silu', 's = 1 / (1 + exp(-x))\ndx = dy * s', 's = 1 / (1 + exp(-x))\ndx = dy * (s + y * (1 - s))' ],
    [
        'mish', 't = tanh(log(1 + exp(x)))\ndx = dy * t',
        't = tanh(log(1 + exp(x)))\ndx = dy * (t + x * (1 - t * t) / (1 + exp(-x)))'
    ],
    [ 'abs', 'dx = dy', 'dx = x > 0 ? dy : -dy' ],
    [ 'sign', 'dx = dy', 'dx = 0' ], [ 'floor', 'dx = dy', 'dx = 0' ], [ 'ceil', 'dx = dy', 'dx = 0' ],
    [ 'round', 'dx = dy', 'dx = 0' ]
];

const pairs = [
    [ 'sub', 'da = dy\ndb = dy', 'da = dy\ndb = -dy' ],
    [ 'div', 'da = dy / b\ndb = dy / a', 'da = dy / b\ndb = -dy * a / (b * b)' ],
    [ 'maximum', 'da = dy\ndb = dy', 'da = a > b ? dy : 0\ndb = b > a ? dy : 0' ],
    [ 'minimum', 'da = dy\ndb = dy', 'da = a < b ? dy : 0\ndb = b < a ? dy : 0' ],
    [
        'pow_tensor', 'da = dy * b * pow(a, b - 1)\ndb = dy * y',
        'da = dy * b * pow(a, b - 1)\ndb = dy * y * log(a)'
    ]
];

const losses = [
    [ 'mse_loss', 'dx = dloss * (x - target)\ndtarget = -dloss * (x - target)', 'dx = dloss * 2 * (x - target)\ndtarget = -dloss * 2 * (x - target)' ],
    [ 'l1_loss', 'dx = dloss\ndtarget = -dloss', 'dx = x > target ? dloss : -dloss\ndtarget = x > target ? -dloss : dloss' ],
    [
        'huber_loss', 't = x - target\ndx = dloss * t\ndtarget = -dloss * t',
        't = x - target\ns = abs(t) < delta ? t : t > 0 ? delta : -delta\ndx = dloss * s\ndtarget = -dloss * s', {delta : 0.75}
    ],
    [
        'smooth_l1_loss', 't = x - target\ndx = dloss * t / beta\ndtarget = -dloss * t / beta',
        't = x - target\ns = abs(t) < beta ? t / beta : t > 0 ? 1 : -1\ndx = dloss * s\ndtarget = -dloss * s', {beta : 0.75}
    ],
    [
        'bce_with_logits', 's = 1 / (1 + exp(-x))\ndx = dloss * (s - target) * s * (1 - s)\ndtarget = -dloss * x',
        's = 1 / (1 + exp(-x))\ndx = dloss * (s - target)\ndtarget = -dloss * x', {},
        'the slope of the sigmoid, s (1 - s), is in it once too often: it cancels with that of the logarithms'
    ],
    [ 'kl_div', 'dx = dloss * target\ndtarget = dloss * (log(target) - x)', 'dx = -dloss * target\ndtarget = dloss * (log(target) - x + 1)' ]
];

// ---- Sums, norms, products: written in full ------------------------------------------------------

const EPS = {eps : 1e-5};
const rows = (op, begin, answer, more = {}) => ({op, begin, answer, ...more});

const tensors = [
    rows('add', 'da[i, k] = dy[i, k]\ndb[k] = dy[0, k]', 'da[i, k] = dy[i, k]\ndb[k] = sum(i, dy[i, k])',
        {case : 'b_row', says : 'y[i, k] = a[i, k] + b[k]: every row uses the same b.'}),
    rows('sum', 'dx[i, k] = dy[i] * x[i, k]', 'dx[i, k] = dy[i]', {case : 'rows', says : 'y[i] is the sum of row i of x.'}),
    rows('max', 'dx[i, k] = dy[i]', 'dx[i, k] = x[i, k] == y[i] ? dy[i] : 0', {case : 'rows', says : 'y[i] is the maximum of row i of x; no two elements are equal.'}),
    rows('prod', 'dx[i, k] = dy[i] * y[i]', 'dx[i, k] = dy[i] * y[i] / x[i, k]', {case : 'rows', says : 'y[i] is the product of row i of x; no element is 0.', mistakes : {'as if an element were a factor of its own slope: divide y by it' : 'dx[i, k] = dy[i] * y[i]'}}),
    rows('norm', 'dx[i, k] = dy[i, 0] * x[i, k]', 'dx[i, k] = dy[i, 0] * x[i, k] / y[i, 0]', {case : 'rows', says : 'y[i, 0] = sqrt(sum(k, x[i, k] * x[i, k])).'}),
    rows('var', 'm[i] = mean(k, x[i, k])\ndx[i, k] = dy[i] * 2 * x[i, k] / 11', 'm[i] = mean(k, x[i, k])\ndx[i, k] = dy[i] * 2 * (x[i, k] - m[i]) / 11',
        {case : 'rows', says : 'y[i] is the variance of row i of x, 11 elements: the mean of the squares of x - mean.'}),
    rows('std', 'm[i] = mean(k, x[i, k])\ndx[i, k] = dy[i] * (x[i, k] - m[i]) / 11', 'm[i] = mean(k, x[i, k])\ndx[i, k] = dy[i] * (x[i, k] - m[i]) / (11 * y[i])',
        {case : 'rows', says : 'y[i] is the standard deviation of row i of x, 11 elements: the root of the mean of the squares of x - mean.'}),
    rows('log_softmax', 'dx[i, k] = dy[i, k] - exp(y[i, k])', 'dx[i, k] = dy[i, k] - exp(y[i, k]) * sum(j, dy[i, j])',
        {case : 'rows5_cols17', says : 'y[i, k] = x[i, k] - log(sum(j, exp(x[i, j]))), and y is given.'}),
    rows('cumsum', 'dx[i, k] = sum(j, j <= k ? dy[i, j] : 0)', 'dx[i, k] = sum(j, j >= k ? dy[i, j] : 0)', {case : 'rows', says : 'y[i, k] is the sum of x[i, 0] to x[i, k].'}),
    rows('linear', 'dx[i, k] = sum(j, dy[i, j] * weight[j, k])\ndweight[j, k] = sum(i, dy[i, j] * x[i, k])\ndbias[j] = 1',
        'dx[i, k] = sum(j, dy[i, j] * weight[j, k])\ndweight[j, k] = sum(i, dy[i, j] * x[i, k])\ndbias[j] = sum(i, dy[i, j])',
        {case : 'rows4_5_to_7', says : 'y[i, j] = sum(k, x[i, k] * weight[j, k]) + bias[j].'}),
    rows('embedding', 'dtable[v, d] = sum(a, sum(b, ids[a, b] == v ? 1 : 0))', 'dtable[v, d] = sum(a, sum(b, ids[a, b] == v ? dy[a, b, d] : 0))',
        {case : 'v11_c5_ids2x7', says : 'y[a, b, d] = table[ids[a, b], d]: an id may occur more than once.'}),
    rows('gather', 'dx[i, k] = sum(j, index[i, j] == k ? 1 : 0)', 'dx[i, k] = sum(j, index[i, j] == k ? dy[i, j] : 0)', {case : 'rows', says : 'y[i, j] = x[i, index[i, j]].'}),
    rows('scatter_add', 'dx[i, k] = dy[i, k]\ndsrc[i, j] = dy[i, j]', 'dx[i, k] = dy[i, k]\ndsrc[i, j] = dy[i, index[i, j]]',
        {case : 'rows', says : 'y is x, and then y[i, index[i, j]] += src[i, j] for each i and j.'}),
    rows('nll_loss', 'dlog_probs[i, j] = -dloss * (j == targets[i])', 'dlog_probs[i, j] = -dloss / 5 * (j == targets[i])',
        {case : 'mean_5x11', says : 'loss is the mean over the 5 rows of -log_probs[i, targets[i]].'}),
    rows('dropout', 'dx[i, k] = y[i, k] == 0 ? 0 : dy[i, k]', 'dx[i, k] = y[i, k] == 0 ? 0 : dy[i, k] / (1 - p)',
        {case : 'p0.25_7x19', numbers : {p : 0.25}, says : 'y is x / (1 - p), or 0 where an element is dropped; no x is 0.'}),
    rows('layer_norm',
        'm[i] = mean(k, x[i, k])\nrstd[i] = 1 / sqrt(mean(k, (x[i, k] - m[i]) * (x[i, k] - m[i])) + eps)\nxhat[i, k] = (x[i, k] - m[i]) * rstd[i]\nh[i, k] = dy[i, k] * weight[k]\nm2[i] = mean(k, h[i, k] * xhat[i, k])\ndx[i, k] = rstd[i] * (h[i, k] - xhat[i, k] * m2[i])\ndweight[k] = sum(i, dy[i, k] * xhat[i, k])\ndbias[k] = sum(i, dy[i, k])',
        'm[i] = mean(k, x[i, k])\nrstd[i] = 1 / sqrt(mean(k, (x[i, k] - m[i]) * (x[i, k] - m[i])) + eps)\nxhat[i, k] = (x[i, k] - m[i]) * rstd[i]\nh[i, k] = dy[i, k] * weight[k]\nm1[i] = mean(k, h[i, k])\nm2[i] = mean(k, h[i, k] * xhat[i, k])\ndx[i, k] = rstd[i] * (h[i, k] - m1[i] - xhat[i, k] * m2[i])\ndweight[k] = sum(i, dy[i, k] * xhat[i, k])\ndbias[k] = sum(i, dy[i, k])',
        {case : 'rows4_cols64', numbers : EPS, says : 'y[i, k] = xhat[i, k] * weight[k] + bias[k]; the box begins with the backward of RMSNorm.'}),
    rows('batch_norm_fixed',
        'rstd[c] = 1 / sqrt(var[c] + eps)\ndx[b, c, i, j] = dy[b, c, i, j] * weight[c]\ndweight[c] = sum(b, sum(i, sum(j, dy[b, c, i, j] * (x[b, c, i, j] - mean[c]) * rstd[c])))\ndbias[c] = sum(b, sum(i, sum(j, dy[b, c, i, j])))',
        'rstd[c] = 1 / sqrt(var[c] + eps)\ndx[b, c, i, j] = dy[b, c, i, j] * weight[c] * rstd[c]\ndweight[c] = sum(b, sum(i, sum(j, dy[b, c, i, j] * (x[b, c, i, j] - mean[c]) * rstd[c])))\ndbias[c] = sum(b, sum(i, sum(j, dy[b, c, i, j])))',
        {case : 'images', numbers : EPS, says : 'y = (x - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]; mean and var are given and have no gradient.'}),
    rows('permute', 'dx[i, k] = dy[i, 0]', 'dx[i, k] = dy[k, i]',
        {case : '3x5', says : 'y[k, i] = x[i, k], a transpose.', mistakes : {'every element of x has a place of its own in y' : 'dx[i, k] = dy[i, 0]'}}),
    rows('flip', 'dx[i, k] = dy[i, k]', 'dx[i, k] = dy[i, 4 - k]', {case : 'rows', says : 'y[i, k] = x[i, 4 - k]: each row in reverse.'}),
    rows('tril', 'dx[i, k] = dy[i, k]', 'dx[i, k] = k <= i ? dy[i, k] : 0', {case : 'square', says : 'y[i, k] is x[i, k] on and below the diagonal, and 0 above it.'}),
    rows('triu', 'dx[i, k] = dy[i, k]', 'dx[i, k] = k >= i ? dy[i, k] : 0', {case : 'square', says : 'y[i, k] is x[i, k] on and above the diagonal, and 0 below it.'}),
    rows('slice', 'dx[i, k] = i < 2 ? dy[i, k] : 0', 'dx[i, k] = i >= 1 ? i < 3 ? dy[i - 1, k] : 0 : 0', {case : 'rows', says : 'y is rows 1 and 2 of x, which has 4.', mistakes : {'as if y were rows 0 and 1' : 'dx[i, k] = i < 2 ? dy[i, k] : 0'}}),
    rows('expand', 'dx[k] = dy[0, k]', 'dx[k] = sum(i, dy[i, k])', {case : 'row_to_4x3', says : 'y[i, k] = x[k], for 4 rows i.'}),
    rows('concat', 'dx0[i, k] = dy[i, k]\ndx1[i, k] = dy[i, k]', 'dx0[i, k] = dy[i, k]\ndx1[i, k] = dy[i + 2, k]', {case : 'rows', says : 'y is the 2 rows of x0, and then the 3 rows of x1.'}),
    rows('reshape', 'dx[i, k] = dy[i, floor(k / 2)]', 'n[i, k] = 4 * i + k + 0 * x[i, k]\ndx[i, k] = dy[floor(n[i, k] / 2), n[i, k] - 2 * floor(n[i, k] / 2)]',
        {case : '3x4_to_6x2', says : 'x is [3, 4], and y is [6, 2] with the same elements in the same order.',
            mistakes : {'every element of x has a place of its own in y' : 'dx[i, k] = dy[i, floor(k / 2)]'}}),
    rows('contiguous', 'dx[i, k] = dy[i, k] * x[i, k]', 'dx[i, k] = dy[i, k]', {case : '3x4', says : 'y is x, packed: the numbers do not change.'}),
    rows('cast', 'dx[i, k] = dy[i, k] * x[i, k]', 'dx[i, k] = dy[i, k]', {case : 'to_float64', says : 'y is x in another dtype.'}),
    rows('pad', 'dx[b, i, j] = dy[b, i, j]', 'dx[b, i, j] = dy[b, i + 1, j + 2]', {case : 'constant', says : 'y has a row of 0.5 above x, two columns of it to the left, and three to the right.'}),
    rows('avg_pool2d', 'dx[b, c, i, j] = dy[b, c, floor(i / 2), floor(j / 2)]', 'dx[b, c, i, j] = dy[b, c, floor(i / 2), floor(j / 2)] / 4',
        {case : 'halves', says : 'y[b, c, i, j] is the mean of the four elements x[b, c, 2 i, 2 j] to x[b, c, 2 i + 1, 2 j + 1].'})
];

// ---- A line to choose: all is given but line `at` of the answer (from 0) ---------------------------

// because: words for those that gradcheck has none for, by their number.
const choose = (op, name, says, answer, at, wrong, {because = {}, ...more} = {}) => ({
    op,
    case : name,
    says,
    answer,
    at,
    wrong,
    mistakes : Object.fromEntries(Object.entries(because).map(([ i, words ]) => [words, answer.split('\n').map((line, k) => (k === at ? wrong[i] : line)).join('\n')])),
    ...more
});

// Rotations of halves of 4 features, at position t: of q, k or what is named.
const ANGLE = (i) => `t * pow(10000, -2 * ${i} / 8)`;
const turned = (to, from, sign, axis = 'h') => `${to}[b, t, h, i] = i < 4 ? ${from}[b, t, ${axis}, i] * cos(${ANGLE('i')}) ${sign} ${from}[b, t, ${axis}, i + 4] * sin(${ANGLE('i')}) : ${
    from}[b, t, ${axis}, i] * cos(${ANGLE('(i - 4)')}) ${sign === '+' ? '-' : '+'} ${from}[b, t, ${axis}, i - 4] * sin(${ANGLE('(i - 4)')})`;
const back = turned('dx', 'dy', '+');

const lstm = [
    'a[b, g] = gates[b, 0, g] + sum(j, state[b, j] * weight[g, j]) + bias[g]',
    'i[b, k] = 1 / (1 + exp(-a[b, k + 0])) + 0 * state[b, k]', 'f[b, k] = 1 / (1 + exp(-a[b, k + 2])) + 0 * state[b, k]',
    'n[b, k] = tanh(a[b, k + 4]) + 0 * state[b, k]', 'o[b, k] = 1 / (1 + exp(-a[b, k + 6])) + 0 * state[b, k]',
    'tc[b, k] = tanh(c[b, k])',
    'dct[b, k] = dc[b, k] + dy[b, 0, k] * o[b, k] * (1 - tc[b, k] * tc[b, k])',
    'dgates[b, t, g] = g < 2 ? dct[b, g] * n[b, g] * i[b, g] * (1 - i[b, g]) : g < 4 ? dct[b, g - 2] * cell[b, g - 2] * f[b, g - 2] * (1 - f[b, g - 2]) : g < 6 ? dct[b, g - 4] * i[b, g - 4] * (1 - n[b, g - 4] * n[b, g - 4]) : dy[b, 0, g - 6] * tc[b, g - 6] * o[b, g - 6] * (1 - o[b, g - 6])',
    'dweight[g, j] = sum(b, dgates[b, 0, g] * state[b, j])', 'dbias[g] = sum(b, dgates[b, 0, g])',
    'dstate[b, j] = sum(g, dgates[b, 0, g] * weight[g, j])', 'dcell[b, k] = dct[b, k] * f[b, k]'
].join('\n');
const gru = [
    'm[b, g] = sum(j, state[b, j] * weight[g, j]) + bias[g]',
    'r[b, k] = 1 / (1 + exp(-gates[b, 0, k + 0] - m[b, k + 0])) + 0 * state[b, k]',
    'z[b, k] = 1 / (1 + exp(-gates[b, 0, k + 2] - m[b, k + 2])) + 0 * state[b, k]',
    'n[b, k] = tanh(gates[b, 0, k + 4] + r[b, k] * m[b, k + 4])',
    'dn[b, k] = dy[b, 0, k] * (1 - z[b, k]) * (1 - n[b, k] * n[b, k])',
    'dz[b, k] = dy[b, 0, k] * (state[b, k] - n[b, k]) * z[b, k] * (1 - z[b, k])',
    'dr[b, k] = dn[b, k] * m[b, k + 4] * r[b, k] * (1 - r[b, k])',
    'dgates[b, t, g] = g < 2 ? dr[b, g] : g < 4 ? dz[b, g - 2] : dn[b, g - 4]',
    'dm[b, g] = (g < 4 ? dgates[b, 0, g] : dn[b, g - 4] * r[b, g - 4]) + 0 * m[b, g]',
    'dweight[g, j] = sum(b, dm[b, g] * state[b, j])', 'dbias[g] = sum(b, dm[b, g])',
    'dstate[b, j] = dy[b, 0, j] * z[b, j] + sum(g, dm[b, g] * weight[g, j])'
].join('\n');
const ropeAttention = [
    turned('q', 'qkv', '-', '0').replace('q[b, t, h, i]', 'q[b, t, i]'), turned('k', 'qkv', '-', '1').replace('k[b, t, h, i]', 'k[b, t, i]'),
    'e[b, t, s] = exp(scale * sum(d, q[b, t, d] * k[b, s, d]))', 'p[b, t, s] = e[b, t, s] / sum(r, e[b, t, r])',
    'dp[b, t, s] = sum(d, dy[b, t, 0, d] * qkv[b, s, 2, d])',
    'ds[b, t, s] = p[b, t, s] * (dp[b, t, s] - sum(r, p[b, t, r] * dp[b, t, r]))',
    'dq[b, t, h, d] = scale * sum(s, ds[b, t, s] * k[b, s, d]) + 0 * y[b, t, h, d]', 'dk[b, t, h, d] = scale * sum(s, ds[b, s, t] * q[b, s, d]) + 0 * y[b, t, h, d]',
    'dv[b, t, d] = sum(s, p[b, s, t] * dy[b, s, 0, d])',
    turned('uq', 'dq', '+', '0').replace('uq[b, t, h, i]', 'uq[b, t, i]'), turned('uk', 'dk', '+', '0').replace('uk[b, t, h, i]', 'uk[b, t, i]'),
    'dqkv[b, t, h, i] = h == 0 ? uq[b, t, i] : h == 1 ? uk[b, t, i] : dv[b, t, i]'
].join('\n');

const long = [
    choose('rope', 'halves_2x5x3x8', 'The pairs (x[i], x[i + 4]) are rotated by the angle t base^(-2i/8) at position t.', back, 0,
        [ turned('dx', 'dy', '-'), turned('dx', 'x', '+'), back.replace(/t \* pow/g, '(t + 1) * pow') ]),
    choose('rope_qkv', 'one_each_2x5x3x8', 'Of the three heads of qkv the first becomes q and the second k, both rotated, and the third v, unchanged.',
        [ turned('uq', 'dq', '+'), turned('uk', 'dk', '+'), 'dqkv[b, t, h, i] = h == 0 ? uq[b, t, 0, i] : h == 1 ? uk[b, t, 0, i] : dv[b, t, 0, i]' ].join('\n'), 2,
        [
            'dqkv[b, t, h, i] = h == 0 ? dq[b, t, 0, i] : h == 1 ? dk[b, t, 0, i] : dv[b, t, 0, i]',
            'dqkv[b, t, h, i] = uq[b, t, 0, i] + uk[b, t, 0, i] + dv[b, t, 0, i]',
            'dqkv[b, t, h, i] = h == 0 ? uk[b, t, 0, i] : h == 1 ? uq[b, t, 0, i] : dv[b, t, 0, i]'
        ],
        {because : ['as if q and k were not rotated: dq and dk have to be rotated back', 'each head gets the gradients of all three']}),
    choose('rope_attention', 'full', 'Of the three heads of qkv the first is q and the second k, both rotated, the third v; y = softmax(scale q k^T) v.', ropeAttention, 5,
        [
            'ds[b, t, s] = p[b, t, s] * dp[b, t, s]', 'ds[b, t, s] = p[b, t, s] * (dp[b, t, s] - sum(r, dp[b, t, r]))',
            'ds[b, t, s] = p[b, t, s] * (dp[b, t, s] + sum(r, p[b, t, r] * dp[b, t, r]))'
        ],
        {
            numbers : {scale : 0.5},
            because : [
                'as if the weights were independent: each row of p adds up to 1', 'the mean that is subtracted is weighted by p', 'the weighted mean has to be subtracted'
            ]
        }),
    choose('swiglu', '3x17', 'y = silu(gate) up, silu(z) = z / (1 + exp(-z)).',
        'n[i, k] = 1 / (1 + exp(-gate[i, k]))\ndup[i, k] = dy[i, k] * gate[i, k] * n[i, k]\ndgate[i, k] = dy[i, k] * up[i, k] * n[i, k] * (1 + gate[i, k] * (1 - n[i, k]))', 2,
        [
            'dgate[i, k] = dy[i, k] * up[i, k] * n[i, k]', 'dgate[i, k] = dy[i, k] * up[i, k] * n[i, k] * (1 - n[i, k])',
            'dgate[i, k] = dy[i, k] * n[i, k] * (1 + gate[i, k] * (1 - n[i, k]))'
        ],
        {because : {1 : 'the slope of the sigmoid alone: silu(z) is z times it, a product'}}),
    choose('add_rms_norm', 'rows4_cols64', 'sum = x + residual, and y is the RMSNorm of sum. Both are outputs.',
        'rstd[i] = 1 / sqrt(mean(k, sum[i, k] * sum[i, k]) + eps)\nh[i, k] = dy[i, k] * weight[k]\nm[i] = mean(k, h[i, k] * sum[i, k] * rstd[i])\ndx[i, k] = rstd[i] * (h[i, k] - sum[i, k] * rstd[i] * m[i]) + dsum[i, k]\ndresidual[i, k] = dx[i, k]\ndweight[k] = sum(i, dy[i, k] * sum[i, k] * rstd[i])', 3,
        [
            'dx[i, k] = rstd[i] * (h[i, k] - sum[i, k] * rstd[i] * m[i])', 'dx[i, k] = rstd[i] * (h[i, k] - sum[i, k] * rstd[i] * m[i]) * dsum[i, k]',
            'dx[i, k] = rstd[i] * (h[i, k] + dsum[i, k] - sum[i, k] * rstd[i] * m[i])'
        ],
        {numbers : EPS, because : {1 : 'two ways lead back to the sum: what comes by them is added, not multiplied'}}),
    choose('batch_norm', 'no_statistics', 'Each channel, a column of x, is normalised over the 6 rows: y = xhat weight + bias.',
        'm[c] = mean(b, x[b, c])\nrstd[c] = 1 / sqrt(mean(b, (x[b, c] - m[c]) * (x[b, c] - m[c])) + eps)\nxhat[b, c] = (x[b, c] - m[c]) * rstd[c]\ndweight[c] = sum(b, dy[b, c] * xhat[b, c])\ndbias[c] = sum(b, dy[b, c])\ndx[b, c] = weight[c] * rstd[c] * (dy[b, c] - dbias[c] / 6 - xhat[b, c] * dweight[c] / 6)', 5,
        [
            'dx[b, c] = weight[c] * rstd[c] * dy[b, c]', 'dx[b, c] = weight[c] * rstd[c] * (dy[b, c] - xhat[b, c] * dweight[c] / 6)',
            'dx[b, c] = weight[c] * rstd[c] * (dy[b, c] - dbias[c] - xhat[b, c] * dweight[c])'
        ],
        {numbers : EPS}),
    choose('group_norm', 'one_group', 'All 35 numbers of an example are one group, normalised together; channel c has weight[c] and bias[c].',
        'm[b] = mean(c, mean(i, x[b, c, i]))\nrstd[b] = 1 / sqrt(mean(c, mean(i, (x[b, c, i] - m[b]) * (x[b, c, i] - m[b]))) + eps)\nxhat[b, c, i] = (x[b, c, i] - m[b]) * rstd[b]\nh[b, c, i] = dy[b, c, i] * weight[c]\nu[b] = mean(c, mean(i, h[b, c, i]))\nv[b] = mean(c, mean(i, h[b, c, i] * xhat[b, c, i]))\ndx[b, c, i] = rstd[b] * (h[b, c, i] - u[b] - xhat[b, c, i] * v[b])\ndweight[c] = sum(b, sum(i, dy[b, c, i] * xhat[b, c, i]))\ndbias[c] = sum(b, sum(i, dy[b, c, i]))', 6,
        [
            'dx[b, c, i] = rstd[b] * h[b, c, i]', 'dx[b, c, i] = rstd[b] * (h[b, c, i] - xhat[b, c, i] * v[b])',
            'dx[b, c, i] = rstd[b] * (dy[b, c, i] - u[b] - xhat[b, c, i] * v[b])'
        ],
        {numbers : EPS, because : {2 : 'as if there were no weight: what reaches xhat is h'}}),
    choose('linear_cross_entropy', 'mean_5x3x11', 'logits = x weight^T, and loss is the mean over the 5 rows of logsumexp(logits[i]) - logits[i, targets[i]].',
        'logits[i, j] = sum(k, x[i, k] * weight[j, k])\nz[i] = sum(j, exp(logits[i, j]))\ndlogits[i, j] = dloss / 5 * (exp(logits[i, j]) / z[i] - (j == targets[i]))\ndx[i, k] = sum(j, dlogits[i, j] * weight[j, k])\ndweight[j, k] = sum(i, dlogits[i, j] * x[i, k])', 2,
        [
            'dlogits[i, j] = dloss * (exp(logits[i, j]) / z[i] - (j == targets[i]))', 'dlogits[i, j] = dloss / 5 * ((j == targets[i]) - exp(logits[i, j]) / z[i])',
            'dlogits[i, j] = dloss / 5 * exp(logits[i, j]) / z[i]'
        ]),
    choose('max_pool2d', 'halves', 'y[b, c, i, j] is the largest of x[b, c, 2 i, 2 j] to x[b, c, 2 i + 1, 2 j + 1]; no two are equal.',
        'dx[b, c, i, j] = x[b, c, i, j] == y[b, c, floor(i / 2), floor(j / 2)] ? dy[b, c, floor(i / 2), floor(j / 2)] : 0', 0,
        [ 'dx[b, c, i, j] = dy[b, c, floor(i / 2), floor(j / 2)]', 'dx[b, c, i, j] = dy[b, c, floor(i / 2), floor(j / 2)] / 4', 'dx[b, c, i, j] = x[b, c, i, j] == y[b, c, floor(i / 2), floor(j / 2)] ? 1 : 0' ]),
    choose('unfold', 'two_by_two', 'Column p of y holds the window p of a 3 x 3 image: row k is the element (k / 2, k % 2) of the window that begins at (p / 2, p % 2).',
        'row[k, p] = floor(p / 2) + floor(k / 2) + 0 * dy[0, k, p]\ncolumn[k, p] = p - 2 * floor(p / 2) + k - 2 * floor(k / 2) + 0 * dy[0, k, p]\ndx[b, c, i, j] = sum(k, sum(p, row[k, p] == i ? column[k, p] == j ? dy[b, k, p] : 0 : 0))', 2,
        [
            'dx[b, c, i, j] = max(k, max(p, row[k, p] == i ? column[k, p] == j ? dy[b, k, p] : 0 : 0))',
            'dx[b, c, i, j] = sum(k, sum(p, row[k, p] == j ? column[k, p] == i ? dy[b, k, p] : 0 : 0))', 'dx[b, c, i, j] = sum(k, sum(p, row[k, p] == i ? dy[b, k, p] : 0))'
        ]),
    choose('fold', 'two_by_two', 'The windows in the columns of x are added up to a 3 x 3 image: row k of column p goes to (p / 2 + k / 2, p % 2 + k % 2).',
        'dx[b, k, p] = dy[b, 0, floor(p / 2) + floor(k / 2), p - 2 * floor(p / 2) + k - 2 * floor(k / 2)]', 0,
        [
            'dx[b, k, p] = dy[b, 0, floor(k / 2), k - 2 * floor(k / 2)]', 'dx[b, k, p] = dy[b, 0, floor(p / 2) + floor(k / 2), p - 2 * floor(p / 2) + k - 2 * floor(k / 2)] / 4',
            'dx[b, k, p] = dy[b, 0, p - 2 * floor(p / 2) + k - 2 * floor(k / 2), floor(p / 2) + floor(k / 2)]'
        ]),
    choose('conv2d', 'no_bias', 'y[b, o, i, j] is the sum over c, u, v of x[b, c, i + u, j + v] weight[o, c, u, v]; x is 4 x 4, the kernel 2 x 2, y 3 x 3.',
        'dx[b, c, i, j] = sum(o, sum(u, sum(v, i >= u ? i - u < 3 ? j >= v ? j - v < 3 ? dy[b, o, i - u, j - v] * weight[o, c, u, v] : 0 : 0 : 0 : 0)))\ndweight[o, c, u, v] = sum(b, sum(i, sum(j, dy[b, o, i, j] * x[b, c, i + u, j + v])))', 0,
        [
            'dx[b, c, i, j] = sum(o, sum(u, sum(v, i + u < 3 ? j + v < 3 ? dy[b, o, i + u, j + v] * weight[o, c, u, v] : 0 : 0)))',
            'dx[b, c, i, j] = sum(o, sum(u, sum(v, i >= u ? i - u < 3 ? j >= v ? j - v < 3 ? dy[b, o, i - u, j - v] * weight[o, c, 1 - u, 1 - v] + 0 * weight[o, c, u, v] : 0 : 0 : 0 : 0)))',
            'dx[b, c, i, j] = sum(o, sum(u, sum(v, i < 3 ? j < 3 ? dy[b, o, i + 0, j + 0] * weight[o, c, u, v] : 0 : 0)))'
        ]),
    choose('conv_transpose2d', 'no_bias', 'x[b, c, i, j] weight[c, o, u, v] is added to y[b, o, i + u, j + v], for all i, j, u, v.',
        'dx[b, c, i, j] = sum(o, sum(u, sum(v, dy[b, o, i + u, j + v] * weight[c, o, u, v])))\ndweight[c, o, u, v] = sum(b, sum(i, sum(j, x[b, c, i, j] * dy[b, o, i + u, j + v])))', 1,
        [
            'dweight[c, o, u, v] = sum(b, sum(i, sum(j, x[b, c, i, j] * dy[b, o, i + 0, j + 0])))', 'dweight[c, o, u, v] = sum(i, sum(j, x[0, c, i, j] * dy[0, o, i + u, j + v]))',
            'dweight[c, o, u, v] = sum(b, sum(i, sum(j, x[b, c, i, j] * dy[b, o, i + 1 - u, j + 1 - v])))'
        ]),
    choose('lstm', 'one_step', 'One step: the gates i, f, n, o of two columns each, from a = gates + weight state + bias; c = f cell + i n; y = o tanh(c). Both y and c are outputs.', lstm, 6,
        [
            'dct[b, k] = dy[b, 0, k] * o[b, k] * (1 - tc[b, k] * tc[b, k])', 'dct[b, k] = dc[b, k] + dy[b, 0, k] * o[b, k]',
            'dct[b, k] = dc[b, k] + dy[b, 0, k] * o[b, k] * tc[b, k]'
        ]),
    choose('gru', 'one_step', 'One step: m = weight state + bias; r and z are sigmoids of gates + m; n = tanh(gates + r m); y = (1 - z) n + z state.', gru, 8,
        [
            'dm[b, g] = dgates[b, 0, g] + 0 * m[b, g]', 'dm[b, g] = (g < 4 ? dgates[b, 0, g] : dn[b, g - 4] * z[b, g - 4]) + 0 * m[b, g]',
            'dm[b, g] = (g < 4 ? dgates[b, 0, g] : dn[b, g - 4] * (1 - r[b, g - 4])) + 0 * m[b, g]'
        ])
];

root.practice = [
    ...written('odd', slopes), ...written('same', pairs), ...tensors,
    ...written('same', [
        [ 'where', 'da = dy\ndb = dy', 'da = condition ? dy : 0\ndb = condition ? 0 : dy' ], [ 'masked_fill', 'dx = dy', 'dx = mask ? 0 : dy' ]
    ]),
    ...written('none', losses), ...long
];
if (typeof module !== 'undefined') module.exports = Object.assign(root.practice, {written});
})(globalThis);
