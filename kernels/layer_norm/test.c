/* test.c - layer_norm against its definition in float64. */
#include "each_context.h"
#include "layer_norm/layer_norm.h"
#include "twin.h"

#include <string.h>

/* A leaf of the same numbers in float64. */
static gd_tensor *widened(const gd_tensor *t)
{
    if (!t) return NULL;
    double *values = values_of(t);
    gd_tensor *wide = gd_tensor_from(gd_tensor_context(t), GD_FLOAT64, gd_tensor_ndim(t),
                                     gd_tensor_shape(t), values);
    gd_tensor_set_requires_grad(wide, true);
    free(values);
    return wide;
}

typedef struct configuration {
    int ndim;
    int64_t shape[3];
    gd_dtype dtype;
    bool weight, bias, sliced;
    double mean, scale, eps;
} configuration;

static void check_configuration(const configuration *c, uint64_t seed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 2, .poison = true});
    int64_t N = c->shape[c->ndim - 1];
    shape s = {c->ndim, {c->shape[0], c->shape[1], c->shape[2]}};
    gd_tensor *x = random_tensor(ctx, c->dtype, s, c->sliced ? SLICED : PACKED,
                                 c->mean - 2 * c->scale, c->mean + 2 * c->scale, &seed),
              *w = NULL, *b = NULL;
    if (c->weight) w = random_leaf(ctx, c->dtype, 1, &N, 0, 2, &seed);
    if (c->bias) b = random_leaf(ctx, c->dtype, 1, &N, -2, 2, &seed);
    gd_tensor *dy = random_leaf(ctx, c->dtype, c->ndim, c->shape, -2, 2, &seed);
    gd_tensor *const in[] = {x, w, b}, *const wide[] = {widened(x), widened(w), widened(b)};
    gd_tensor *wide_dy = widened(dy);
    const gd_op *op = gd_find_op(ctx, "layer_norm");
    const gd_layer_norm_args args = {c->eps};
    gd_op defined = *op;
    defined.forward[GD_CPU] = defined.backward[GD_CPU] = NULL;
    const double rtol = c->dtype == GD_FLOAT64 ? 1e-11 : 4e-6;
    double *got[4], *want[4];
    run_op(&defined, wide, 3, &args, &wide_dy, &seed, want);
    run_op(op, in, 3, &args, &dy, &seed, got);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(!got[i], !want[i]);
        if (!got[i]) continue;
        const gd_tensor *like = i < 3 ? in[i] : dy;
        arrays_near(got[i], want[i], gd_tensor_count(like), (bound){0, rtol, 2}, c->dtype,
                    i < 3 ? gd_input_name(op, i).text : "output");
        free(got[i]), free(want[i]);
    }
    assert_called(gd_layer_norm(x, w, b, c->eps), s, "layer_norm", in, 3, &args);
    gd_context_free(ctx);
}

LOOP_TEST(test_random, test_rounds(100))
{
    static const int64_t columns[] = {2, 3, 7, 17, 31, 64, 65, 255, 257};
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 100 + (uint64_t)_i;
    configuration c = {.ndim = (int)random_size(&seed, 1, 3), .dtype = dtypes[_i % 4], .scale = 1};
    for (int d = 0; d < c.ndim; d++) c.shape[d] = random_size(&seed, 1, 8);
    c.shape[c.ndim - 1] = columns[random_below(&seed, 9)];
    if (c.ndim == 2 && c.shape[1] < 40) c.shape[0] = random_size(&seed, 1, 99);
    c.weight = random_chance(&seed, 0.7);
    c.bias = random_chance(&seed, 0.7);
    c.sliced = c.ndim > 1 && random_chance(&seed, 0.3);
    /* Two numbers and a small eps: only their order is left of x, and dx is 0 but for rounding. */
    c.eps = c.shape[c.ndim - 1] < 8 || random_chance(&seed, 0.5) ? 0.3 : 1e-5;
    check_configuration(&c, seed);
}

/* Far from zero, mean(x^2) - mean(x)^2 in float32 would not have a right digit. */
TEST(test_far_from_zero)
{
    configuration c = {.ndim = 2, .shape = {5, 129}, .weight = true, .eps = 1e-5};
    c.mean = 4096;
    c.scale = 1;
    check_configuration(&c, 5);
    c.mean = 0;
    c.scale = 1e15; /* squares beyond float32 */
    check_configuration(&c, 6);
    c.scale = 1e-12; /* and below */
    c.eps = 0;
    check_configuration(&c, 7);
}

TEST(test_rows_that_are_not_ordinary)
{
    const float values[] = {1, NAN, 3, 4, 1, INFINITY, 3, 4, 7, 7, 7, 7, 1, 2, 3, 4};
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(4, 4), values);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_layer_norm(x, NULL, NULL, 1e-5);
    gd_backward_from(&y, 1, NULL);
    ck_assert_no_error(ctx);
    const float *got = gd_tensor_data(y), *dx = gd_tensor_data(gd_grad(x));
    for (int i = 0; i < 4; i++) {
        ck_assert(isnan(got[i]) && isnan(got[4 + i]) && isnan(dx[i]));
        ck_assert(got[8 + i] == 0 && isfinite(dx[8 + i])); /* a constant row: eps alone */
        ck_assert(isfinite(got[12 + i]) && isfinite(dx[12 + i]));
    }
}

/* A column of weights, more rows than pieces, no rows, no columns. */
TEST(test_sizes)
{
    static const int64_t shapes[][2] = {{0, 5}, {3, 0}, {0, 0}, {4, 1}, {1, 1}};
    for (int i = 0; i < 5; i++) {
        gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, 2, shapes[i]);
        gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, 1, shapes[i] + 1);
        gd_tensor_set_requires_grad(x, true), gd_tensor_set_requires_grad(w, true);
        gd_tensor *y = gd_layer_norm(x, w, w, 1e-5);
        gd_backward_from(&y, 1, NULL);
        ck_assert_no_error(ctx);
        double *dw = values_of(gd_grad(w)); /* dw = 0 as xhat = 0, and db = rows */
        for (int64_t k = 0; k < shapes[i][1]; k++) ck_assert(dw[k] == (double)shapes[i][0]);
        free(dw);
        gd_step_end(ctx);
    }
}

CHECK_MAIN_WITHIN("layer_norm", setup, teardown)
