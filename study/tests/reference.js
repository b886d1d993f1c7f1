// reference.js - the ops once more, in float64, written down from their definitions alone; their
// gradients by forward-mode differentiation, a number and its derivative side by side. Nothing here
// comes from the library, and no backward is derived.
'use strict';

// ---- A number and its derivative ---------------------------------------------------------------

class Dual {
    constructor(v, d = 0) {
        this.v = v;
        this.d = d;
    }
}
const dual = (x) => (x instanceof Dual ? x : new Dual(x));
const make = (f, slope) => (x) => {
    x = dual(x);
    const y = f(x.v);
    return new Dual(y, x.d ? x.d * slope(x.v, y) : 0);
};
const add = (...list) =>
    list.map(dual).reduce((a, b) => new Dual(a.v + b.v, a.d + b.d), new Dual(0));
const neg = (a) => mul(a, -1);
const sub = (a, b) => add(a, neg(b));
const mul = (a, b) => {
    a = dual(a);
    b = dual(b);
    return new Dual(a.v * b.v, a.d * b.v + a.v * b.d);
};
const inverse = make((x) => 1 / x, (x) => -1 / (x * x));
const div = (a, b) => mul(a, inverse(b));
const exp = make(Math.exp, (x, y) => y), log = make(Math.log, (x) => 1 / x);
const sqrt = make(Math.sqrt, (x, y) => 0.5 / y),
      tanh = make(Math.tanh, (x) => 1 / Math.cosh(x) ** 2);
const sin = make(Math.sin, Math.cos), cos = make(Math.cos, (x) => -Math.sin(x));
const sum = (list) => add(...list), mean = (list) => div(sum(list), list.length);
const dot = (a, b) => sum(a.map((x, i) => mul(x, b[i])));
const sigmoid = (x) => inverse(add(1, exp(neg(x))));
const largest = (list) => list.map(dual).reduce((a, b) => (b.v > a.v ? b : a));

// The normal distribution by Simpson's rule; its derivative is the density.
const density = (x) => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
const phi = make((x) => {
    const n = 2000, h = x / n;
    let total = density(0) + density(x);
    for (let i = 1; i < n; i++) total += density(i * h) * (i % 2 ? 4 : 2);
    return 0.5 + total * h / 3;
}, density);

// ---- The ops: inputs as flat lists, with shapes; returns the list of outputs
// ---------------------

const rowsOf = (x, n) => Array.from({length : x.length / n}, (_, i) => x.slice(i * n, i * n + n));
const lastOf = (shape) => shape[shape.length - 1];
const byRow = (f) => (x, s) => [rowsOf(x.x, lastOf(s.x)).flatMap((row, i) => f(row, x, s, i))];
const each = (f) => (x) => [x.x.map(f)];
const pair = (f) =>
    (x) => [x.a.map((a, i) => f(a, x.b[i % x.b.length]))]; // b is repeated over rows
const targeted = (f) => (x) => [x.x.map((e, i) => f(e, x.target[i]))];
const size = (e) => (e.v < 0 ? neg(e) : e.v > 0 ? e : new Dual(0)); // at 0 the slope is 0, as in PyTorch
const huber = (e) => (size(e).v < 0.75 ? div(mul(e, e), 2) : mul(0.75, sub(size(e), 0.375)));
// 2 x 2, one place apart, of a plane 3 x 3
const windowsOf = (x) =>
    [0, 1, 3, 4].map((at) => [x[at], x[at + 1], x[at + 3], x[at + 4]]);
// Element k of each window p of an image 3 x 3, and such an image as the sum of f(k, p).
const four = [ 0, 1, 2, 3 ];
const windowPlace = (k, p) => 3 * ((p >> 1) + (k >> 1)) + (p & 1) + (k & 1);
const image = (f) => Array.from({length : 9},
    (_, m) => sum(four.flatMap((k) => four.filter((p) => windowPlace(k, p) === m).map((p) => f(k, p)))));
const logSumExp = (row) => {
    const m = largest(row).v;
    return add(m, log(sum(row.map((e) => exp(sub(e, m))))));
};

const variance = (row) => {
    const m = mean(row);
    return mean(row.map((e) => mul(sub(e, m), sub(e, m))));
};

// eps as the case has it.
const rmsRow = (row, weight, eps) => {
    const rstd = inverse(sqrt(add(mean(row.map((e) => mul(e, e))), eps)));
    return row.map((e, k) => mul(mul(e, rstd), weight[k]));
};

// qkv of one batch and one head of each, D = 2, from position 0: {q, k, v}, the first two rotated.
const turnedHeads = (x) => {
    const heads = rowsOf(x.qkv, 2), kind = (k) => heads.filter((_, i) => i % 3 === k);
    const turned = ([ a, b ], t) => [sub(mul(a, Math.cos(t)), mul(b, Math.sin(t))),
                             add(mul(a, Math.sin(t)), mul(b, Math.cos(t)))];
    return {q : kind(0).flatMap(turned), k : kind(1).flatMap(turned), v : kind(2).flat()};
};
const headShape = (s) => [1, s.qkv[1], 1, 2];
const channelsOf = (x, s) => // the columns of x [B, C]
    Array.from({length : s.x[1]}, (_, c) => x.x.filter((_, i) => i % s.x[1] === c));
const headShapes = (s) => ({q : headShape(s), k : headShape(s), v : headShape(s)});

const ops = (eps) => ({
    rms_norm : byRow((row, x) => rmsRow(row, x.weight, eps)),
    add_rms_norm : (x, s) => {
        const total = x.x.map((e, i) => add(e, x.residual[i]));
        return [ rowsOf(total, lastOf(s.x)).flatMap((row) => rmsRow(row, x.weight, 1e-5)), total ];
    },
    layer_norm : byRow((row, x) => {
        const m = mean(row), centred = row.map((e) => sub(e, m));
        const rstd = inverse(sqrt(add(mean(centred.map((e) => mul(e, e))), 1e-5)));
        return centred.map((e, k) => add(mul(mul(e, rstd), x.weight[k]), x.bias[k]));
    }),
    batch_norm : (x, s) => {
        const rstd = channelsOf(x, s).map((c) => inverse(sqrt(add(variance(c), 1e-5))));
        const m = channelsOf(x, s).map(mean);
        return [x.x.map((e, i) => add(
            mul(mul(sub(e, m[i % m.length]), rstd[i % m.length]), x.weight[i % m.length]),
            x.bias[i % m.length]))];
    },
    group_norm : (x) => { // two groups of two channels with two places each
        const rstd = rowsOf(x.x, 4).map((g) => inverse(sqrt(add(variance(g), 1e-5))));
        const m = rowsOf(x.x, 4).map(mean);
        return [x.x.map((e, k) => {
            const g = Math.floor(k / 4), c = Math.floor(k / 2);
            return add(mul(mul(sub(e, m[g]), rstd[g]), x.weight[c]), x.bias[c]);
        })];
    },
    batch_norm_fixed : (x) => [x.x.map((e, i) => {
        const c = i % x.mean.length, rstd = inverse(sqrt(add(x.var[c], 1e-5)));
        return add(mul(mul(sub(e, x.mean[c]), rstd), x.weight[c]), x.bias[c]);
    })],
    softmax : byRow((row) => {
        const l = logSumExp(row);
        return row.map((e) => exp(sub(e, l)));
    }),
    log_softmax : byRow((row) => {
        const l = logSumExp(row);
        return row.map((e) => sub(e, l));
    }),
    cross_entropy : (x, s) => [[ mean(rowsOf(
        x.logits, lastOf(s.logits)).map((row, i) => sub(logSumExp(row), row[x.targets[i].v]))) ]],
    nll_loss : (x, s) => {
        const w = x.targets.map((t) => x.weight[t.v]), rows = rowsOf(x.log_probs, lastOf(s.log_probs));
        return [[ neg(div(sum(rows.map((row, i) => mul(w[i], row[x.targets[i].v]))), sum(w))) ]];
    },
    linear_cross_entropy : (x, s) => {
        const K = lastOf(s.x), weight = rowsOf(x.weight, K);
        return [[ mean(rowsOf(x.x, K).map((row, i) => {
            const logits = weight.map((w) => dot(row, w));
            return sub(logSumExp(logits), logits[x.targets[i].v]);
        })) ]];
    },
    swiglu : (x) => [x.gate.map((z, i) => mul(mul(z, sigmoid(z)), x.up[i]))],
    linear : (x, s) => [rowsOf(x.x, lastOf(s.x))
                            .flatMap((row) => rowsOf(x.weight, lastOf(s.x))
                                                  .map((w, n) => add(dot(row, w), x.bias[n])))],
    matmul :
        (x, s) => [rowsOf(x.a, lastOf(s.a))
                       .flatMap((row) => Array.from({length : s.b[1]},
                                    (_, j) => dot(row, row.map((_, k) => x.b[k * s.b[1] + j]))))],
    attention : (x, s) => { // causal, scale 0.5, one batch and one head
        const D = lastOf(s.q), q = rowsOf(x.q, D), k = rowsOf(x.k, D), v = rowsOf(x.v, lastOf(s.v));
        return [ q.flatMap((row, i) => {
            const seen = k.slice(0, i + k.length - q.length + 1),
                  scores = seen.map((key) => mul(0.5, dot(row, key)));
            const l = logSumExp(scores), p = scores.map((e) => exp(sub(e, l)));
            return v[0].map((_, e) => dot(p, p.map((_, j) => v[j][e])));
        }) ];
    },
    rope : (x) => [rowsOf(x.x, 2).flatMap(
        ([ a, b ], t) => [sub(mul(a, Math.cos(t)), mul(b, Math.sin(t))),
            add(mul(a, Math.sin(t)), mul(b, Math.cos(t)))])],
    rope_qkv : (x) => Object.values(turnedHeads(x)),
    rope_attention : (x, s) => ops(eps).attention(turnedHeads(x), headShapes(s)),
    embedding : (x, s) => [x.ids.flatMap((id) => rowsOf(x.table, lastOf(s.table))[id.v])],
    gather : (x, s) => [x.index.map((t, i) => x.x[Math.floor(i / s.index[1]) * s.x[1] + t.v])],
    scatter_add : (x, s) => [x.x.map((e, k) => add(e,
        ...x.src.filter((_, i) => Math.floor(i / s.src[1]) * s.x[1] + x.index[i].v === k)))],
    cumsum : byRow((row) => row.map((_, i) => sum(row.slice(0, i + 1)))),
    unfold : (x) => [four.flatMap((k) => four.map((p) => x.x[windowPlace(k, p)]))],
    fold : (x) => [image((k, p) => x.x[4 * k + p])],
    conv2d : (x) => [windowsOf(x.x).map((w) => add(x.bias[0], dot(w, x.weight)))],
    conv_transpose2d : (x) => [image((k, p) => mul(x.weight[k], x.x[p])).map((e) => add(e, x.bias[0]))],
    pad : (x) => [[ 2, 1, 0, 1, 2, 1, 0 ].map((at) => x.x[at])],
    max_pool2d : (x) => [windowsOf(x.x).map((w) => largest(w))],
    avg_pool2d : (x) => [windowsOf(x.x).map((w) => mean(w))],
    lstm : (x) => { // one row, one column, from the state 0
        let h = dual(0), c = dual(0);
        const y = rowsOf(x.gates, 4).map((row) => {
            const a = row.map((e, k) => add(e, mul(h, x.weight[k]), x.bias[k]));
            c = add(mul(sigmoid(a[1]), c), mul(sigmoid(a[0]), tanh(a[2])));
            return h = mul(sigmoid(a[3]), tanh(c));
        });
        return [ y, [ c ] ];
    },
    gru : (x) => {
        let h = dual(0);
        return [rowsOf(x.gates, 3).map((row) => {
            const m = x.weight.map((w, k) => add(mul(h, w), x.bias[k]));
            const z = sigmoid(add(row[1], m[1]));
            const n = tanh(add(row[2], mul(sigmoid(add(row[0], m[0])), m[2])));
            return h = add(mul(sub(1, z), n), mul(z, h));
        })];
    },
    dropout : (x, s, result) => [x.x.map(
        (e, i) => (result.outputs[0].values[i] === 0 ? mul(e, 0) : div(e, 0.75)))],
    sum : byRow((row) => [sum(row)]),
    mean : byRow((row) => [mean(row)]),
    prod : byRow((row) => [row.reduce((p, e) => mul(p, e))]),
    norm : byRow((row) => [sqrt(dot(row, row))]),
    logsumexp : byRow((row) => [logSumExp(row)]),
    var : byRow((row) => [variance(row)]),
    std : byRow((row) => [sqrt(variance(row))]),
    max : byRow((row) => {
        const m = largest(row).v, equal = row.map(dual).filter((e) => e.v === m);
        return [ mean(equal) ];
    }),
    add : pair(add),
    sub : pair(sub),
    mul : pair(mul),
    div : pair(div),
    maximum : pair((a, b) => (a.v === b.v ? mean([ a, b ]) : largest([ a, b ]))),
    minimum : pair((a, b) => (a.v === b.v ? mean([ a, b ]) : neg(largest([ neg(a), neg(b) ])))),
    pow_tensor : pair((a, b) => exp(mul(b, log(a)))), // a > 0
    masked_fill : (x) => [x.x.map((e, i) => (x.mask[i].v ? new Dual(-2.5) : e))],
    where : (x) => [x.condition.map((c, i) => (c.v ? x.a[i] : x.b[i % x.b.length]))],
    neg : each(neg),
    scale : each((e) => mul(e, -2.5)),
    add_scalar : each((e) => add(e, 0.75)),
    pow : each((e) => mul(e, mul(e, e))),
    exp : each(exp),
    log : each(log),
    log1p : each((e) => log(add(1, e))),
    expm1 : each((e) => sub(exp(e), 1)),
    erf : each((e) => sub(mul(2, phi(mul(Math.SQRT2, e))), 1)),
    softplus : each((e) => log(add(1, exp(e)))),
    clamp : each((e) => (dual(e).v < -1 ? new Dual(-1) : dual(e).v > 1.5 ? new Dual(1.5) : e)),
    mse_loss : targeted((x, t) => mul(sub(x, t), sub(x, t))),
    l1_loss : targeted((x, t) => size(sub(x, t))),
    huber_loss : targeted((x, t) => huber(sub(x, t))),
    smooth_l1_loss : targeted((x, t) => div(huber(sub(x, t)), 0.75)),
    bce_with_logits : targeted((x, t) => sub(neg(mul(t, log(sigmoid(x)))), mul(sub(1, t), log(sub(1, sigmoid(x)))))),
    kl_div : targeted((x, t) => mul(t, sub(log(t), x))),
    hardtanh : each((e) => (dual(e).v <= -1 ? new Dual(-1) : dual(e).v >= 1.5 ? new Dual(1.5) : e)), // at a limit the slope is 0, as in PyTorch
    reciprocal : each(inverse),
    atan : each(make(Math.atan, (x) => 1 / (1 + x * x))),
    mish : each((e) => mul(e, tanh(log(add(1, exp(e)))))),
    leaky_relu : each((e) => (dual(e).v > 0 ? dual(e) : mul(0.1, e))),
    elu : each((e) => (dual(e).v > 0 ? dual(e) : mul(0.75, sub(exp(e), 1)))),
    sign : each((e) => new Dual(Math.sign(dual(e).v))),
    floor : each((e) => new Dual(Math.floor(dual(e).v))),
    ceil : each((e) => new Dual(Math.ceil(dual(e).v))),
    round : each((e) => new Dual(Math.round(dual(e).v))),
    sqrt : each(sqrt),
    rsqrt : each((e) => inverse(sqrt(e))),
    sin : each(sin),
    cos : each(cos),
    tanh : each(tanh),
    sigmoid : each(sigmoid),
    silu : each((e) => mul(e, sigmoid(e))),
    gelu : each((e) => mul(e, phi(e))),
    gelu_tanh : each(
        (e) => mul(mul(e, 0.5),
            add(1, tanh(mul(Math.sqrt(2 / Math.PI), add(e, mul(0.044715, mul(e, mul(e, e))))))))),
    relu : each((e) => (dual(e).v > 0 ? dual(e) : new Dual(0))),
    abs : each((e) => (dual(e).v < 0   ? neg(e)
                       : dual(e).v > 0 ? dual(e)
                                       : new Dual(0))),
    reshape : each(dual),
    contiguous : each(dual),
    cast : each(dual),
    permute : (x, s) => [Array.from(
        {length : x.x.length}, (_, i) => x.x[(i % s.x[0]) * s.x[1] + Math.floor(i / s.x[0])])],
    slice : (x, s) => [x.x.slice(s.x[1], 3 * s.x[1])],
    expand : (x) => [Array.from({length : 4}, () => x.x).flat()],
    concat : (x) => [[...x['x[0]'], ...x['x[1]'] ]],
    flip : byRow((row) => [...row].reverse()),
    tril : (x) => [x.x.map((e, i) => (i % 3 <= Math.floor(i / 3) ? e : mul(e, 0)))],
    triu : (x) => [x.x.map((e, i) => (i % 3 >= Math.floor(i / 3) ? e : mul(e, 0)))],
});

// What is kept for the backward, where an example shows it.
const saved = (eps) => ({
    rms_norm :
        [ (
              x, s) => rowsOf(x.x,
              lastOf(s.x)).map((row) => inverse(sqrt(add(mean(row.map((e) => mul(e, e))), eps)))) ],
    add_rms_norm :
        [ (x, s) => rowsOf(x.x.map((e, i) => add(e, x.residual[i])), lastOf(s.x))
                        .map((row) => inverse(sqrt(add(mean(row.map((e) => mul(e, e))), 1e-5)))) ],
    layer_norm : [
        (x, s) => rowsOf(x.x, lastOf(s.x)).map(mean),
        (x, s) => rowsOf(x.x, lastOf(s.x)).map((row) => inverse(sqrt(add(variance(row), 1e-5))))
    ],
    batch_norm : [
        (x, s) => channelsOf(x, s).map(mean),
        (x, s) => channelsOf(x, s).map((c) => inverse(sqrt(add(variance(c), 1e-5))))
    ],
    group_norm : [
        (x) => rowsOf(x.x, 4).map(mean),
        (x) => rowsOf(x.x, 4).map((g) => inverse(sqrt(add(variance(g), 1e-5))))
    ],
    var : [ (x, s) => rowsOf(x.x, lastOf(s.x)).map(mean) ],
    std : [
        (x, s) => rowsOf(x.x, lastOf(s.x)).map(mean),
        (x, s) => rowsOf(x.x, lastOf(s.x)).map((row) => sqrt(variance(row)))
    ],
    cross_entropy : [
        (x, s) => rowsOf(x.logits, lastOf(s.logits)).map(largest),
        (x, s) =>
            rowsOf(x.logits, lastOf(s.logits)).map((row) => sub(logSumExp(row), largest(row).v))
    ],
    attention : [ (x, s) => {
        const q = rowsOf(x.q, lastOf(s.q)), k = rowsOf(x.k, lastOf(s.k));
        return q.map(
            (row, i) => logSumExp(k.slice(0, i + 1).map((key) => mul(0.5, dot(row, key)))));
    } ],
    rope_attention : [
        (x, s) => saved(eps).attention[0](turnedHeads(x), headShapes(s)), (x) => turnedHeads(x).q,
        (x) => turnedHeads(x).k, (x) => turnedHeads(x).v
    ],
});

// For a request of Gradus.run: {outputs, saves, gradients: {input: values}, jacobian(input)}.
// `result` is looked at for dropout's mask alone.
function expected(request, result, eps = 1e-5) {
    const f = ops(eps)[request.op], {shapes, inputs, cotangents} = request;
    if (!f) {
        throw new Error(`there is no definition of ${request.op} to compare with; add one to ` +
                        'study/tests/reference.js, as CONTRIBUTING.md says under "Example"');
    }
    const values = (seed, at) => Object.fromEntries(Object.entries(inputs).map(([ name,
        list ]) => [name, list.map((v, i) => new Dual(v, name === seed && i === at ? 1 : 0))]));
    const outputs = f(values(), shapes, result).map((list) => list.map((e) => dual(e).v));
    const column = (name, i) =>
        f(values(name, i), shapes, result).map((list) => list.map((e) => dual(e).d));
    const gradients = {};
    for (const [name, list] of Object.entries(inputs))
        gradients[name] = list.map(
            (_, i) => column(name, i).reduce(
                (total, out, k) => total + out.reduce((t, d, j) => t + d * cotangents[k][j], 0),
                0));
    const saves =
        (saved(eps)[request.op] || []).map((save) => save(values(), shapes).map((e) => dual(e).v));
    const jacobian = (name) => {
        const columns = inputs[name].map((_, i) => column(name, i).flat());
        return outputs.flat().map((_, row) => columns.map((values) => values[row]));
    };
    return {outputs, saves, gradients, jacobian};
}

// The largest difference, as a share of the largest number.
function apart(ours, theirs) {
    if (ours.length !== theirs.length) return Infinity;
    const scale = Math.max(1e-30, ...theirs.map(Math.abs));
    return ours.reduce(
        (most, v, i) => Math.max(most, Math.abs(v - theirs[i]) / (scale > 1e-12 ? scale : 1)), 0);
}

module.exports = {
    expected,
    apart
};
