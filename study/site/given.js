// given.js - what the library is told besides tensors, as the case of an op's worked example has it: a reader who
// recomputes it needs that.
'use strict';

const axis = (at) => `along axis ${at}`, last_axis = 'along the last axis', usual_eps = 'eps = 1e-5';
const given = {
    attention : 'scale = 0.5; causal: position t reads positions up to t', rope_attention : 'base = 10000, scale = 0.5; causal: position t reads positions up to t',
    rope : 'base = 10000, from position 0', rope_qkv : 'base = 10000, from position 0; one head of each', cumsum : axis(1), gather : axis(1), scatter_add : axis(1),
    batch_norm : `${usual_eps}; the statistics are those of the batch`, batch_norm_fixed : usual_eps, group_norm : `two groups, ${usual_eps}`, layer_norm : usual_eps,
    rms_norm : `${usual_eps}, or as chosen`, add_rms_norm : usual_eps, conv2d : 'stride 1, no padding', conv_transpose2d : 'stride 1, no padding', unfold : 'windows of 2 x 2, stride 1, no padding',
    fold : 'windows of 2 x 2, stride 1, to an image of 3 x 3', cross_entropy : 'the mean over the rows', linear_cross_entropy : 'the mean over the rows', nll_loss : 'the mean, weighted by class',
    dropout : 'p = 0.25', masked_fill : 'value = -2.5', matmul : 'neither is transposed', pad : 'two on each side, mirrored', max_pool2d : 'windows of 2 x 2, stride 1', avg_pool2d : 'windows of 2 x 2, stride 1',
    sum : last_axis, mean : last_axis, max : last_axis, logsumexp : last_axis, prod : last_axis, norm : `${last_axis}; p = 2`, var : `${last_axis}; correction = 0: over n, not n - 1`,
    std : `${last_axis}; correction = 0: over n, not n - 1`, permute : 'axes 1, 0', slice : 'rows 1 to 3', expand : 'one row to four', concat : axis(0), flip : axis(1), reshape : 'to [6, 2]', cast : 'to float64',
    tril : 'the main diagonal', triu : 'the main diagonal', softmax : last_axis, log_softmax : last_axis, scale : 'factor = -2.5', add_scalar : 'term = 0.75', pow : 'exponent = 3',
    leaky_relu : 'slope = 0.1', elu : 'alpha = 0.75', clamp : 'low = -1, high = 1.5', hardtanh : 'low = -1, high = 1.5',
    ...Object.fromEntries([ 'mse_loss', 'l1_loss', 'bce_with_logits', 'kl_div' ].map((name) => [name, 'without a reduction: a loss for each element'])),
    huber_loss : 'delta = 0.75; without a reduction', smooth_l1_loss : 'beta = 0.75; without a reduction'
};

module.exports = given;
