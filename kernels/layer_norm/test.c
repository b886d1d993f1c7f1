/* test.c - layer_norm against its formula in double, and its backward against the full
 * Jacobian of each row. */
#include "each_context.h"

#include <string.h>

typedef struct problem {
    int64_t M, N;
    double eps;
    const double *x, *weight, *bias, *dy; /* weight, bias: may be NULL */
} problem;

/* mean and sqrt(var + eps) of row m */
static void moments(const problem *p, int64_t m, double *mean, double *root)
{
    const double *x = p->x + m * p->N;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < p->N; i++) sum += x[i];
    *mean = sum / (double)p->N;
    for (int64_t i = 0; i < p->N; i++) squares += pow(x[i] - *mean, 2);
    *root = sqrt(squares / (double)p->N + p->eps);
}

static void reference(const problem *p, double *y, double *dx, double *dw, double *db)
{
    double n = (double)p->N, mean, root;
    for (int64_t m = 0; m < p->M; m++) {
        const double *x = p->x + m * p->N, *dy = p->dy + m * p->N;
        moments(p, m, &mean, &root);
        for (int64_t k = 0; k < p->N; k++) {
            double xhat = (x[k] - mean) / root, sum = 0;
            y[m * p->N + k] = xhat * (p->weight ? p->weight[k] : 1) + (p->bias ? p->bias[k] : 0);
            for (int64_t i = 0; i < p->N; i++) {
                double covariance = (x[i] - mean) * (x[k] - mean) / (n * root * root);
                double jacobian = ((i == k ? 1 : 0) - 1 / n - covariance) / root;
                sum += dy[i] * (p->weight ? p->weight[i] : 1) * jacobian;
            }
            dx[m * p->N + k] = sum;
            dw[k] += dy[k] * xhat;
            db[k] += dy[k];
        }
    }
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
    gd_tensor *y = gd_layer_norm(x, w, b, c->eps);
    ck_assert_no_error(ctx);

    int64_t count = gd_tensor_count(x);
    double *values[] = {values_of(x), w ? values_of(w) : NULL, b ? values_of(b) : NULL,
                        values_of(dy)};
    double *want_y = zeros(count), *want_dx = zeros(count);
    double *want_dw = zeros(N), *want_db = zeros(N);
    problem p = {count / N, N, c->eps, values[0], values[1], values[2], values[3]};
    reference(&p, want_y, want_dx, want_dw, want_db);
    double rtol = c->dtype == GD_FLOAT64 ? 1e-11 : 4e-6;
    assert_near(y, want_y, 1, (bound){0, rtol, 1}, "y");
    gd_backward_options options = {.cotangents = &dy, .keep_tape = true};
    for (int backwards = 1; backwards <= 2; backwards++) { /* the second adds to the leaves' */
        gd_backward_from(&y, 1, &options);
        ck_assert_no_error(ctx);
        if (backwards == 1 || !c->sliced)
            assert_near(gd_grad(x), want_dx, backwards, (bound){0, rtol, backwards}, "dx");
        if (w) assert_near(gd_grad(w), want_dw, backwards, (bound){0, rtol, backwards}, "dw");
        if (b) assert_near(gd_grad(b), want_db, backwards, (bound){0, rtol, backwards}, "db");
    }
    for (int i = 0; i < 4; i++) free(values[i]);
    free(want_y), free(want_dx), free(want_dw), free(want_db);
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
