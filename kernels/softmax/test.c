/* test.c - softmax and log_softmax against their definitions, in long double and by the
 * full Jacobian, along every axis. */
#include "each_context.h"

#include <string.h>

/* x as [outer, n, inner], softmax along the middle. */
typedef struct problem {
    int64_t outer, n, inner;
    bool log_of;
    const double *x, *dy;
} problem;

static int64_t place(const problem *p, int64_t o, int64_t i, int64_t c)
{
    return (o * p->n + i) * p->inner + c;
}

/* log(sum exp x) of one line, as a sum of two parts; the first is NaN where there is an inf or
 * nothing but -inf, as inf - inf is. */
typedef struct log_sum {
    long double log, max;
} log_sum;

static log_sum log_sum_of(const problem *p, int64_t o, int64_t c)
{
    double max = -INFINITY;
    long double sum = 0;
    for (int64_t i = 0; i < p->n; i++) max = fmax(max, p->x[place(p, o, i, c)]);
    for (int64_t i = 0; i < p->n; i++) sum += expl((long double)p->x[place(p, o, i, c)] - max);
    return (log_sum){logl(sum), max};
}

static void reference(const problem *p, double *y, double *dx)
{
    for (int64_t o = 0; o < p->outer; o++) {
        for (int64_t c = 0; c < p->inner; c++) {
            log_sum l = log_sum_of(p, o, c);
            for (int64_t k = 0; k < p->n; k++) {
                double log_y = (double)(p->x[place(p, o, k, c)] - l.max - l.log), sum = 0;
                double y_k = exp(log_y);
                y[place(p, o, k, c)] = p->log_of ? log_y : y_k;
                for (int64_t i = 0; i < p->n; i++) {
                    double y_i = (double)expl(p->x[place(p, o, i, c)] - l.max - l.log);
                    double softmax = y_i * ((i == k ? 1 : 0) - y_k);
                    double log_softmax = (i == k ? 1 : 0) - y_k;
                    sum += p->dy[place(p, o, i, c)] * (p->log_of ? log_softmax : softmax);
                }
                dx[place(p, o, k, c)] = sum;
            }
        }
    }
}

typedef struct configuration {
    int ndim, axis;
    int64_t shape[4];
    gd_dtype dtype;
    bool log_of, transposed;
    double mean, scale;
} configuration;

static void check_configuration(const configuration *c, uint64_t seed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 2, .poison = true});
    shape s = {c->ndim, {c->shape[0], c->shape[1], c->shape[2], c->shape[3]}};
    gd_tensor *x = random_tensor(ctx, c->dtype, s, c->transposed ? TRANSPOSED : PACKED,
                                 c->mean - 2 * c->scale, c->mean + 2 * c->scale, &seed);
    gd_tensor *dy = random_leaf(ctx, c->dtype, c->ndim, c->shape, -2, 2, &seed);
    int axis = seed % 2 ? c->axis : c->axis - c->ndim;
    gd_tensor *y = c->log_of ? gd_log_softmax(x, axis) : gd_softmax(x, axis);
    ck_assert_no_error(ctx);
    problem p = {1, c->shape[c->axis], 1, c->log_of, values_of(x), values_of(dy)};
    for (int d = 0; d < c->axis; d++) p.outer *= c->shape[d];
    for (int d = c->axis + 1; d < c->ndim; d++) p.inner *= c->shape[d];
    double *want_y = zeros(gd_tensor_count(x)), *want_dx = zeros(gd_tensor_count(x));
    reference(&p, want_y, want_dx);
    /* From a y that is rounded to 16 bits, dx is no better than y. */
    bool narrow = c->dtype == GD_BFLOAT16 || c->dtype == GD_FLOAT16;
    double rtol = c->dtype == GD_FLOAT64 ? 1e-13 : 2e-6;
    double rtol_dx = narrow ? 8 * ulp_of(1, c->dtype) * (c->log_of ? fabs(log(1e-4)) : 1) : rtol;
    /* The terms of a gradient are of size 1 even where they cancel. */
    assert_near(y, want_y, 1, (bound){1, rtol, 1}, "y");
    gd_backward_options options = {.cotangents = &dy, .keep_tape = true};
    for (int backwards = 1; backwards <= (c->transposed ? 1 : 2); backwards++) {
        gd_backward_from(&y, 1, &options);
        ck_assert_no_error(ctx);
        assert_near(gd_grad(x), want_dx, backwards, (bound){1, 4 * rtol_dx, backwards}, "dx");
    }
    free((void *)p.x), free((void *)p.dy), free(want_y), free(want_dx);
    gd_context_free(ctx);
}

LOOP_TEST(test_random, test_rounds(160))
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 17, 31, 64, 65, 130};
    uint64_t seed = 50 + (uint64_t)_i;
    configuration c = {.ndim = (int)random_size(&seed, 1, 4), .dtype = dtypes[_i % 4], .scale = 2};
    for (int d = 0; d < c.ndim; d++) c.shape[d] = random_size(&seed, 1, 4);
    c.axis = (int)random_below(&seed, c.ndim);
    c.shape[random_below(&seed, c.ndim)] = sizes[random_below(&seed, 10)];
    c.shape[c.axis] = sizes[random_below(&seed, 10)];
    c.log_of = _i / 4 % 2;
    c.transposed = c.ndim > 1 && random_chance(&seed, 0.3);
    check_configuration(&c, seed);
}

/* exp overflows at 88 in float32 and 709 in float64. */
LOOP_TEST(test_far_from_zero, 4)
{
    static const double means[] = {-1e4, 1e4, 89, 700};
    configuration c = {.ndim = 2, .shape = {7, 70}, .mean = means[_i], .scale = 3};
    for (int k = 0; k < 8; k++) {
        c.log_of = k & 1, c.axis = k >> 1 & 1, c.dtype = k >> 2 ? GD_FLOAT64 : GD_FLOAT32;
        check_configuration(&c, 3);
    }
    c.mean = 0, c.scale = 200, c.log_of = true; /* where softmax is 0, log_softmax is not -inf */
    check_configuration(&c, 4);
}

/* Masks are -inf: 0 probability, no gradient. A whole line of them is 0 / 0. */
TEST(test_masks_and_nan)
{
    enum { N = 5 };
    const float lines[][N] = {{1, -INFINITY, 2, -INFINITY, 3},
                              {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
                              {1, NAN, 2, 3, 4},
                              {1, INFINITY, 2, 3, 4},
                              {-1e38f, 1e38f, 0, -3e38f, 3e38f},
                              {-INFINITY, -INFINITY, 7, -INFINITY, -INFINITY}};
    for (int axis = 0; axis < 2; axis++) {
        gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(6, N), lines);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *y = axis ? gd_softmax(x, 1) : gd_softmax(gd_transpose(x, 0, 1), 0);
        gd_tensor *z = axis ? gd_log_softmax(x, 1) : gd_log_softmax(gd_transpose(x, 0, 1), 0);
        gd_backward_from(&y, 1, NULL);
        ck_assert_no_error(ctx);
        double *p = values_of(axis ? y : gd_transpose(y, 0, 1));
        double *q = values_of(axis ? z : gd_transpose(z, 0, 1)), *dx = values_of(gd_grad(x));
        double sum = exp(-2) + exp(-1) + 1;
        for (int i = 0; i < N; i++) {
            double first = i % 2 ? 0 : exp(lines[0][i] - 3) / sum;
            ck_assert(fabs(p[i] - first) < 1e-6 && (i % 2 ? q[i] == -INFINITY : isfinite(q[i])));
            ck_assert(isfinite(dx[i]) && (i % 2 == 0 || dx[i] == 0));
            ck_assert(isnan(p[N + i]) && isnan(q[N + i]) && isnan(p[2 * N + i]));
            ck_assert(isnan(p[3 * N + 1]) && !(p[3 * N + i] > 0)); /* inf / inf */
            ck_assert(p[4 * N + i] == (i == 4));
            ck_assert(p[5 * N + i] == (i == 2) && q[5 * N + i] == (i == 2 ? 0 : -INFINITY));
        }
        free(p), free(q), free(dx);
        gd_step_end(ctx);
        gd_tensor_free(x);
    }
}

CHECK_MAIN_WITHIN("softmax", setup, teardown)
