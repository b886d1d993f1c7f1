/* test_cuda_composed.c - the functions that are a few ops, forward and backward, on the GPU against
 * the CPU: float64 and float32 against float64, and 16-bit dtypes against the same. */
#include "composed.h"
#include "gpu.h"

#include <math.h>

enum { MOST = 2048 };

/* Fills value with y, and the gradients by the inputs; returns how many numbers there are. */
static int64_t run(gd_context *ctx, const composed *c, gd_dtype dtype, gd_dtype rounded,
                   double *value)
{
    gd_tensor *in[COMPOSED_INPUTS];
    int64_t n = 0;
    for (int k = 0; k < c->count; k++) in[k] = composed_input(ctx, c, k, dtype, rounded);
    gd_tensor *y = gd_keep(c->function(NULL, in, c->count));
    if (!gd_error(ctx)) {
        n = gd_tensor_count(y);
        ck_assert_int_le(n, MOST);
        gd_tensor_read_f64(y, value, n);
    }
    if (!gd_error(ctx) && gd_tensor_requires_grad(y)) {
        double numbers[MOST]; /* the same in every dtype */
        for (int64_t i = 0; i < n; i++) numbers[i] = (double)(i * 37 % 64 - 31) / 32;
        gd_tensor *dy =
            gd_tensor_create(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y));
        gd_tensor_write_f64(dy, numbers, n);
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        for (int k = 0; k < c->count && !gd_error(ctx); k++) {
            if (!gd_tensor_requires_grad(in[k])) continue;
            ck_assert_int_le(n + gd_tensor_count(in[k]), MOST);
            gd_tensor_read_f64(gd_grad(in[k]), value + n, gd_tensor_count(in[k]));
            n += gd_tensor_count(in[k]);
        }
        gd_tensor_free(dy);
    }
    gd_step_end(ctx);
    for (int k = 0; k < c->count; k++) gd_tensor_free(in[k]);
    return n;
}

/* A function rounds between its ops, at the same places on both; a sum in another order may be
 * rounded to the neighbour, and later ops pass that on. */
static double tolerance(gd_dtype dtype)
{
    switch (dtype) {
    case GD_FLOAT64:
        return 1e-12;
    case GD_FLOAT32:
        return 1e-5;
    default:
        return dtype == GD_BFLOAT16 ? 0x1p-5 : 0x1p-8; /* eight units */
    }
}

LOOP_TEST(the_gpu_does_what_the_cpu_does, 4 * COMPOSED_ROWS)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    static double got[MOST], want[MOST], again[MOST];
    const composed *c = &composed_table[_i / 4];
    const gd_dtype dtype = dtypes[_i % 4], reference = dtype == GD_FLOAT32 ? GD_FLOAT64 : dtype;
    gd_context *gpu = gpu_context();
    gd_context *cpu = gd_context_create(&(gd_context_options){.threads = 1, .poison = true});
    const int64_t n = run(gpu, c, dtype, dtype, got);
    if (dtype == GD_BFLOAT16 && gd_error_status(gpu) == GD_ERROR_UNSUPPORTED) {
        printf("skipped: %s\n", gd_error(gpu));
    } else {
        double worst = 0, largest = 0;
        ck_assert_no_error(gpu);
        ck_assert_int_eq(run(cpu, c, reference, dtype, want), n);
        ck_assert_no_error(cpu);
        ck_assert_int_eq(run(gpu, c, dtype, dtype, again), n);
        ck_assert_mem_eq(got, again, (size_t)n * sizeof *got);
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
        for (int64_t i = 0; i < n; i++) {
            const double error = fabs(got[i] - want[i]);
            ck_assert_msg(error <= tolerance(dtype) * largest,
                          "%s, %s: number %d is %.9g, wanted %.9g (largest %.3g)", c->name,
                          gd_dtype_name(dtype), (int)i, got[i], want[i], largest);
            worst = fmax(worst, error / largest);
        }
        printf("%s, %s: %d numbers, off by %.2g of the largest\n", c->name, gd_dtype_name(dtype),
               (int)n, worst);
    }
    gd_context_free(gpu);
    gd_context_free(cpu);
}

CHECK_MAIN_GPU(false, "functions of a few ops on the GPU", NULL, NULL)
