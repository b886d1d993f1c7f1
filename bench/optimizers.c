/* optimizers.c - one update of a matrix by each optimizer, against a copy of as many floats by the
 * library. Muon's is a figure of arithmetic: its products. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 9, UPDATES = 5, MARKS = 2 };

typedef struct kind {
    const char *name;
    int states; /* numbers for each weight */
} kind;

static const kind kinds[KINDS] = {{"sgd", 0},     {"sgd_momentum", 1}, {"adamw", 2},
                                  {"adam", 2},    {"rmsprop", 1},      {"rmsprop_centered", 2},
                                  {"adagrad", 1}, {"lion", 1},         {"muon", 2}};

static gd_optimizer *create(gd_params *params, int i)
{
    switch (i) {
    case 0:
        return gd_sgd_create(params, NULL);
    case 1:
        return gd_sgd_create(params, &(gd_sgd_options){.momentum = 0.9});
    case 2:
        return gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.1});
    case 3:
        return gd_adam_create(params, NULL);
    case 4:
        return gd_rmsprop_create(params, NULL);
    case 5:
        return gd_rmsprop_create(params, &(gd_rmsprop_options){.centered = true});
    case 6:
        return gd_adagrad_create(params, NULL);
    case 7:
        return gd_lion_create(params, &(gd_lion_options){.weight_decay = 0.1});
    default:
        return gd_muon_create(params, NULL);
    }
}

/* w, the gradient and the states are read, w and the states written; of 16-bit weights both they
 * and their masters. */
static double bytes_of(const kind *k, double n, gd_dtype dtype)
{
    const double size = dtype == GD_FLOAT64 ? 8 : 4;
    return n * (size * (3 + 2 * k->states) + (gd_dtype_size(dtype) == 2 ? 4 : 0));
}

/* Five steps of three products. */
static double muon_flops(double rows, double cols)
{
    const double small = fmin(rows, cols), large = fmax(rows, cols);
    return 5 * (4 * small * small * large + 2 * small * small * small);
}

/* The seconds of one update, the mean of some, and of a copy from the gradient, in turn. */
static gd_status time_updates(gd_optimizer *optimizer, gd_tensor *copy, const gd_tensor *grad,
                              device_clock *clock, int repeats, double *seconds, double *copied)
{
    gd_context *ctx = gd_tensor_context(grad);
    for (int r = -1; r < repeats && !gd_error(ctx); r++) {
        double *const into[MARKS] = {seconds, copied};
        for (int turn = 0; turn < MARKS; turn++) {
            device_clock_hold(clock);
            device_clock_mark(clock, 0);
            for (int i = 0; i < UPDATES; i++) {
                if (turn)
                    gd_tensor_copy(copy, grad);
                else
                    gd_optimizer_step(optimizer, 1e-4);
            }
            device_clock_mark(clock, 1);
            const double spent = device_clock_seconds(clock, 0, 1) / UPDATES;
            if (r >= 0) into[turn][r] = spent;
        }
    }
    return gd_error_status(ctx);
}

int bench_optimizers(const bench_options *o)
{
    const int64_t rows = o->rows ? o->rows : 4096, cols = o->cols ? o->cols : 4096;
    const double n = (double)rows * (double)cols;
    gd_context *ctx = bench_context(o);
    if (gd_error(ctx)) return bench_fail(ctx);
    gd_params *params = gd_params_create(ctx, o->dtype);
    gd_tensor *w = gd_params_add(params, "w", 2, (int64_t[]){rows, cols}, GD_DECAY | GD_MUON);
    gd_params_finish(params);
    gd_random_normal(w, 0, 1);
    gd_backward_from(&w, 1, NULL); /* makes the gradient */
    gd_tensor *grad = gd_grad(w),
              *copy = gd_tensor_create(ctx, gd_tensor_dtype(grad), 2, gd_tensor_shape(w));
    gd_random_normal(grad, 0, 1);
    device_clock *clock = device_clock_create(ctx, MARKS);
    double *seconds = calloc((size_t)(2 * o->repeats), sizeof *seconds);
    if (!o->json)
        printf("one update of %lld x %lld %s on %s\n", (long long)rows, (long long)cols,
               gd_dtype_name(o->dtype), gd_context_device_name(ctx));
    for (int i = 0; i < KINDS && clock && seconds && !gd_error(ctx); i++) {
        gd_optimizer *optimizer = create(params, i);
        double *copied = seconds + o->repeats;
        if (!time_updates(optimizer, copy, grad, clock, o->repeats, seconds, copied)) {
            const bool muon = i == KINDS - 1;
            const double size = (double)gd_dtype_size(gd_tensor_dtype(grad));
            bench_series series = {kinds[i].name, bytes_of(&kinds[i], n, o->dtype), seconds,
                                   o->repeats};
            const bench_series ceiling = {"copy", 2 * size * n, copied, o->repeats};
            if (muon) series.bytes = 0;
            bench_print(&series, 1, muon ? NULL : &ceiling, o->json);
            if (muon && !o->json)
                printf("%28s %.2f TFLOP/s\n", "",
                       muon_flops((double)rows, (double)cols) / bench_median(seconds, o->repeats) *
                           1e-12);
        }
        gd_optimizer_free(optimizer);
    }
    free(seconds);
    device_clock_free(clock);
    if (gd_error(ctx)) return bench_fail(ctx);
    gd_tensor_free(copy);
    gd_params_free(params);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
