/* layers.c - the ops of layers.def, forward and backward, all gradients included. A figure is the
 * median of several means of consecutive calls. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 5, SHAPE = 4 };

typedef struct layer {
    const char *name, *kinds; /* of inputs: layers.def */
    gd_tensor *(*run)(gd_tensor *const *in);
    int64_t shape[MOST_INPUTS][SHAPE]; /* 0: no such dimension */
} layer;

#define LAYER(name, kinds, call, ...)                  \
    static gd_tensor *run_##name(gd_tensor *const *in) \
    {                                                  \
        return call;                                   \
    }
#include "layers.def"
#undef LAYER

#define LAYER(name, kinds, call, ...) {#name, kinds, run_##name, {__VA_ARGS__}},
static const layer layers[] = {
#include "layers.def"
};

static void make_inputs(gd_context *ctx, const bench_options *o, const layer *l, gd_tensor **in)
{
    for (int k = 0; l->kinds[k]; k++) {
        int64_t shape[SHAPE];
        int ndim = 0;
        memcpy(shape, l->shape[k], sizeof shape);
        while (ndim < SHAPE && shape[ndim]) ndim++;
        const char kind = l->kinds[k];
        if (!strchr("ws", kind) && o->device == GD_CPU) shape[0] /= 8;
        in[k] = gd_tensor_create(ctx, strchr("cm", kind) ? GD_INT32 : o->dtype, ndim, shape);
        if (strchr("cm", kind))
            gd_random_integers(in[k], 0, kind == 'm' ? 2 : gd_tensor_dim(in[0], -1));
        else if (strchr("st", kind))
            gd_random_uniform(in[k], 0, 1);
        else
            gd_random_normal(in[k], 0, kind == 'w' ? 0.05 : 1);
        if (strchr("xw", kind)) gd_tensor_set_requires_grad(in[k], true);
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
        for (int k = 0; l->kinds[k]; k++) gd_grad_clear(in[k]);
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
    for (int k = 0; l->kinds[k]; k++) gd_tensor_free(in[k]);
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
