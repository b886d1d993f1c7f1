/* twin_llama.c - a transformer of Llama's form (Touvron et al. 2023) continues letters; one target
 * in each batch does not count. */
#include "twin.h"

enum { B = 8, T = 24, V = 64, C = 48, H = 4, KV = 2, D = 12, F = 128, LAYERS = 2, STEPS = 60 };

typedef struct layer {
    gd_norm_layer norm1;
    gd_linear_layer q, k, v, o;
    gd_norm_layer norm2;
    gd_linear_layer gate, up, down;
} layer;

static gd_linear_layer linear(gd_params *p, int64_t in, int64_t out, const char *part, int i)
{
    return gd_make_linear(p, GD_NO_BIAS, in, out, gd_format("%d.%s", i, part).text);
}

static gd_norm_layer norm(gd_params *p, const char *part, int i)
{
    return gd_make_norm(p, GD_RMS_NORM, 0, C, gd_format("%d.%s", i, part).text);
}

static layer make(gd_params *p, int i)
{
    layer l = {.norm1 = norm(p, "norm1", i)};
    l.q = linear(p, C, H * D, "q", i), l.k = linear(p, C, KV * D, "k", i);
    l.v = linear(p, C, KV * D, "v", i), l.o = linear(p, H * D, C, "o", i);
    l.norm2 = norm(p, "norm2", i), l.gate = linear(p, C, F, "gate", i);
    l.up = linear(p, C, F, "up", i), l.down = linear(p, F, C, "down", i);
    return l;
}

static gd_tensor *heads(const gd_linear_layer *l, gd_tensor *x, int64_t count)
{
    return gd_reshape(gd_run_linear(l, x), GD_SHAPE(B, T, count, D));
}

static gd_tensor *run(const layer *l, gd_tensor *x)
{
    gd_tensor *h = gd_run_norm(&l->norm1, x, false), *v = heads(&l->v, h, KV);
    gd_tensor *q = gd_rope(heads(&l->q, h, H), NULL), *k = gd_rope(heads(&l->k, h, KV), NULL);
    h = gd_attention(q, k, v, &(gd_attention_options){.causal = true});
    h = gd_run_linear(&l->o, gd_reshape(h, GD_SHAPE(B, T, H * D)));
    h = gd_add_rms_norm(h, x, l->norm2.weight, NULL, &(gd_rms_norm_options){.eps = 1e-5}, &x);
    h = gd_swiglu(gd_run_linear(&l->gate, h), gd_run_linear(&l->up, h));
    return gd_add(x, gd_run_linear(&l->down, h));
}

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer table = gd_make_embedding(p, V, C, "table");
    layer layers[LAYERS];
    for (int i = 0; i < LAYERS; i++) layers[i] = make(p, i);
    const gd_norm_layer last = norm(p, "norm", LAYERS);
    const gd_linear_layer out = linear(p, C, V, "out", LAYERS);
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *letters = twin_ints(ctx, 1, V, GD_SHAPE(STEPS * B, T));
    gd_tensor *next = twin_ints(ctx, 2, V, GD_SHAPE(STEPS * B, T));
    for (int step = 0; step < STEPS; step++) ((int32_t *)gd_tensor_data(next))[step * B * T] = -100;
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *x = gd_run_embedding(&table, gd_narrow(letters, 0, step * B, B));
        for (int i = 0; i < LAYERS; i++) x = run(&layers[i], x);
        gd_tensor *logits = gd_run_linear(&out, gd_run_norm(&last, x, false));
        const gd_cross_entropy_options ignore = {.ignore_index = -100};
        gd_tensor *wanted = gd_narrow(next, 0, step * B, B);
        twin_update(adamw, 0.003, p, gd_cross_entropy_with(logits, wanted, &ignore));
    }
    return twin_end(p, adamw);
}
