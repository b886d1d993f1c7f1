/* layers.c - layers, attention, losses and a few other ops at sizes people train with, forward and
 * backward, all gradients included. A figure is the median of several means of consecutive calls.
 * compare_ops.py has the same ones. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 5, SHAPE = 4 };

/* What the inputs after the first are. */
typedef enum others {
    WEIGHTS,
    STATISTICS, /* weights, of which the last two have no gradient: numbers from 0 to 1 */
    LIKE_X,     /* they have x's batch */
    TARGETS,    /* they have x's batch and no gradient: numbers from 0 to 1 */
    CLASSES     /* the same, whole numbers: places in x's last dimension */
} others;

/* The first dimension of input 0 is the batch: on the CPU an eighth. */
typedef struct layer {
    const char *name;
    gd_tensor *(*run)(gd_tensor *const *in);
    int inputs;
    int64_t shape[MOST_INPUTS][SHAPE]; /* 0: no such dimension */
    others others;
} layer;

static gd_tensor *conv3x3(gd_tensor *const *in)
{
    return gd_conv2d(in[0], in[1], in[2], &(gd_conv_options){.padding = {1, 1}});
}

static gd_tensor *depthwise(gd_tensor *const *in)
{
    return gd_conv2d(in[0], in[1], in[2], &(gd_conv_options){.padding = {1, 1}, .groups = 64});
}

static gd_tensor *conv1d(gd_tensor *const *in)
{
    return gd_conv1d(in[0], in[1], in[2], &(gd_conv_options){.padding = {1}});
}

static gd_tensor *conv_transpose(gd_tensor *const *in)
{
    return gd_conv_transpose2d(in[0], in[1], in[2],
                               &(gd_conv_options){.stride = {2, 2}, .padding = {1, 1}});
}

static gd_tensor *unfold(gd_tensor *const *in)
{
    return gd_unfold(in[0], 3, 3, &(gd_conv_options){.padding = {1, 1}});
}

static gd_tensor *fold(gd_tensor *const *in)
{
    return gd_fold(in[0], 56, 56, 3, 3, &(gd_conv_options){.padding = {1, 1}});
}

static gd_tensor *pad(gd_tensor *const *in)
{
    return gd_pad(in[0], &(gd_pad_options){1, 1, 1, 1, .mode = GD_PAD_REFLECT});
}

static gd_tensor *upsample(gd_tensor *const *in)
{
    return gd_upsample_nearest(in[0], 2, 2);
}

static gd_tensor *max_pool(gd_tensor *const *in)
{
    return gd_max_pool2d(in[0], &(gd_pool_options){.kernel = {2, 2}});
}

static gd_tensor *avg_pool(gd_tensor *const *in)
{
    return gd_avg_pool2d(in[0], &(gd_pool_options){.kernel = {2, 2}});
}

static gd_tensor *batch_norm(gd_tensor *const *in)
{
    return gd_batch_norm(in[0], in[1], in[2], NULL);
}

static gd_tensor *batch_norm_fixed(gd_tensor *const *in)
{
    return gd_batch_norm(in[0], in[1], in[2],
                         &(gd_batch_norm_options){.mean = in[3], .var = in[4], .evaluate = true});
}

static gd_tensor *group_norm(gd_tensor *const *in)
{
    return gd_group_norm(in[0], 8, in[1], in[2], 1e-5);
}

static gd_tensor *lstm(gd_tensor *const *in)
{
    const gd_rnn_weights w = {in[1], in[2], in[3], in[4]};
    return gd_lstm(in[0], &w, 1, NULL, NULL, NULL, NULL);
}

static gd_tensor *gru(gd_tensor *const *in)
{
    const gd_rnn_weights w = {in[1], in[2], in[3], in[4]};
    return gd_gru(in[0], &w, 1, NULL, NULL);
}

static gd_tensor *mse(gd_tensor *const *in)
{
    return gd_mse_loss(in[0], in[1], GD_MEAN);
}

static gd_tensor *l1(gd_tensor *const *in)
{
    return gd_l1_loss(in[0], in[1], GD_MEAN);
}

static gd_tensor *huber(gd_tensor *const *in)
{
    return gd_huber_loss(in[0], in[1], 0.5, GD_MEAN);
}

static gd_tensor *smooth_l1(gd_tensor *const *in)
{
    return gd_smooth_l1_loss(in[0], in[1], 0.5, GD_MEAN);
}

static gd_tensor *bce(gd_tensor *const *in)
{
    return gd_bce_with_logits(in[0], in[1], NULL, GD_MEAN);
}

static gd_tensor *kl_div(gd_tensor *const *in)
{
    return gd_kl_div(in[0], in[1], false, GD_BATCHMEAN);
}

static gd_tensor *nll(gd_tensor *const *in)
{
    return gd_nll_loss(in[0], in[1], NULL);
}

static gd_tensor *cross_entropy(gd_tensor *const *in)
{
    return gd_cross_entropy(in[0], in[1]);
}

static gd_tensor *cosine(gd_tensor *const *in)
{
    return gd_cosine_similarity(in[0], in[1], -1, 1e-8);
}

static gd_tensor *leaky_relu(gd_tensor *const *in)
{
    return gd_leaky_relu(in[0], 0.01);
}

static gd_tensor *mish(gd_tensor *const *in)
{
    return gd_mish(in[0]);
}

static gd_tensor *prod(gd_tensor *const *in)
{
    return gd_prod(in[0], (int[]){-1}, 1, false);
}

static gd_tensor *norm(gd_tensor *const *in)
{
    return gd_norm(in[0], 2, (int[]){-1}, 1, false);
}

static gd_tensor *sort(gd_tensor *const *in)
{
    return gd_sort(in[0], -1, false, NULL);
}

static gd_tensor *topk(gd_tensor *const *in)
{
    return gd_topk(in[0], 32, -1, true, NULL);
}

static gd_tensor *gather(gd_tensor *const *in)
{
    return gd_gather(in[0], -1, in[1]);
}

static gd_tensor *index_select(gd_tensor *const *in)
{
    return gd_index_select(in[0], -1, in[1]);
}

static gd_tensor *any(gd_tensor *const *in)
{
    return gd_any(in[0], (int[]){-1}, 1, false);
}

static gd_tensor *all(gd_tensor *const *in)
{
    return gd_all(in[0], (int[]){-1}, 1, false);
}

static gd_tensor *one_hot(gd_tensor *const *in)
{
    return gd_one_hot(in[1], gd_tensor_dim(in[0], -1), gd_tensor_dtype(in[0]));
}

static gd_tensor *flip(gd_tensor *const *in)
{
    return gd_flip(in[0], (int[]){-1}, 1);
}

static gd_tensor *tril(gd_tensor *const *in)
{
    return gd_tril(in[0], 0);
}

static gd_tensor *attention(gd_tensor *const *in)
{
    return gd_attention(in[0], in[1], in[2], &(gd_attention_options){.causal = true});
}

#define HEADS(...)                    \
    {                                 \
        {__VA_ARGS__}, {__VA_ARGS__}, \
        {                             \
            __VA_ARGS__               \
        }                             \
    }

static const layer layers[] = {
    {"attention", attention, 3, HEADS(16, 1024, 12, 64), LIKE_X},
    {"attention_short", attention, 3, HEADS(16, 256, 12, 64), LIKE_X},
    {"attention_wide", attention, 3, HEADS(16, 1024, 12, 128), LIKE_X},
    {"conv2d", conv3x3, 3, {{32, 64, 56, 56}, {64, 64, 3, 3}, {64}}, WEIGHTS},
    {"depthwise", depthwise, 3, {{32, 64, 56, 56}, {64, 1, 3, 3}, {64}}, WEIGHTS},
    {"conv1d", conv1d, 3, {{32, 64, 3136}, {64, 64, 3}, {64}}, WEIGHTS},
    {"conv_transpose2d", conv_transpose, 3, {{32, 64, 28, 28}, {64, 64, 4, 4}, {64}}, WEIGHTS},
    {"unfold", unfold, 1, {{32, 64, 56, 56}}, WEIGHTS},
    {"fold", fold, 1, {{32, 576, 3136}}, WEIGHTS},
    {"pad", pad, 1, {{256, 64, 56, 56}}, WEIGHTS},
    {"upsample_nearest", upsample, 1, {{256, 64, 28, 28}}, WEIGHTS},
    {"max_pool2d", max_pool, 1, {{256, 64, 56, 56}}, WEIGHTS},
    {"avg_pool2d", avg_pool, 1, {{256, 64, 56, 56}}, WEIGHTS},
    {"batch_norm", batch_norm, 3, {{256, 64, 56, 56}, {64}, {64}}, WEIGHTS},
    {"batch_norm_fixed",
     batch_norm_fixed,
     5,
     {{256, 64, 56, 56}, {64}, {64}, {64}, {64}},
     STATISTICS},
    {"group_norm", group_norm, 3, {{256, 64, 56, 56}, {64}, {64}}, WEIGHTS},
    {"lstm", lstm, 5, {{64, 128, 512}, {2048, 512}, {2048, 512}, {2048}, {2048}}, WEIGHTS},
    {"gru", gru, 5, {{64, 128, 512}, {1536, 512}, {1536, 512}, {1536}, {1536}}, WEIGHTS},
    {"mse_loss", mse, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"l1_loss", l1, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"huber_loss", huber, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"smooth_l1_loss", smooth_l1, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"bce_with_logits", bce, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"kl_div", kl_div, 2, {{32768, 1024}, {32768, 1024}}, TARGETS},
    {"nll_loss", nll, 2, {{32768, 1024}, {32768}}, CLASSES},
    {"cross_entropy", cross_entropy, 2, {{32768, 1024}, {32768}}, CLASSES},
    {"cosine_similarity", cosine, 2, {{32768, 1024}, {32768, 1024}}, LIKE_X},
    {"leaky_relu", leaky_relu, 1, {{32768, 1024}}, LIKE_X},
    {"mish", mish, 1, {{32768, 1024}}, LIKE_X},
    {"prod", prod, 1, {{32768, 1024}}, LIKE_X},
    {"norm", norm, 1, {{32768, 1024}}, LIKE_X},
    {"sort", sort, 1, {{32768, 1024}}, LIKE_X},
    {"gather", gather, 2, {{1 << 20}, {1 << 20}}, CLASSES},
    {"gather_rows", gather, 2, {{32768, 1024}, {32768, 1024}}, CLASSES},
    {"index_select", index_select, 2, {{4096, 8192}, {8192}}, CLASSES},
    {"topk", topk, 1, {{32768, 1024}}, LIKE_X},
    {"any", any, 1, {{32768, 1024}}, LIKE_X},
    {"all", all, 1, {{32768, 1024}}, LIKE_X},
    {"one_hot", one_hot, 2, {{32768, 1024}, {32768}}, CLASSES},
    {"flip", flip, 1, {{32768, 1024}}, LIKE_X},
    {"tril", tril, 1, {{32, 1024, 1024}}, LIKE_X},
};

static void make_inputs(gd_context *ctx, const bench_options *o, const layer *l, gd_tensor **in)
{
    for (int k = 0; k < l->inputs; k++) {
        int64_t shape[SHAPE];
        int ndim = 0;
        memcpy(shape, l->shape[k], sizeof shape);
        while (ndim < SHAPE && shape[ndim]) ndim++;
        const others kind = k ? l->others : LIKE_X;
        const bool weight = kind == WEIGHTS || kind == STATISTICS;
        const bool fixed = kind == TARGETS || (kind == STATISTICS && k >= l->inputs - 2);
        if (!weight && o->device == GD_CPU) shape[0] /= 8;
        in[k] = gd_tensor_create(ctx, kind == CLASSES ? GD_INT32 : o->dtype, ndim, shape);
        if (kind == CLASSES)
            gd_random_integers(in[k], 0, gd_tensor_dim(in[0], -1));
        else if (fixed)
            gd_random_uniform(in[k], 0, 1);
        else
            gd_random_normal(in[k], 0, weight ? 0.05 : 1);
        if (!fixed && kind != CLASSES) gd_tensor_set_requires_grad(in[k], true);
    }
}

/* times[0], of a forward, and times[1], of a backward, in seconds; 0 without one. gd_backward_from
 * copies dy first, as no backward within a net does: the time of such copies, in the same run, is
 * subtracted. */
static gd_status time_layer(gd_context *ctx, device_clock *clock, const layer *l,
                            gd_tensor *const *in, gd_tensor *dy, gd_tensor *copy, int calls,
                            double *times)
{
    gd_tensor *y[16];
    device_clock_hold(clock);
    device_clock_mark(clock, 0);
    for (int i = 0; i < calls; i++) y[i] = l->run(in);
    device_clock_mark(clock, 1);
    const bool backward = gd_tensor_requires_grad(y[0]);
    for (int i = 0; i < calls && backward && !gd_error(ctx); i++) {
        gd_backward_from(&y[i], 1, &(gd_backward_options){.cotangents = &dy});
        for (int k = 0; k < l->inputs; k++) gd_grad_clear(in[k]);
    }
    device_clock_mark(clock, 2);
    for (int i = 0; i < calls; i++) gd_tensor_copy(copy, dy);
    device_clock_mark(clock, 3);
    if (gd_synchronize(ctx)) return gd_error_status(ctx);
    times[0] = device_clock_seconds(clock, 0, 1) / calls;
    if (backward)
        times[1] = (device_clock_seconds(clock, 1, 2) - device_clock_seconds(clock, 2, 3)) / calls;
    return gd_step_end(ctx), gd_error_status(ctx);
}

static gd_status print_layer(gd_context *ctx, const bench_options *o, device_clock *clock,
                             const layer *l, double *seconds)
{
    const int calls = o->device == GD_CUDA ? 4 : 1;
    gd_tensor *in[MOST_INPUTS] = {NULL};
    make_inputs(ctx, o, l, in);
    gd_tensor *y = l->run(in);
    gd_tensor *made[2] = {NULL, NULL}; /* dy, and a copy */
    for (int i = 0; i < 2 && y; i++)
        made[i] = gd_tensor_create(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y));
    gd_tensor *dy = made[0], *copy = made[1];
    if (y && gd_tensor_requires_grad(y)) gd_random_normal(dy, 0, 1);
    gd_step_end(ctx);
    for (int i = -2; i < o->repeats && !gd_error(ctx); i++) {
        double times[2] = {0, 0};
        if (time_layer(ctx, clock, l, in, dy, copy, calls, times)) break;
        seconds[i < 0 ? 0 : i] = times[0];
        seconds[o->repeats + (i < 0 ? 0 : i)] = times[1];
    }
    for (int k = 0; k < l->inputs; k++) gd_tensor_free(in[k]);
    gd_tensor_free(dy);
    gd_tensor_free(copy);
    if (gd_error(ctx)) return gd_error_status(ctx);
    const double forward = bench_median(seconds, o->repeats),
                 backward = bench_median(seconds + o->repeats, o->repeats);
    printf(o->json ? "{\"name\": \"%s\", \"dtype\": \"%s\", \"tf32\": %s, \"forward_us\": %.6g, "
                     "\"backward_us\": %.6g}\n"
                   : "%-17s %s%s: forward %10.1f us, backward %10.1f us\n",
           l->name, gd_dtype_name(o->dtype),
           o->json ? (o->tf32 ? "true" : "false") : (o->tf32 ? " as TF32" : ""), forward * 1e6,
           backward * 1e6);
    return GD_OK;
}

bool bench_is_layer(const char *name)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (!strcmp(name, layers[i].name)) return true;
    return false;
}

int bench_layers(const bench_options *o)
{
    gd_context *ctx = bench_context(o);
    double *seconds = calloc((size_t)(2 * o->repeats), sizeof *seconds);
    device_clock *clock = gd_error(ctx) ? NULL : device_clock_create(ctx, 4);
    gd_status status = seconds && clock ? gd_error_status(ctx) : GD_ERROR_MEMORY;
    for (size_t i = 0; !status && i < sizeof layers / sizeof *layers; i++)
        if (!o->op || !strcmp(o->op, layers[i].name))
            status = print_layer(ctx, o, clock, &layers[i], seconds);
    device_clock_free(clock);
    free(seconds);
    if (status) return bench_fail(ctx);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
