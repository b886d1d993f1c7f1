// examples.js - the worked example of each op: a case of its record, at a size that one can read, and the steps of
// its backward as the derivation names them. Their values come from the library: the op's plain twin, or a kernel
// that reads like the derivation, hands out each under its name (GD_STEP in kernels/common/kernel.h).
(function(root) {
'use strict';

// ---- The steps of each backward ----------------------------------------------------------------------

// A step: [name, formula, mark, more]. Its value is what the C code hands out under its name; with `of` the gradient
// by that input, with `ones` its gradient if dy were 1 everywhere, with `copies` its gradient if each of its copies
// were an input of its own, with `output` that output. shape: of what C hands out, where it is not that of an input;
// from: 'columns', if C goes through it by columns, 'end', if it goes backwards.
const gradient = (name, tex, mark, of, more) => [name, tex, mark, {of, ...more}];
const dx = (tex, mark, more) => gradient('dx', tex, mark, 'x', more);
const slope = (tex) => [ 'slope', tex, undefined, {ones : 'x'} ];

const norm = (x) => [
    [ 'a', `a_i = \\frac1N \\sum_k ${x}_{ik}^2` ], [ 'rms', '\\mathrm{rms}_i = \\sqrt{a_i + \\varepsilon}' ],
    [ 'rstd', '\\mathrm{rstd}_i = 1 / \\mathrm{rms}_i', 'rstd' ], [ 'xhat', `\\hat x_{ik} = ${x}_{ik}\\,\\mathrm{rstd}_i`, 'xhat' ],
    [ 'h', 'h_{ik} = dy_{ik}\\, w_k' ], [ 'm', 'm_i = \\frac1N \\sum_k h_{ik}\\,\\hat x_{ik}', 'm' ], [ 'along', '\\hat x_{ik}\\, m_i' ]
];
const through = '\\mathrm{rstd}_i\\,(h_{ik} - \\hat x_{ik}\\, m_i)';
const dw = gradient('dw', 'dw_k = \\sum_i dy_{ik}\\,\\hat x_{ik}', 'dw', 'weight');
const rmsNorm = [...norm('x'), dx(`dx_{ik} = ${through}`, 'dx'), [ 'parts', 'dy_{ik}\\,\\hat x_{ik}', undefined, {from : 'columns'} ], dw];
// The norm of the sum; the gradient of the sum itself comes on top.
const addRmsNorm = [
    [ 'sum', 's_{ik} = x_{ik} + \\mathrm{residual}_{ik}', undefined, {output : 1} ], ...norm('s'), [ 'parts', 'dy_{ik}\\,\\hat x_{ik}', undefined, {from : 'columns'} ],
    [ 'through', through, 'dx' ], dx(`dx_{ik} = ${through} + d\\mathrm{sum}_{ik}`, 'add_rms_norm'),
    gradient('dresidual', 'd\\mathrm{residual} = dx', 'add_rms_norm', 'residual'), dw
];

const layerNorm = [
    [ 'mean', 'm_i = \\frac1N \\sum_k x_{ik}' ], [ 'v', 'v_i = \\frac1N \\sum_k (x_{ik} - m_i)^2' ], [ 'rstd', 'r_i = 1/\\sqrt{v_i + \\varepsilon}' ],
    [ 'xhat', '\\hat x_{ik} = (x_{ik} - m_i)\\, r_i' ], [ 'h', 'h_{ik} = dy_{ik}\\, w_k' ], [ 'mean_h', '\\mathrm{mean}(h)_i' ], [ 'mean_hx', '\\mathrm{mean}(h \\hat x)_i' ],
    dx('dx_{ik} = r_i\\,(h_{ik} - \\mathrm{mean}(h)_i - \\hat x_{ik}\\,\\mathrm{mean}(h \\hat x)_i)', 'dx'), dw,
    gradient('db', 'db_k = \\sum_i dy_{ik}', 'db', 'bias')
];
// x [B, C]: a channel is a column.
const channelSums = [gradient('db', 'db_c = \\sum_k dy_{kc}', 'db', 'bias'), gradient('dw', 'dw_c = \\sum_k dy_{kc}\\,\\hat x_{kc}', 'dw', 'weight')];
const channelXhat = [ 'xhat', '\\hat x_{kc} = (x_{kc} - \\mu_c)\\, r_c', undefined, {from : 'columns'} ];
const batchNorm = [
    [ 'mean', '\\mu_c = \\frac1n \\sum_k x_{kc}' ], [ 'v', 'v_c = \\frac1n \\sum_k (x_{kc} - \\mu_c)^2' ], [ 'rstd', 'r_c = 1/\\sqrt{v_c + \\varepsilon}' ], channelXhat, ...channelSums,
    dx('dx_{kc} = w_c\\, r_c\\, (dy_{kc} - db_c / n - \\hat x_{kc}\\, dw_c / n)', 'dx')
];
const batchNormFixed = [channelXhat, ...channelSums, dx('dx_{kc} = w_c\\, r_c\\, dy_{kc}', 'batch_norm_fixed')];
// x [1, 4, 2]: two groups of two channels with two places each.
const groupNorm = [
    [ 'mean', '\\mu_g' ], [ 'rstd', 'r_g' ], [ 'xhat', '\\hat x_k = (x_k - \\mu_g)\\, r_g' ], [ 'h', 'h_k = dy_k\\, w_{c(k)}' ], [ 'mean_h', '\\mathrm{mean}(h)_g' ],
    [ 'mean_hx', '\\mathrm{mean}(h \\hat x)_g' ], dx('dx_k = r\\,(h_k - \\mathrm{mean}(h) - \\hat x_k\\,\\mathrm{mean}(h \\hat x))', 'group_norm dx'),
    gradient('dw', 'dw_c = \\sum_{k \\in c} dy_k\\,\\hat x_k', 'group_norm dw', 'weight'), gradient('db', 'db_c = \\sum_{k \\in c} dy_k', 'group_norm db', 'bias')
];

const softmax = [
    [ 's', 's_i = \\sum_k dy_{ik}\\, y_{ik}', 's' ], [ 'diff', 'dy_{ik} - s_i' ], dx('dx_{ik} = y_{ik}\\,(dy_{ik} - s_i)', 'softmax')
];
const logSoftmax = [
    [ 's', 's_i = \\sum_k dy_{ik}', 's' ], [ 'p', 'e^{y_{ik}}' ], dx('dx_{ik} = dy_{ik} - e^{y_{ik}}\\, s_i', 'log_softmax')
];
const crossEntropy = [
    [ 'm', 'm_i = \\max_j x_{ij}' ], [ 'l', 'l_i = \\log \\sum_j e^{x_{ij} - m_i}' ], [ 'p', 'p_{ij} = e^{x_{ij} - m_i - l_i}' ],
    [ 'scale', 'g_i = r\\; d\\mathrm{loss}' ], gradient('dx', 'dx_{ij} = (p_{ij} - [j = t_i])\\; g_i', 'dx', 'logits')
];
const nllLoss = [
    [ 'W', 'W = \\sum_i w_{t_i}' ], gradient('dx', 'dx_{ij} = -[j = t_i]\\; d\\mathrm{loss}\\; w_{t_i} / W', 'nll_loss', 'log_probs')
];
const linearCrossEntropy = [
    [ 'l', 'l = x\\, w^T', undefined, {shape : [ 2, 4 ]} ], [ 'd', 'd_{ij} = \\mathrm{softmax}(l_i)_j - [j = t_i]', 'd', {shape : [ 2, 4 ]} ],
    [ 'alpha', '\\alpha = d\\mathrm{loss}\\; r', 'alpha' ], dx('dx = \\alpha\\; d\\, w', 'dx'), gradient('dw', 'dw = \\alpha\\; d^T x', 'dw', 'weight')
];
const swiglu = [
    [ 's', 's = 1 / (1 + e^{-z})' ], [ 'slope', 's\\,(1 + z (1 - s))' ], gradient('dgate', 'd\\mathrm{gate} = dy\\, u\\, s\\,(1 + z (1 - s))', 'dgate', 'gate'),
    gradient('dup', 'd\\mathrm{up} = dy\\, z\\, s', 'dup', 'up')
];
const linear = [dx('dx = dy\\; w', 'dx'), gradient('dw', 'dw = dy^T x', 'dw', 'weight'), gradient('db', 'db_n = \\sum_m dy_{mn}', 'db', 'bias')];
const matmul = [gradient('da', 'da = dc\\; b^T', 'da', 'a'), gradient('db', 'db = a^T dc', 'db', 'b')];

// One batch, one head: q [1, T, 1, D], k [1, S, 1, D], v [1, S, 1, E].
const scores = {shape : [ 3, 3 ]};
const weights = (mark) => [
    [ 's', 's_{ij} = \\mathrm{scale}\\; q_i \\cdot k_j', mark('score'), scores ], [ 'lse', 'L_i = \\log \\sum_j e^{s_{ij}}' ], [ 'p', 'p_{ij} = e^{s_{ij} - L_i}', mark('p'), scores ]
];
const throughScores = (mark) => [
    [ 'dp', 'dp_{ij} = dy_i \\cdot v_j', mark('dp'), scores ], [ 'delta', '\\delta_i = dy_i \\cdot y_i', mark('delta') ],
    [ 'ds', 'ds_{ij} = p_{ij}\\,(dp_{ij} - \\delta_i)', mark('ds'), scores ]
];
const marked = (mark) => mark, unmarked = () => undefined; // rope_attention's page has no derivation of attention
const attentionOf = {
    dv : 'dv_j = \\sum_i p_{ij}\\, dy_i', dq : 'dq_i = \\mathrm{scale} \\sum_j ds_{ij}\\, k_j', dk : 'dk_j = \\mathrm{scale} \\sum_i ds_{ij}\\, q_i'
};
const attention = [
    ...weights(marked), gradient('dv', attentionOf.dv, 'dv', 'v'), ...throughScores(marked), gradient('dq', attentionOf.dq, 'dq', 'q'), gradient('dk', attentionOf.dk, 'dk', 'k')
];

// Positions: D = 2, so that the one pair of position t is rotated by the angle t.
const angles = (mark) => [ [ 'cos', 'c_t = \\cos(t)' ], [ 'sin', 's_t = \\sin(t)', mark('rope') ] ];
const rope = [...angles(marked), dx('dx_t = \\begin{pmatrix} c_t & s_t \\\\ -s_t & c_t \\end{pmatrix} dy_t', 'dx a')];
const dqkv = (mark) => gradient('dqkv', 'd\\mathrm{qkv} = (R^T dq,\\; R^T dk,\\; dv)', mark, 'qkv');
const ropeQkv = [...angles(marked), [ 'rotated', '(R_t^T\\, dq_t,\\; R_t^T\\, dk_t)', 'dx a', {shape : [ 2, 4 ]} ], dqkv('rope_qkv')];
const pairs = {shape : [ 3, 2 ]};
const ropeAttention = [
    ...angles(unmarked), ...weights(unmarked), [ 'dv', attentionOf.dv, undefined, pairs ], ...throughScores(unmarked), [ 'dq', attentionOf.dq, undefined, pairs ],
    [ 'dk', attentionOf.dk, undefined, pairs ], dqkv('dqkv')
];

// Functions of one variable: the slope, where it is short.
const slopes = {
    neg : '-1', exp : 'y', log : '1 / x', log1p : '1 / (1 + x)', expm1 : 'y + 1', sqrt : '1 / (2 y)', rsqrt : '-y^3 / 2', reciprocal : '-y^2', atan : '1 / (1 + x^2)',
    sin : '\\cos x', cos : '-\\sin x', tanh : '1 - y^2', sigmoid : 'y (1 - y)', silu : 's + x s (1 - s)', erf : '2 / \\sqrt\\pi\\; e^{-x^2}', softplus : '1 / (1 + e^{-x})',
    clamp : '[p \\le x \\le q],\\; p = -1,\\; q = 1.5', hardtanh : '[p < x < q],\\; p = -1,\\; q = 1.5', relu : '[y > 0]', leaky_relu : '[x > 0] + p\\, [x \\le 0],\\; p = 0.1',
    elu : '[x > 0] + p\\, e^x\\, [x \\le 0],\\; p = 0.75', sign : '0', floor : '0', ceil : '0', round : '0', mish : 't + x (1 - t^2) s', abs : '\\mathrm{sign}\\, x', scale : 'p = -2.5',
    add_scalar : '1', pow : 'p\\, x^{p - 1},\\; p = 3', gelu : '\\Phi(x) + x\\, \\varphi(x)', gelu_tanh : '\\tfrac12 (1 + t) + \\tfrac12 x (1 - t^2) u\''
};
const unary = (tex, mark) => [slope(`f'(x)${tex ? ` = ${tex}` : ''}`), dx('dx = dy\\, f\'(x)', mark)];

// Functions of two variables: a [2, 3], b [3] is repeated over the rows, and its gradient summed.
const parts = {
    add : [ 'dy', 'dy' ], sub : [ 'dy', '-dy' ], mul : [ 'dy\\, b', 'dy\\, a' ], div : [ 'dy / b', '-(dy / b)(a / b)' ], maximum : [ 'dy\\, [a > b]', 'dy\\, [b > a]' ],
    minimum : [ 'dy\\, [a < b]', 'dy\\, [b < a]' ], pow_tensor : [ 'dy\\, b\\, a^{b - 1}', 'dy\\, a^b \\log a' ]
};
const binary = ([ a, b ], mark) => [
    gradient('da', `da = ${a}`, mark, 'a'), [ 'terms', `\\text{each copy of } b: \\; ${b}`, mark, {copies : 'b'} ],
    gradient('db', 'db_j = \\sum \\text{ over the copies}', 'broadcast', 'b')
];
// The one that was chosen gets dy.
const where = binary([ '', 'dy_{ij}\\,[c_{ij} = 0]' ], 'where');
where[0][1] = 'da_{ij} = dy_{ij}\\,[c_{ij} \\ne 0]';

// Losses of pairs, without a reduction: the slopes by x and by the target.
const pairLosses = {
    mse_loss : [ '2 (x - t)', '-2 (x - t)' ], l1_loss : [ '\\mathrm{sign}(x - t)', '-\\mathrm{sign}(x - t)' ],
    huber_loss : [ 'x - t \\text{ within } \\pm\\delta', 't - x \\text{ within } \\pm\\delta' ],
    smooth_l1_loss : [ '(x - t) / \\beta \\text{ within } \\pm 1', '(t - x) / \\beta \\text{ within } \\pm 1' ],
    bce_with_logits : [ '\\mathrm{sigmoid}(x) - t', '-x' ], kl_div : [ '-t', '\\log t + 1 - x' ]
};
const pairLoss = ([ x, t ], mark) => [dx(`dx = dy\\; (${x})`, mark), gradient('dt', `dt = dy\\; (${t})`, mark, 'target')];

// Over the rows of x [2, 4].
const reduction = (tex, mark) => [slope(`\\partial y / \\partial x_j = ${tex}`), dx('dx_j = dy\\; \\partial y / \\partial x_j', mark)];
const prod = [ [ 'P', 'P = \\prod_{i:\\, x_i \\ne 0} x_i', 'prod zeros' ], ...reduction('\\prod_{i \\ne j} x_i', 'prod') ];
// var and std with correction 0: each distance from the mean, with one weight for the row.
const variance = (tex, name) => [
    [ 'd', 'd_j = x_j - \\bar x', 'distance' ], [ 'share', `dy\\; ${tex}`, `${name}_factor` ], dx(`dx_j = dy\\; ${tex}\\; d_j`, name)
];

// Along the last axis of x [2, 4], or of rows of index and src [2, 3].
const scatterAdd = [dx('dx = dy', 'scatter_add'), gradient('ds', 'ds_i = dy_{t_i}', 'scatter_add', 'src')];
const concat = [gradient('dx0', 'dx_0 = dy \\text{, its first rows}', 'concat', 'x[0]'), gradient('dx1', 'dx_1 = dy \\text{, the rows after them}', 'concat', 'x[1]')];
const triangle = (tex, mark) => [dx(`dx_{ij} = dy_{ij} \\text{ where } ${tex} \\text{, else } 0`, mark)];

// Windows of 2 x 2, one place apart, of an image 3 x 3: columns [4, 4], element k of window p.
const columns = {shape : [ 4, 4 ]};
const conv2d = [
    [ 'U', 'U = \\mathrm{unfold}(x)', undefined, columns ], [ 'dU', 'dU = w^T dy', undefined, columns ], dx('dx = \\mathrm{fold}(dU)', 'conv2d dx'),
    gradient('dw', 'dw = dy\\, U^T', 'conv2d dw', 'weight'), gradient('db', 'db_o = \\sum_{b,p} dy_{op}', 'conv2d db', 'bias')
];
const convTranspose2d = [
    [ 'dU', 'dU = \\mathrm{unfold}(dy)', undefined, columns ], dx('dx = w\\, dU', 'conv_transpose2d dx'), gradient('dw', 'dw = x\\, dU^T', 'conv_transpose2d dw', 'weight'),
    gradient('db', 'db_o = \\sum_{b,p} dy_{bop}', 'conv_transpose2d db', 'bias')
];
const maxPool = [ [ 'm', 'm_i \\text{, the place of the maximum}', undefined, {shape : [ 1, 2, 2 ]} ], dx('dx_k = \\sum_{i:\\; m_i = k} dy_i', 'max_pool2d') ];

// One row and one column: gates [1, T, 3 or 4], T steps from the state 0.
const last = {from : 'end'};
const sums = [gradient('dW', 'dW = \\sum_t u_t^T h_{t-1}', 'dweight', 'weight'), gradient('db', 'db = \\sum_t u_t', 'dbias', 'bias')];
const dh = [ 'dh', 'dh_t = dy_t + \\text{what step } t + 1 \\text{ passes on}', undefined, last ];
const gru = [
    [ 'r', 'r_t' ], [ 'z', 'z_t' ], [ 'n', 'n_t' ], dh, [ 'dn', 'dn_t = dh_t\\, (1 - z_t)(1 - n_t^2)', 'gru dn', last ],
    [ 'dz', 'dz_t = dh_t\\, (h_{t-1} - n_t)\\, z_t (1 - z_t)', 'dz', last ], [ 'dr', 'dr_t = dn_t\\, m_t\\, r_t (1 - r_t)', 'dr', last ],
    gradient('da', '(dr_t, dz_t, dn_t)', 'gru dn', 'gates'), ...sums
];
const lstm = [
    [ 'gates', '(i, f, g, o)_t' ], [ 'c', 'c_t' ], dh, [ 'dc', 'dc_t = dc_{t+1} f_{t+1} + dh_t\\, o_t\\, (1 - \\tanh^2(c_t))', 'lstm dc', last ],
    gradient('da', 'u_t', 'di', 'gates'), ...sums
];

// ---- The examples --------------------------------------------------------------------------

// case: of the record; shapes: instead of its own; values, cotangents: instead of the pattern below. op: whose
// example it is, where a key is not the op's name.
const examples = {
    rms_norm_row : {
        op : 'rms_norm',
        title : 'One row of four numbers',
        case : 'no_eps',
        shapes : {x : [ 1, 4 ], weight : [ 4 ]},
        saves : [ 'rstd' ],
        steps : rmsNorm,
        values : {x : [ 1, 3, -3, 9 ], weight : [ 1, 2, 1, 0.5 ]},
        cotangents : [ [ 1, 0.5, 0, 2 ] ]
    },
    rms_norm : {
        case : 'rows4_cols64',
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
    },
    batch_norm : {
        case : 'no_statistics',
        shapes : {x : [ 4, 2 ], weight : [ 2 ], bias : [ 2 ]},
        values : {weight : [ 2, 0.5 ]},
        saves : [ 'mean', 'rstd' ],
        steps : batchNorm,
    },
    group_norm : {
        case : 'images',
        shapes : {x : [ 1, 4, 2 ], weight : [ 4 ], bias : [ 4 ]},
        values : {weight : [ 1, 2, 0.5, 1.5 ]},
        saves : [ 'mean', 'rstd' ],
        steps : groupNorm,
    },
    batch_norm_fixed : {
        case : 'rows',
        shapes : {x : [ 3, 2 ], weight : [ 2 ], bias : [ 2 ], mean : [ 2 ], var : [ 2 ]},
        values : {weight : [ 2, 0.5 ], mean : [ 1, -1 ], var : [ 4, 0.25 ]},
        steps : batchNormFixed,
    },
    softmax : {shapes : {x : [ 2, 4 ]}, steps : softmax},
    log_softmax : {shapes : {x : [ 2, 4 ]}, steps : logSoftmax},
    cross_entropy : {
        shapes : {logits : [ 2, 4 ], targets : [ 2 ]},
        values : {targets : [ 1, 3 ]},
        cotangents : [ [ 1 ] ], // so that p minus one-hot is seen with its own sign
        saves : [ 'm', 'l' ],
        steps : crossEntropy
    },
    linear_cross_entropy : {
        shapes : {x : [ 2, 3 ], weight : [ 4, 3 ], targets : [ 2 ]},
        values : {targets : [ 1, 3 ]},
        cotangents : [ [ 1 ] ],
        steps : linearCrossEntropy
    },
    nll_loss : {
        case : 'mean_weight',
        shapes : {log_probs : [ 3, 2 ], targets : [ 3 ], weight : [ 2 ]},
        values : {targets : [ 1, 0, 1 ], weight : [ 1, 0.5 ]},
        cotangents : [ [ 1 ] ],
        steps : nllLoss
    },
    swiglu : {shapes : {gate : [ 2, 3 ], up : [ 2, 3 ]}, steps : swiglu},
    linear : {shapes : {x : [ 3, 4 ], weight : [ 2, 4 ], bias : [ 2 ]}, steps : linear},
    matmul : {shapes : {a : [ 2, 3 ], b : [ 3, 2 ]}, steps : matmul},
    attention : {
        case : 'causal',
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
        steps : addRmsNorm
    },
    embedding : {
        shapes : {table : [ 4, 2 ], ids : [ 5 ]},
        values : {ids : [ 1, 3, 1, 0, 3 ]},
        steps : [gradient('dtable', 'd\\mathrm{table}_v = \\sum_{i:\\, \\mathrm{ids}_i = v} dy_i', 'dtable', 'table')]
    },
    gather : {
        shapes : {x : [ 2, 4 ], index : [ 2, 3 ]},
        values : {index : [ 3, 0, 3, 1, 1, 2 ]},
        steps : [dx('dx_k = \\sum_{i:\\, t_i = k} dy_i', 'gather')]
    },
    scatter_add : {
        shapes : {x : [ 2, 4 ], index : [ 2, 3 ], src : [ 2, 3 ]},
        values : {index : [ 3, 0, 3, 1, 1, 2 ]},
        steps : scatterAdd
    },
    cumsum : {shapes : {x : [ 2, 4 ]}, steps : [dx('dx_j = \\sum_{i \\ge j} dy_i', 'cumsum')]},
    unfold : {case : 'two_by_two', steps : [dx('dx = \\mathrm{fold}(dU)', 'unfold')]},
    fold : {case : 'two_by_two', steps : [dx('dU = \\mathrm{unfold}(dy)', 'fold')]},
    conv2d : {case : 'k2x2', steps : conv2d},
    conv_transpose2d : {case : 'k2x2', steps : convTranspose2d},
    max_pool2d : {case : 'corners', shapes : {x : [ 1, 3, 3 ]}, steps : maxPool},
    avg_pool2d : {case : 'corners', shapes : {x : [ 1, 3, 3 ]}, steps : [dx('dx_k = \\frac{1}{K} \\sum_{i:\\; k \\in W_i} dy_i', 'avg_pool2d')]},
    pad : {case : 'mirrored_row', shapes : {x : [ 3 ]}, steps : [dx('dx_k = \\sum_{l:\\; c(l) = k} dy_l', 'pad')]},
    lstm : {
        case : 'bias_alone',
        shapes : {gates : [ 1, 3, 4 ], weight : [ 4, 1 ], bias : [ 4 ]},
        steps : lstm
    },
    gru : {
        case : 'bias_alone',
        shapes : {gates : [ 1, 3, 3 ], weight : [ 3, 1 ], bias : [ 3 ]},
        steps : gru
    },
    dropout : {case : 'p0.25_7x19', shapes : {x : [ 4, 4 ]}, steps : [ [ 'k', 'k_i \\text{, from the random stream}' ], dx('dx_i = dy_i\\, k_i / (1 - p)', 'dx') ]},
    rope : {case : 'one_pair', shapes : {x : [ 1, 3, 1, 2 ]}, steps : rope},
    rope_qkv : {shapes : {qkv : [ 1, 2, 3, 2 ]}, steps : ropeQkv},
    rope_attention : {
        case : 'causal',
        shapes : {qkv : [ 1, 3, 3, 2 ]},
        saves : [ 'L', 'R q', 'R k', 'v' ],
        steps : ropeAttention
    },
    ...Object.fromEntries([ 'reshape', 'contiguous', 'cast' ].map((name) => [name, {steps : [dx('dx = dy \\text{, in the same order}', name)]}])),
    permute : {steps : [dx('dx_{ij} = dy_{ji}', 'permute')]},
    slice : {case : 'rows', steps : [dx('dx_{ij} = dy_{i-1,\\,j} \\text{ for } i = 1, 2, \\text{ else } 0', 'slice')]},
    expand : {steps : [dx('dx_j = \\textstyle\\sum_i dy_{ij} \\text{, over the copies}', 'expand')]},
    concat : {steps : concat},
    flip : {case : 'rows', shapes : {x : [ 2, 3 ]}, steps : [dx('dx_{i,\\, n - 1 - j} = dy_{ij}', 'flip')]},
    tril : {case : 'square', shapes : {x : [ 3, 3 ]}, steps : triangle('j \\le i', 'tril')},
    triu : {case : 'square', shapes : {x : [ 3, 3 ]}, steps : triangle('j \\ge i', 'triu')},
    masked_fill : {
        shapes : {x : [ 2, 3 ], mask : [ 2, 3 ]},
        values : {mask : [ 1, 0, 0, 1, 0, 1 ]},
        steps : [dx('dx_i = dy_i\\, [\\mathrm{mask}_i = 0]', 'masked_fill')]
    },
    where : {
        shapes : {condition : [ 2, 3 ], a : [ 2, 3 ], b : [ 3 ]},
        values : {condition : [ 1, 0, 1, 0, 1, 0 ]},
        steps : where
    },
    sum : {case : 'rows', shapes : {x : [ 2, 4 ]}, steps : reduction('1', 'sum')},
    mean : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        steps : reduction('1 / n', 'mean')
    },
    max : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        values : {x : [ 0.5, 2, -1, 2, 1.5, -0.5, 0.25, 1 ]}, // a tie in the first row
        steps : reduction('[x_j = y] / k', 'max')
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
        steps : reduction('x_j / y', 'norm')
    },
    logsumexp : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        steps : reduction('e^{x_j - y}', 'logsumexp')
    },
    var : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        saves : [ 'mean' ],
        steps : variance('2 / n', 'var')
    },
    std : {
        case : 'rows',
        shapes : {x : [ 2, 4 ]},
        saves : [ 'mean', 's' ],
        steps : variance('1 / (n s)', 'std')
    },
};
// Where the usual numbers do not have every branch of a formula: a smaller, a larger and an equal one; errors
// on both sides of a limit; an element at a limit.
const ordered = {a : [ 0.5, -1.5, 0.25, 2, 1, -1 ], b : [ 0.5, -1, 1 ]}, limited = {x : [ -2.73, 0, 2.73, -1, 1.5, -1.09, 1.25, -0.64 ]};
const errors = {x : [ 0.5, -1.5, 0.25, -0.25, 1, -1 ], target : [ 0.25, 1.09, -0.25, -0.25, -1.45, 0.36 ]};
const chosen = {maximum : ordered, minimum : ordered, clamp : limited, hardtanh : limited, mse_loss : errors, l1_loss : errors, huber_loss : errors, smooth_l1_loss : errors};

// The functions of one and two elements, and the losses of pairs, are what their records say: rows of tables.
function ofRecord({name, cases : [ {inputs} ]}) {
    const values = chosen[name];
    switch (inputs.map((input) => input.name).join().replace(/^(x,target),.*/, '$1')) {
    case 'x' : return {shapes : {x : [ 2, 4 ]}, values, steps : unary(slopes[name], name)};
    case 'a,b' : return {shapes : {a : [ 2, 3 ], b : [ 3 ]}, values, steps : binary(parts[name] || [ '', '' ], name)};
    case 'x,target' : return {case : 'none', shapes : {x : [ 2, 3 ], target : [ 2, 3 ]}, values, steps : pairLoss(pairLosses[name] || [ '', '' ], name)};
    default : return {};
    }
}

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

// The example of that name, an op's as a rule, with numbers: what Gradus.run takes, and what worked.js shows.
function example(gradus, name) {
    const op = examples[name]?.op || name, record = gradus.find(op), own = {...examples[name] || ofRecord(record), outputs : record.outputs};
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
    return {request, check, own, name};
}

// What the library says of an example: {outputs, saves, gradients, error}, and what its steps are made of.
function solve(gradus, {request, check, own}) {
    const result = gradus.run(request), list = own.steps || [];
    if (result.error || !list.length) return result;
    result.derived = gradus.derive(request);
    const more = (key) => (list.find((step) => step[3]?.[key]) || [])[3]?.[key], copied = more('copies');
    if (more('ones')) result.ones = gradus.run({...request, cotangents : request.cotangents.map((values) => values.map(() => 1))}).gradients;
    if (copied) {
        const {shape} = result.outputs[0], values = request.inputs[copied];
        const all = Array.from({length : count(shape)}, (_, i) => values[i % values.length]);
        result.copies = gradus.run({...request, shapes : {...request.shapes, [copied] : shape}, inputs : {...request.inputs, [copied] : all}}).gradients;
    }
    return result;
}

// The values that C hands out, which it may go through by columns or from the end.
function handedOut(values, {shape, from}, shapes) {
    const fits = shapes.find((one) => count(one) === values.length);
    shape = shape || fits || (values.length > 1 ? [ values.length ] : []);
    values = values.slice(0, count(shape));
    if (from === 'end') values.reverse();
    const [R, C] = shape;
    return {shape, values : from === 'columns' && C ? values.map((_, i) => values[i % C * R + Math.floor(i / C)]) : values};
}

// The steps of an example that was solved: [{name, tex, mark, gradient, value}].
function steps({request, check, own}, result) {
    if (!result.derived) return [];
    const at = (name) => check.inputs.findIndex((input) => input.name === name);
    const shapes = Object.values(request.shapes).sort((a, b) => a.length - b.length);
    return own.steps.map(([ name, tex, mark, more = {} ]) => ({
                             name,
                             tex,
                             mark,
                             gradient : more.of,
                             value : more.of              ? result.derived.gradients[at(more.of)]
                                     : more.ones          ? result.ones[at(more.ones)]
                                     : more.copies        ? result.copies[at(more.copies)]
                                     : more.output        ? result.outputs[more.output]
                                                          : handedOut(result.derived.steps[name], more, shapes)
                         }));
}

const api = {
    example,
    solve,
    steps,
    examples,
    count
};
root.examples = api;
if (typeof module !== 'undefined') module.exports = api;
})(globalThis);
