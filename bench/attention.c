/* attention.c - causal attention, forward and backward, for one size or a table of sizes. A figure
 * is the mean of consecutive calls, so that on a GPU the host's part does not count. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* B, H, T, D; the first is the CPU's. */
static const int64_t shapes[][4] = {{2, 4, 1024, 64},   {16, 12, 1024, 64}, {16, 12, 256, 64},
                                    {4, 16, 4096, 128}, {4, 16, 256, 128},  {16, 12, 1024, 128},
                                    {64, 4, 256, 64},   {64, 6, 256, 64}};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static const void *causal_args(const gd_op *op)
{
    for (int i = 0; i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, "causal")) return op->cases[i].args;
    return NULL;
}

/* seconds[2 * repeats]: those of the forward, then those of the backward. */
static gd_status time_shape(gd_context *ctx, const bench_options *o, const int64_t *shape,
                            double *seconds)
{
    enum { WARM_UP = 2 };
    timed_op t = bench_time_op(gd_find_op(NULL, "attention"));
    t.calls = o->device == GD_CUDA ? 10 : 1;
    gd_tensor *input[4] = {NULL}; /* no mask */
    for (int k = 0; k < 3; k++) {
        input[k] =
            gd_tensor_create(ctx, o->dtype, GD_SHAPE(shape[0], shape[2], shape[1], shape[3]));
        gd_random_normal(input[k], 0, 1);
        gd_tensor_set_requires_grad(input[k], true);
    }
    for (int i = -WARM_UP; i < o->repeats && !gd_error(ctx); i++) {
        gd_tensor *y = gd_apply(&t.op, input, 4, causal_args(t.original));
        gd_backward_from(&y, 1, NULL);
        for (int k = 0; k < 3; k++) gd_grad_clear(input[k]);
        gd_step_end(ctx);
        if (i < 0) continue;
        seconds[i] = t.forward_seconds;
        seconds[o->repeats + i] = t.backward_seconds;
    }
    for (int k = 0; k < 3; k++) gd_tensor_free(input[k]);
    return gd_error_status(ctx);
}

/* Counts the causal half of the scores: for each score and column a multiplication and an addition,
 * in q k^T and in p v; the backward as two and a half forwards. */
static void print(const bench_options *o, const int64_t *shape, double *seconds)
{
    const double work =
        2.0 * (double)(shape[0] * shape[1]) * (double)(shape[2] * shape[2]) * (double)shape[3];
    for (int backward = 0; backward < 2; backward++) {
        const double median = bench_median(seconds + backward * o->repeats, o->repeats);
        const double tflops = (backward ? 2.5 : 1) * work / median * 1e-12;
        const char *name = backward ? "attention_backward" : "attention_forward";
        printf(o->json ? "{\"name\": \"%s\", \"shape\": [%lld, %lld, %lld, %lld], \"dtype\": "
                         "\"%s\", \"tf32\": %s, \"ms\": %.6g, \"tflops\": %.4g}\n"
                       : "%-18s B %lld, H %lld, T %lld, D %lld %s%s %12.1f us %8.2f TFLOP/s\n",
               name, (long long)shape[0], (long long)shape[1], (long long)shape[2],
               (long long)shape[3], gd_dtype_name(o->dtype),
               o->json ? (o->tf32 ? "true" : "false") : (o->tf32 ? " as TF32" : ""),
               median * (o->json ? 1e3 : 1e6), tflops);
    }
}

int bench_attention(const bench_options *o)
{
    const bool one = o->shape[0] > 0, gpu = o->device == GD_CUDA;
    gd_context *ctx = bench_context(o);
    double *seconds = calloc((size_t)(2 * o->repeats), sizeof *seconds);
    gd_status status = seconds ? gd_error_status(ctx) : GD_ERROR_MEMORY;
    for (int i = gpu; !status && i < (one || !gpu ? gpu + 1 : SHAPES); i++) {
        const int64_t *shape = one ? o->shape : shapes[i];
        status = time_shape(ctx, o, shape, seconds);
        if (!status) print(o, shape, seconds);
    }
    free(seconds);
    if (status) return bench_fail(ctx);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
