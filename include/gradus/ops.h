/* ops.h - the differentiable operations.
 *
 * Every function here returns a tensor that belongs to the step (tensor.h), or NULL on error, with
 * the first cause kept in the context. After an error NULL inputs give NULL, so calls nest. An
 * input described as optional may be NULL. If all inputs are NULL, there is no context for an
 * error: the result is just NULL.
 *
 * No function returns its argument: what has nothing to compute, such as a reshape to the same
 * shape, is a view with a node of its own, so that its recording, freeing and gd_retain_grad are
 * not its input's.
 *
 * Shapes are written as [M, N]; `...` stands for any number of leading dimensions, none included.
 * "Broadcast" is NumPy's rule: align the shapes at the right; a missing dimension or one of size 1
 * is repeated. Real means any dtype but GD_INT32; unless something else is said, the real inputs
 * of one op have one dtype, and the output has it too. Zero-sized dimensions are fine, except where
 * at least one element is needed: of windows and what they lie in (convolutions, pooling), padding
 * by reflection or replication, the steps of lstm and gru, argmax and argmin along their axis; and
 * batch_norm refuses a batch of one element of each channel. Options are doubles. An op that
 * computes in float32 (on 16 bits, too) takes the nearest float32, but none that is 0 or infinite
 * for a number that is not. Each op's derivation, and its kernels, are in kernels/NAME/.
 *
 * What each op gives at a kink, for NaN and infinity, and where a formula has no value, is in
 * docs/conventions.md: as PyTorch, with few exceptions.
 */
#ifndef GRADUS_OPS_H
#define GRADUS_OPS_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Normalisation (kernels/rms_norm, kernels/layer_norm) --------------------------------- */

/* y = x / sqrt(mean(x^2) + eps) * weight, along the last dimension (Zhang & Sennrich 2019,
 * arXiv:1910.07467).   x [..., N], weight [N] or NULL -> y like x.
 * x may have any strides if its rows are packed. N = 0 is allowed. */
GD_API gd_tensor *gd_rms_norm(gd_tensor *x, gd_tensor *weight, double eps);

typedef struct gd_rms_norm_options {
    double eps;               /* added to the mean square, at least 0; unset: 1e-5 */
    double offset;            /* y = xhat * (offset + weight): 1 for Gemma's; summed in float32;
                               * unset: 0 */
    bool round_before_weight; /* round xhat to x's dtype before the product, as Llama's code does;
                               * makes a difference for 16-bit x only */
} gd_rms_norm_options;

/* y = xhat * (offset + weight) + bias.  weight and bias: NULL, [N], or [H, N] where x is
 * [..., H, N] (one per head). They may have another dtype than x; y has x's. NULL options for the
 * defaults. */
GD_API gd_tensor *gd_rms_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                   const gd_rms_norm_options *options);

/* sum = x + residual, y = rms_norm_with(sum, ...). Both are outputs: y is returned, and *sum is the
 * residual stream (sum may be NULL if it is not needed). sum has residual's dtype, y has x's; x and
 * residual have the same shape. */
GD_API gd_tensor *gd_add_rms_norm(gd_tensor *x, gd_tensor *residual, gd_tensor *weight,
                                  gd_tensor *bias, const gd_rms_norm_options *options,
                                  gd_tensor **sum);

/* y = (x - mean) / sqrt(var + eps) * weight + bias along the last dimension, var the biased
 * variance (Ba et al. 2016, arXiv:1607.06450).  x [..., N], weight, bias [N] or NULL. */
GD_API gd_tensor *gd_layer_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, double eps);

typedef struct gd_batch_norm_options {
    double eps;      /* added to the variance; unset: 1e-5 */
    double momentum; /* how much of the batch's statistics goes into the running ones; unset: 0.1 */
    /* running statistics [C], as a rule buffers (gd_params_add_buffer); they begin with 0 and 1.
     * NULL: none */
    gd_tensor *mean, *var;
    bool evaluate; /* normalise by mean and var, and leave them as they are */
} gd_batch_norm_options;

/* y = (x - mean) / sqrt(var + eps) * weight + bias, with the mean and the biased variance of each
 * channel over the batch and all places (Ioffe & Szegedy 2015, arXiv:1502.03167).
 * x [B, C, ...] of no element a channel, or at least two, weight, bias [C] or NULL -> y like x.
 * weight, bias and the running statistics may have another dtype than x.
 *
 * A call that does not evaluate updates the running statistics, if there are any:
 *     mean = (1 - momentum) mean + momentum (the batch's mean)
 *     var  = (1 - momentum) var  + momentum (the batch's variance, divided by n - 1)
 * once in every forward, in a graph too, and so once for each batch whose gradients are
 * accumulated, but neither when gd_recompute runs a segment again nor in gradcheck. They have no
 * gradient. If the new statistic of a channel would not be finite, that channel keeps its old one;
 * buffers keep theirs in a step whose update is withheld (gd_params_add_buffer). NULL options for
 * the defaults. */
GD_API gd_tensor *gd_batch_norm(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                const gd_batch_norm_options *options);

/* The same over each of `groups` groups of channels of one example, all places together (Wu & He
 * 2018, arXiv:1803.08494): 1 group is layer_norm over everything but the batch, C groups are
 * instance norm. x [B, C, ...], C a multiple of groups, weight, bias [C] or NULL -> y like x. */
GD_API gd_tensor *gd_group_norm(gd_tensor *x, int64_t groups, gd_tensor *weight, gd_tensor *bias,
                                double eps);

/* ---- Matrices (kernels/matmul, kernels/linear, kernels/embedding) ------------------------- */

/* c = op(a) op(b), where op transposes the last two dimensions if asked.
 * a [..., M, K], b [..., K, N] (after op) -> [..., M, N]; leading dimensions broadcast.
 * K = 0 gives zeros. */
GD_API gd_tensor *gd_matmul(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_matmul_with(gd_tensor *a, gd_tensor *b, bool transpose_a, bool transpose_b);

/* y = x weight^T + bias.  x [..., K], weight [N, K], bias [N] or NULL -> y [..., N] */
GD_API gd_tensor *gd_linear(gd_tensor *x, gd_tensor *weight, gd_tensor *bias);

/* y[i, :] = table[ids[i], :].  table [V, C], ids GD_INT32 [...] -> [..., C]. An id outside [0, V)
 * is an error: on the CPU before anything is computed, on a GPU at the next wait for it. */
GD_API gd_tensor *gd_embedding(gd_tensor *table, gd_tensor *ids);

/* ---- Convolution (kernels/conv) ----------------------------------------------------------- */

/* Pairs are down and across; 0 is unset. conv1d reads the first of a pair. */
typedef struct gd_conv_options {
    int64_t stride[2];   /* from one window to the next; unset: 1 */
    int64_t padding[2];  /* zeros on both sides of an axis */
    int64_t dilation[2]; /* between neighbours of a window; unset: 1 */
    int64_t groups; /* of channels, each with its own part of the weight; C: depthwise; unset: 1 */
    /* More rows and columns of y, of conv_transpose2d alone, where several sizes of y give one of
     * x: less than the stride, or than the dilation. */
    int64_t output_padding[2];
} gd_conv_options;

/* y[b, o, p, q] = bias[o] + sum over c, i, j of
 *     weight[o, c, i, j] x[b, c, p stride - padding + i dilation, q stride - padding + j dilation],
 * a cross-correlation, as everywhere (LeCun et al. 1989); x is 0 outside of itself.
 * x [B, C, H, W], weight [O, C / groups, KH, KW], bias [O] or NULL -> y [B, O, OH, OW],
 * OH = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1, rounded down. A window that is larger
 * than x with its padding is an error.
 * Temporary memory on the CPU: for each thread 512 KiB (float32), or 144 windows; and in the
 * backward 16 MiB for the sums of dweight, or as much as a weight. On a GPU: 2^24 elements (64 MiB
 * of float32), 256 windows, or the windows of one channel of one image; and as many for the sums of
 * dweight, or twice its size. */
GD_API gd_tensor *gd_conv2d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                            const gd_conv_options *options);
/* The same along one axis. x [B, C, L], weight [O, C / groups, K] -> [B, O, OL]. */
GD_API gd_tensor *gd_conv1d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                            const gd_conv_options *options);
/* The adjoint of a conv2d without its bias, from the shape of its y to that of its x, plus a bias.
 * x [B, C, H, W], weight [C, O / groups, KH, KW], bias [O] or NULL -> y [B, O, OH, OW],
 * OH = (H - 1) stride - 2 padding + dilation (KH - 1) + 1 + output_padding. */
GD_API gd_tensor *gd_conv_transpose2d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                      const gd_conv_options *options);

/* Windows of [height, width] as columns: y[b, (c height + i) width + j, p OW + q] is
 * element (i, j) of
 * channel c of window (p, q).  x [B, C, H, W] -> [B, C height width, OH OW]. (groups: unused.) */
GD_API gd_tensor *gd_unfold(gd_tensor *x, int64_t height, int64_t width,
                            const gd_conv_options *options);
/* The adjoint of unfold: adds the columns into an image [H, W].
 * x [B, C height width, OH OW] -> [B, C, H, W]. */
GD_API gd_tensor *gd_fold(gd_tensor *x, int64_t H, int64_t W, int64_t height, int64_t width,
                          const gd_conv_options *options);

/* ---- Recurrent layers (kernels/rnn) ------------------------------------------------------- */

/* The weights of a layer with H columns, in PyTorch's order: four gates i, f, g, o of an LSTM,
 * three, r, z, n, of a GRU. */
typedef struct gd_rnn_weights {
    gd_tensor *input, *hidden;           /* [gates H, I], [gates H, H] */
    gd_tensor *input_bias, *hidden_bias; /* [gates H] or NULL */
} gd_rnn_weights;

#define GD_RNN_MOST_LAYERS 64

/* Layers one over the other, each over a whole sequence (Hochreiter & Schmidhuber 1997; Cho et al.
 * 2014, arXiv:1406.1078, with the reset after the product, as cuDNN and PyTorch have it).
 * x [B, T, I], T at least 1; `count` layers, of which the first reads I columns and the others H ->
 * the last layer's y [B, T, H]. state, cell [count, B, H], or NULL for zeros. *last_state and
 * *last_cell [count, B, H] are those after the last step; NULL: not needed. There is
 * neither a second direction nor dropout between layers, PyTorch's bidirectional and dropout: both
 * are calls around one layer after the other, gd_flip with gd_concat, and gd_dropout
 * (kernels/rnn/README.md shows them). */
GD_API gd_tensor *gd_lstm(gd_tensor *x, const gd_rnn_weights *layers, int count, gd_tensor *state,
                          gd_tensor *cell, gd_tensor **last_state, gd_tensor **last_cell);
GD_API gd_tensor *gd_gru(gd_tensor *x, const gd_rnn_weights *layers, int count, gd_tensor *state,
                         gd_tensor **last_state);

/* One step of one layer.  x [B, I], state, cell [B, H] or NULL for zeros -> the new state [B, H];
 * *next_cell, unless it is NULL, gets the new cell. */
GD_API gd_tensor *gd_lstm_cell(gd_tensor *x, gd_tensor *state, gd_tensor *cell,
                               const gd_rnn_weights *weights, gd_tensor **next_cell);
GD_API gd_tensor *gd_gru_cell(gd_tensor *x, gd_tensor *state, const gd_rnn_weights *weights);

/* ---- Attention (kernels/rope, kernels/attention, kernels/rope_attention) ------------------ */

typedef struct gd_rope_options {
    double base;      /* theta; unset: 10000 */
    int64_t position; /* of the first row: the number of tokens that came before */
    bool interleaved; /* pairs (2i, 2i+1), as in the paper; false: (i, i + D/2), as in Llama */
} gd_rope_options;

/* Rotates pairs of x by angles position * base^(-2i/D) (Su et al. 2021, arXiv:2104.09864).
 * x [B, T, H, D], D even, of any strides -> like x, packed. NULL options for the defaults. */
GD_API gd_tensor *gd_rope(gd_tensor *x, const gd_rope_options *options);

/* Queries, keys and values for attention from one product: qkv [B, T, H + 2 KV, D] holds H heads of
 * queries, then KV of keys, then KV of values. Fills *q [B, T, H, D], *k and *v [B, T, KV, D], the
 * first two rotated as by gd_rope, in one pass; NULLs on error. It is meant for gd_linear(h,
 * weight, NULL) with the three weights stacked, reshaped to heads by gd_reshape. */
GD_API gd_status gd_rope_qkv(gd_tensor *qkv, int64_t kv_heads, const gd_rope_options *options,
                             gd_tensor **q, gd_tensor **k, gd_tensor **v);

typedef struct gd_attention_options {
    bool causal;  /* query i sees keys 0 .. i + (S - T): the last query sees every key */
    double scale; /* of the scores; unset: 1 / sqrt(D) */
    /* The probability that a weight becomes 0, rounded as gd_dropout's; the others are divided by
     * 1 - dropout (Srivastava et al. 2014). Drawn from the context's random stream, not stored. */
    double dropout;
    /* Which keys a query sees, broadcast to [B, H, T, S]: GD_INT32, those where it is not 0; or of
     * q's dtype, added to the scores, which has a gradient (and then takes memory for [B, H, T, S]
     * in the backward). NULL: all. */
    gd_tensor *mask;
    /* Query i, whose own key is p = i + (S - T), sees only keys with |p - key| < window; if causal,
     * the last `window` up to its own. Unset: all. */
    int64_t window;
} gd_attention_options;

/* y = softmax(scale q k^T + mask) v per head, with query head h reading key head h / (H / KV)
 * (Vaswani et al. 2017; grouped queries: Ainslie et al. 2023, arXiv:2305.13245; without ever
 * storing the T x S scores: Dao et al. 2022, arXiv:2205.14135).
 * q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, E], H a multiple of KV -> [B, T, H, E].
 * A query that sees no key gives zeros, and has gradient 0. NULL options: full attention. PyTorch's
 * layout is [B, H, T, D]: call gd_permute first; its key_padding_mask [B, S], where true hides a
 * key, is here a mask [B, 1, 1, S], where 0 does. */
GD_API gd_tensor *gd_attention(gd_tensor *q, gd_tensor *k, gd_tensor *v,
                               const gd_attention_options *options);

/* gd_rope_qkv and gd_attention in one: y = attention(rope(q), rope(k), v), with q, k and v from
 * qkv [B, T, H + 2 KV, D], H a multiple of KV -> [B, T, H, D]. On a GPU its backward is faster than
 * theirs, since the gradients are rotated in attention's kernels. options->mask must be NULL; NULL
 * for either options: the defaults. */
GD_API gd_tensor *gd_rope_attention(gd_tensor *qkv, int64_t kv_heads, const gd_rope_options *rope,
                                    const gd_attention_options *options);

/* ---- Images (kernels/pool, kernels/pad) --------------------------------------------------- */

typedef struct gd_pool_options {
    int64_t kernel[2];  /* rows and columns of a window, at least 1 */
    int64_t stride[2];  /* from one window to the next; unset: the kernel */
    int64_t padding[2]; /* rows and columns on each side, at most half of the kernel; unset: 0 */
} gd_pool_options;

/* y = the largest element of each window, and the mean of each.  x [..., H, W] -> [..., H', W'],
 * H' = (H + 2 padding - kernel) / stride + 1, rounded down. The padding is less than any number for
 * the maximum, and counts as zeros in the mean. A plane of max_pool2d has fewer than 2^31
 * elements. */
GD_API gd_tensor *gd_max_pool2d(gd_tensor *x, const gd_pool_options *options);
GD_API gd_tensor *gd_avg_pool2d(gd_tensor *x, const gd_pool_options *options);

typedef enum gd_pad_mode {
    GD_PAD_CONSTANT = 0, /* the value */
    GD_PAD_REFLECT,      /* x mirrored at its outermost element, which is not repeated: c b a b c */
    GD_PAD_REPLICATE     /* the outermost element: a a a b c */
} gd_pad_mode;

typedef struct gd_pad_options {
    int64_t left, right, top, bottom; /* how many columns and rows to add; unset: 0 */
    gd_pad_mode mode;
    double value; /* of GD_PAD_CONSTANT */
} gd_pad_options;

/* y = x with more columns and rows around it.  x [..., H, W] -> [..., top + H + bottom,
 * left + W + right]; x [W] can have columns added. GD_PAD_REFLECT adds fewer than there are. */
GD_API gd_tensor *gd_pad(gd_tensor *x, const gd_pad_options *options);

/* y[..., i, j] = x[..., i / rows, j / cols].  x [..., H, W] -> [..., H rows, W cols] */
GD_API gd_tensor *gd_upsample_nearest(gd_tensor *x, int64_t rows, int64_t cols);

/* ---- Probabilities (kernels/softmax, kernels/cross_entropy) ------------------------------- */

/* Along `axis` (negative: from the end), computed relative to the row's maximum, so that it neither
 * overflows nor divides by zero. A row that is all -inf gives NaN, as 0/0 does. */
GD_API gd_tensor *gd_softmax(gd_tensor *x, int axis);
GD_API gd_tensor *gd_log_softmax(gd_tensor *x, int axis);

typedef enum gd_reduction {
    GD_MEAN = 0,
    GD_SUM = 1,
    GD_NONE = 2,
    GD_BATCHMEAN = 3 /* the sum divided by the first dimension; of gd_kl_div alone */
} gd_reduction;

typedef struct gd_cross_entropy_options {
    gd_reduction reduction; /* the mean is over the targets not ignored; GD_NONE: a loss per row */
    int32_t ignore_index;   /* rows with this target are ignored; unset: none are */
    gd_tensor *weight;      /* of the classes, [V], of the logits' dtype; NULL: 1. It has a gradient
                             * where targets are probabilities, and must not require one
                             * elsewhere */
    double label_smoothing; /* eps, 0 to 1 (Szegedy et al. 2016, arXiv:1512.00567); unset: 0 */
} gd_cross_entropy_options;

/* loss = reduction over rows i of  logsumexp(logits[i, :]) - logits[i, targets[i]].
 * logits [..., V], targets GD_INT32 [...] -> a tensor without dimensions, of float32 if the logits
 * are 16-bit; with GD_NONE [...], 0 for ignored rows. A target outside [0, V) that is not ignored
 * is an error, on a GPU at the next wait for it. The mean over no rows is NaN. The gradient
 * overwrites the logits if nothing else needs them.
 *
 * Targets may be probabilities q [..., V] of the logits' dtype, which have a gradient too and are
 * not checked to sum to 1; then there is no ignore_index. With a class weight w and smoothing eps
 *
 *     loss_i = sum_j w[j] ((1 - eps) q[i, j] + eps / V) (logsumexp(logits[i, :]) - logits[i, j])
 *
 * (q[i, j] = [j = targets[i]] for whole numbers), and the mean divides by the sum of w[targets[i]]
 * over the rows not ignored, for probabilities by the number of rows: PyTorch's definitions. */
GD_API gd_tensor *gd_cross_entropy(gd_tensor *logits, gd_tensor *targets);
GD_API gd_tensor *gd_cross_entropy_with(gd_tensor *logits, gd_tensor *targets,
                                        const gd_cross_entropy_options *options);

/* gd_cross_entropy_with(gd_linear(x, weight, NULL), targets, options) as one op, the end of a
 * language model. The forward overwrites the logits with the data for their gradient, so they are
 * read once and cannot be accessed; where there are many, and without a backward, they are computed
 * in pieces of rows, and are never in memory as a whole. (With many the forward computes the
 * gradients too, of x and weight as far as they require one then.)
 * x [..., K], weight [V, K], targets GD_INT32 [...] -> a tensor without dimensions. NULL options:
 * the mean. With class weights, smoothing, GD_NONE or probabilities it is two ops. */
GD_API gd_tensor *gd_linear_cross_entropy(gd_tensor *x, gd_tensor *weight, gd_tensor *targets,
                                          const gd_cross_entropy_options *options);

/* ---- Losses of pairs (kernels/loss) -------------------------------------------------------- */

/* A loss of each element of x and its target, and their mean, sum, or with GD_NONE all of them. x
 * and target have one shape and dtype; the result is of that dtype, [] or like x. Both get
 * gradients. The mean over no elements is NaN. */

GD_API gd_tensor *gd_mse_loss(gd_tensor *x, gd_tensor *target,
                              gd_reduction reduction); /* (x - t)^2 */
GD_API gd_tensor *gd_l1_loss(gd_tensor *x, gd_tensor *target, gd_reduction reduction); /* |x - t| */
/* With e = x - t: e^2 / 2 where |e| < delta, else delta (|e| - delta / 2); delta > 0 (Huber 1964).
 * smooth_l1_loss is that, with beta for delta, divided by beta; 0 for beta: l1_loss. */
GD_API gd_tensor *gd_huber_loss(gd_tensor *x, gd_tensor *target, double delta,
                                gd_reduction reduction);
GD_API gd_tensor *gd_smooth_l1_loss(gd_tensor *x, gd_tensor *target, double beta,
                                    gd_reduction reduction);
/* -(w t ln(sigmoid(x)) + (1 - t) ln(1 - sigmoid(x))), without overflow. pos_weight w broadcasts to
 * x, and gets a gradient too; NULL: 1. */
GD_API gd_tensor *gd_bce_with_logits(gd_tensor *x, gd_tensor *target, gd_tensor *pos_weight,
                                     gd_reduction reduction);
/* t (ln(t) - x) of log-probabilities x and probabilities t, 0 where t is 0; log_target: the target
 * is ln(t). The divergence of a batch of distributions is GD_BATCHMEAN: the sum over the first
 * dimension's size. */
GD_API gd_tensor *gd_kl_div(gd_tensor *x, gd_tensor *target, bool log_target,
                            gd_reduction reduction);

/* -w[t] log_probs[..., t] of targets t: gd_cross_entropy_with of log-probabilities, with the same
 * options but for label_smoothing. log_probs [..., V], targets GD_INT32 [...] -> [] or [...], of
 * float32 if log_probs are 16-bit (kernels/cross_entropy). */
GD_API gd_tensor *gd_nll_loss(gd_tensor *log_probs, gd_tensor *targets,
                              const gd_cross_entropy_options *options);
/* A few ops, as is the next (kernels/loss/composed.c):
 * a . b / (max(|a|, eps) max(|b|, eps)) along an axis, of one shape and dtype; PyTorch's
 * eps is 1e-8. */
GD_API gd_tensor *gd_cosine_similarity(gd_tensor *a, gd_tensor *b, int axis, double eps);
/* With c the cosine of a, b [..., N] along the last axis: 1 - c where the target [...] is 1, and
 * max(0, c - margin) where it is -1. target is of a's dtype. */
GD_API gd_tensor *gd_cosine_embedding_loss(gd_tensor *a, gd_tensor *b, gd_tensor *target,
                                           double margin, gd_reduction reduction);

/* ---- Parts of a transformer (kernels/swiglu, kernels/dropout) ----------------------------- */

/* y = silu(gate) * up, silu(z) = z / (1 + exp(-z)) (Shazeer 2020, arXiv:2002.05202); all of one
 * shape. up NULL: gate [..., 2 N] holds both, gate[..., :N] and up = gate[..., N:], as from one
 * product with the two weights stacked; y [..., N]. */
GD_API gd_tensor *gd_swiglu(gd_tensor *gate, gd_tensor *up);

/* y = x * keep / (1 - p), keep = 1 with probability 1 - p, from the context's random stream; the
 * mask is computed again in the backward instead of being stored. 0 <= p < 1, rounded to a multiple
 * of 2^-16, at most 1 - 2^-16, also in 1 / (1 - p); p = 0 copies. Element i takes half i mod 2 (the
 * low one first) of word i / 2 of the stream (random.h), and is dropped if that is below p 2^16. */
GD_API gd_tensor *gd_dropout(gd_tensor *x, double p);

/* ---- Elementwise, with broadcast (kernels/elementwise) ------------------------------------ */

GD_API gd_tensor *gd_add(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_sub(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_mul(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_div(gd_tensor *a, gd_tensor *b);
/* The larger, and the smaller, of the two. */
GD_API gd_tensor *gd_maximum(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_minimum(gd_tensor *a, gd_tensor *b);
/* a^b. */
GD_API gd_tensor *gd_pow_tensor(gd_tensor *a, gd_tensor *b);
/* condition GD_INT32: a where it is not 0, else b, both of one dtype, GD_INT32, too; all three
 * broadcast. */
GD_API gd_tensor *gd_where(gd_tensor *condition, gd_tensor *a, gd_tensor *b);
/* x where the mask (GD_INT32, broadcast to x) is 0, else `value`. */
GD_API gd_tensor *gd_masked_fill(gd_tensor *x, gd_tensor *mask, double value);

/* Masks: GD_INT32, 1 where a == b (!=, <, <=, >, >=), else 0; without a gradient. Comparisons with
 * NaN are false, except ne. Both real, or both GD_INT32. */
GD_API gd_tensor *gd_eq(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_ne(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_lt(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_le(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_gt(gd_tensor *a, gd_tensor *b);
GD_API gd_tensor *gd_ge(gd_tensor *a, gd_tensor *b);

GD_API gd_tensor *gd_neg(gd_tensor *x);
GD_API gd_tensor *gd_scale(gd_tensor *x, double factor);
GD_API gd_tensor *gd_add_scalar(gd_tensor *x, double term);
GD_API gd_tensor *gd_pow(gd_tensor *x, double exponent);
GD_API gd_tensor *gd_exp(gd_tensor *x);
GD_API gd_tensor *gd_log(gd_tensor *x);
GD_API gd_tensor *gd_log1p(gd_tensor *x); /* ln(1 + x), exact for small x */
GD_API gd_tensor *gd_expm1(gd_tensor *x); /* e^x - 1, likewise */
GD_API gd_tensor *gd_sqrt(gd_tensor *x);
GD_API gd_tensor *gd_rsqrt(gd_tensor *x);
GD_API gd_tensor *gd_reciprocal(gd_tensor *x); /* 1 / x */
GD_API gd_tensor *gd_sin(gd_tensor *x);
GD_API gd_tensor *gd_cos(gd_tensor *x);
GD_API gd_tensor *gd_atan(gd_tensor *x);
GD_API gd_tensor *gd_tanh(gd_tensor *x);
GD_API gd_tensor *gd_sigmoid(gd_tensor *x);
GD_API gd_tensor *gd_erf(gd_tensor *x);
GD_API gd_tensor *gd_relu(gd_tensor *x);
GD_API gd_tensor *gd_softplus(gd_tensor *x);  /* ln(1 + e^x) */
GD_API gd_tensor *gd_gelu(gd_tensor *x);      /* x Phi(x), by erf (Hendrycks & Gimpel 2016) */
GD_API gd_tensor *gd_gelu_tanh(gd_tensor *x); /* its tanh approximation */
GD_API gd_tensor *gd_silu(gd_tensor *x);
GD_API gd_tensor *gd_mish(gd_tensor *x); /* x tanh(ln(1 + e^x)) (Misra 2019, arXiv:1908.08681) */
/* x, and where it is negative slope x, or alpha (e^x - 1) (Clevert et al. 2015,
 * arXiv:1511.07289). */
GD_API gd_tensor *gd_leaky_relu(gd_tensor *x, double slope);
GD_API gd_tensor *gd_elu(gd_tensor *x, double alpha);
GD_API gd_tensor *gd_abs(gd_tensor *x);
/* min(max(x, low), high), low <= high; either may be infinite. hardtanh is the same with another
 * gradient at low and high: 0. */
GD_API gd_tensor *gd_clamp(gd_tensor *x, double low, double high);
GD_API gd_tensor *gd_hardtanh(gd_tensor *x, double low, double high);
/* -1, 0 or 1; the whole number below x, above x, or nearest to it (the even one of two as near).
 * Their gradient is 0. */
GD_API gd_tensor *gd_sign(gd_tensor *x);
GD_API gd_tensor *gd_floor(gd_tensor *x);
GD_API gd_tensor *gd_ceil(gd_tensor *x);
GD_API gd_tensor *gd_round(gd_tensor *x);

/* ---- Reductions (kernels/reduce) ---------------------------------------------------------- */

/* Over the `count` axes listed (negative: from the end), or over all of them if axes is NULL.
 * keep_dims leaves them in the shape with size 1. */
GD_API gd_tensor *gd_sum(gd_tensor *x, const int *axes, int count, bool keep_dims);
GD_API gd_tensor *gd_mean(gd_tensor *x, const int *axes, int count, bool keep_dims);
GD_API gd_tensor *gd_max(gd_tensor *x, const int *axes, int count, bool keep_dims);
/* -max(-x): equal minima share the gradient evenly. Over no elements: inf. */
GD_API gd_tensor *gd_min(gd_tensor *x, const int *axes, int count, bool keep_dims);
GD_API gd_tensor *gd_prod(gd_tensor *x, const int *axes, int count, bool keep_dims);
/* (sum |x|^p)^(1/p) for any p; max |x| for p = INFINITY, min |x| for -INFINITY, and for 0 how many
 * elements are not 0. No power overflows or vanishes. */
GD_API gd_tensor *gd_norm(gd_tensor *x, double p, const int *axes, int count, bool keep_dims);
GD_API gd_tensor *gd_logsumexp(gd_tensor *x, const int *axes, int count, bool keep_dims);
/* sum((x - mean)^2) / (n - correction), and its root: correction 1 for a sample (PyTorch's
 * default), 0 for a population. In float32 and 16 bits they, and their gradients, are those of
 * float64, rounded: squares neither overflow nor vanish. */
GD_API gd_tensor *gd_var(gd_tensor *x, const int *axes, int count, double correction,
                         bool keep_dims);
GD_API gd_tensor *gd_std(gd_tensor *x, const int *axes, int count, double correction,
                         bool keep_dims);
/* Whether any element is not 0, and whether all are: GD_INT32, 0 or 1, without a gradient. x of any
 * dtype. */
GD_API gd_tensor *gd_any(gd_tensor *x, const int *axes, int count, bool keep_dims);
GD_API gd_tensor *gd_all(gd_tensor *x, const int *axes, int count, bool keep_dims);
/* Over all axes: a tensor without dimensions. */
GD_API gd_tensor *gd_sum_all(gd_tensor *x);
GD_API gd_tensor *gd_mean_all(gd_tensor *x);

/* ---- Along one axis (kernels/axis) -------------------------------------------------------- */

/* These ops are PyTorch's of the same names; a negative `axis` counts from the end. */

/* y[..., i, ...] = x[..., index[..., i, ...], ...] at the place of the axis. index GD_INT32, of as
 * many dimensions as x and, except along the axis, no larger -> y of its shape. An index outside
 * [0, size of the axis) is an error, -1 too, on a GPU at the next wait for it. x may be GD_INT32,
 * such as labels, without a gradient. */
GD_API gd_tensor *gd_gather(gd_tensor *x, int axis, gd_tensor *index);
/* y[..., i, ...] = x[..., index[i], ...]: x of any dtype, index GD_INT32 [K], in any order, also
 * repeated. Its gradient, and gd_gather's, are dense, as large as x: gd_embedding's of a large
 * table touches few rows. */
GD_API gd_tensor *gd_index_select(gd_tensor *x, int axis, gd_tensor *index);
/* A copy of x to which y[..., index[..., i, ...], ...] += src[..., i, ...]: elements with the same
 * index are added in order. index as for gd_gather, and no larger than src; elements of src beyond
 * it are ignored. x, src of one dtype. */
GD_API gd_tensor *gd_scatter_add(gd_tensor *x, int axis, gd_tensor *index, gd_tensor *src);
/* Where the mask (GD_INT32, of any shape) is not 0, in row-major order: writes these places to
 * `places`, GD_INT32 [K] of yours, and their number to `count`, GD_INT32 of one element. The rest
 * of `places` is 0; with more than K places the first K are there. Nothing waits for the device. */
GD_API gd_status gd_nonzero(gd_tensor *mask, gd_tensor *places, gd_tensor *count);
/* One category for each row of weights [..., V], real and at least 0, such as a softmax: k with the
 * probability weights[k] / their sum, GD_INT32 [...]; -1 where a sum is 0 or not finite. A row
 * takes one number of gd_random_uniform in double; k is the first at which the cumulative sum, in
 * double, exceeds that fraction of the sum. Every device draws the same numbers. There is no
 * gradient. */
GD_API gd_tensor *gd_multinomial(gd_tensor *weights);
/* y_i = x_0 + ... + x_i. */
GD_API gd_tensor *gd_cumsum(gd_tensor *x, int axis);
/* The index of the largest element, the first of equal ones, or the first NaN: GD_INT32, without a
 * gradient. An axis of size 0 is an error. keep_dims leaves the axis in the shape with size 1. */
GD_API gd_tensor *gd_argmax(gd_tensor *x, int axis, bool keep_dims);
/* The index of the smallest element, the first of equal ones, or the first NaN. */
GD_API gd_tensor *gd_argmin(gd_tensor *x, int axis, bool keep_dims);
/* The k largest (or smallest) elements, 0 <= k <= size of the axis, the largest (smallest) first;
 * of equal ones the lower index comes first, and NaN counts as larger than any number. Returns the
 * values, which have a gradient, and their indices in *indices, GD_INT32, without one (NULL on
 * error; indices may be NULL). */
GD_API gd_tensor *gd_topk(gd_tensor *x, int64_t k, int axis, bool largest, gd_tensor **indices);

/* All elements in order, rising or descending: of equal ones the lower index comes first, and NaN
 * counts as larger than any number. Values and *indices as of gd_topk. */
GD_API gd_tensor *gd_sort(gd_tensor *x, int axis, bool descending, gd_tensor **indices);
/* y[..., j] = 1 where j is ids[...], else 0: ids GD_INT32 [...] -> [..., classes] of any dtype,
 * without a gradient. An id outside [0, classes) is an error, on a GPU at the next wait for it. */
GD_API gd_tensor *gd_one_hot(gd_tensor *ids, int64_t classes, gd_dtype dtype);

/* ---- Shapes (kernels/shape) --------------------------------------------------------------- */

/* These take every dtype; whole numbers, such as token ids, have no gradient. */

/* A view if the strides allow it, else a copy. One dimension may be -1: it follows from the
 * others. */
GD_API gd_tensor *gd_reshape(gd_tensor *x, int ndim, const int64_t *shape);
/* Dimension i of the result is dimension axes[i] of x. axes [ndim of x]. A view. */
GD_API gd_tensor *gd_permute(gd_tensor *x, const int *axes);
/* Exchanges two dimensions. A view. */
GD_API gd_tensor *gd_transpose(gd_tensor *x, int axis_a, int axis_b);
/* x[..., start : end, ...] along one axis, 0 <= start <= end <= size. A view. */
GD_API gd_tensor *gd_slice(gd_tensor *x, int axis, int64_t start, int64_t end);
/* x[..., start : start + length, ...]: the same by length. */
GD_API gd_tensor *gd_narrow(gd_tensor *x, int axis, int64_t start, int64_t length);
/* Inserts a dimension of size 1 at `axis` of the result; and removes one. Views. */
GD_API gd_tensor *gd_unsqueeze(gd_tensor *x, int axis);
GD_API gd_tensor *gd_squeeze(gd_tensor *x, int axis);
/* Broadcast to `shape`, without a copy: repeated axes have stride 0. */
GD_API gd_tensor *gd_expand(gd_tensor *x, int ndim, const int64_t *shape);
/* Joins `count` >= 1 tensors of one dtype along an axis; their other dimensions are equal. */
GD_API gd_tensor *gd_concat(gd_tensor *const *x, int count, int axis);
/* Joins `count` >= 1 tensors of one dtype and shape along a new axis. */
GD_API gd_tensor *gd_stack(gd_tensor *const *x, int count, int axis);
/* y[..., i, ...] = x[..., i - shift, ...], whose index counts around the end. Any shift; of a
 * multiple of the axis it is what gd_contiguous gives. */
GD_API gd_tensor *gd_roll(gd_tensor *x, int axis, int64_t shift);
/* The elements in reverse along the `count` axes listed, or along all of them if axes is NULL. */
GD_API gd_tensor *gd_flip(gd_tensor *x, const int *axes, int count);
/* x [..., M, N], and 0 where column j of row i is above (tril) or below (triu) a diagonal: kept is
 * j - i <= diagonal, and j - i >= diagonal. 0 also replaces NaN. */
GD_API gd_tensor *gd_tril(gd_tensor *x, int64_t diagonal);
GD_API gd_tensor *gd_triu(gd_tensor *x, int64_t diagonal);
/* Fills parts [count] with slices of these sizes [count] that follow one another along the axis,
 * views; the sizes add up to the axis. NULLs on error. */
GD_API gd_status gd_split(gd_tensor *x, int axis, int count, const int64_t *sizes,
                          gd_tensor **parts);
/* A packed copy, or a view if x is packed already. */
GD_API gd_tensor *gd_contiguous(gd_tensor *x);
/* Converts the dtype, rounding to nearest even. Between real dtypes it has a gradient; from
 * GD_INT32 it has none; to GD_INT32 it truncates. */
GD_API gd_tensor *gd_cast(gd_tensor *x, gd_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
