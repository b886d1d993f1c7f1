/* model.h - a Llama-style transformer (Touvron et al. 2023, arXiv:2302.13971).
 *
 *     x = embedding[tokens]                                  [B, T, C]
 *     each layer:
 *         x = x + wo attention(rope(wq h), rope(wk h), wv h)     h = rms_norm(x, norm1)
 *         x = x + w_down (silu(w_gate h) * (w_up h))             h = rms_norm(x, norm2)
 *     logits = output rms_norm(x, norm_final)                [B, T, V]
 *
 * H query heads share KV key and value heads, each D = C / H wide. Matrices are [out, in]. Matrices
 * that read the same h are stacked in one parameter and computed as one product: wqkv holds wq, wk
 * and wv, w_gate_up holds w_gate and w_up.
 */
#ifndef GRADUS_TRAIN_MODEL_H
#define GRADUS_TRAIN_MODEL_H

#include "gradus/gradus.h"

typedef struct model_config {
    int64_t vocab, layers, dim, heads, kv_heads, ffn;
    int64_t positions; /* the longest context it was made for; not a limit */
    double dropout;    /* of the embedding, the attention weights and each branch's output */
    double eps;        /* of the norms; 0: 1e-5 */
    double rope_base;  /* 0: 10000 */
    bool tied, recompute;
} model_config;

typedef struct model_layer {
    gd_tensor *norm1, *wqkv, *wo;          /* wqkv [(H + 2 KV) D, C] */
    gd_tensor *norm2, *w_gate_up, *w_down; /* w_gate_up [2 ffn, C] */
    const struct model *owner;
} model_layer;

typedef struct model {
    model_config config;
    gd_context *ctx;
    gd_params *params;
    gd_tensor *embedding, *norm_final, *output; /* tied: output is embedding */
    model_layer *layers;                        /* [config.layers] */
    bool training;                              /* dropout is on */
    /* Unless NULL, attention of one text beyond its own tokens (decode.h): takes over
     * qkv [1, T, H + 2 KV, D] -> [1, T, H, D]. */
    gd_tensor *(*attend)(void *user, int64_t layer, gd_tensor *qkv);
    void *attend_user;
} model;

/* Makes the parameters and draws their values: normal with standard deviation 0.02, the two
 * projections into the residual stream scaled by 1 / sqrt(2 layers) (Radford et al. 2019), norms 1.
 * On error the context has the message. */
gd_status model_create(model *m, gd_context *ctx, gd_dtype dtype, const model_config *config);

/* The two parts of model_create: the parameters' shapes, which take no memory, and their values. */
gd_status model_declare(model *m, gd_context *ctx, gd_dtype dtype, const model_config *config);
gd_status model_fill(model *m);

void model_free(model *m);

/* The mean over all tokens of -log softmax(logits)[target]; targets GD_INT32 [B, T]. The logits are
 * not stored (gd_linear_cross_entropy). */
gd_tensor *model_loss(model *m, gd_tensor *tokens, gd_tensor *targets);

/* Floating-point operations of forward and backward per token: 6 for each weight of a matrix, and
 * 12 C T a layer for the scores and values of attention (Chowdhery et al. 2022, appendix B). */
double model_flops_per_token(const model *m, int64_t context);

/* The norm of the last layer's output, which the output matrix reads: tokens [B, T] ->
 * [B, T, C]. */
gd_tensor *model_hidden(model *m, gd_tensor *tokens);

/* Returns y, which was made from x, and frees x: its memory is free for the next op before the step
 * ends, unless a backward reads it. */
static inline gd_tensor *model_last_use(gd_tensor *x, gd_tensor *y)
{
    if (y != x) gd_tensor_free(x);
    return y;
}

#endif
