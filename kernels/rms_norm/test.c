/* test.c - rms_norm and add_rms_norm with tensors of every layout and mixture of dtypes, against the
 * formula by other ops in float64, from the values as they were stored. The kernels are compared with
 * loops that share nothing with the library in test_rms_norm_kernels.c. */
#include "each_context.h"

/* ---- One configuration, run and compared -------------------------------------------------- */

typedef struct configuration {
    int ndim;
    int64_t shape[4];
    bool weight, bias, weight_per_head, bias_per_head;
    gd_rms_norm_options options;
    gd_dtype x, param, residual;
    double scale; /* of x and residual */
    layout layout;
    bool add; /* add_rms_norm */
} configuration;

/* A configuration with its tensors, and leaves of the same values in float64, whose gradients are
 * those of the formula. */
typedef struct run {
    const configuration *c;
    gd_context *ctx;
    gd_tensor *x, *residual, *weight, *bias, *y, *sum, *dy, *dsum;
    gd_tensor *wide_x, *wide_weight, *wide_bias, *wide_y; /* wide_x is what is normalised */
    double rtol; /* of what is computed, before it is rounded to be stored */
} run;

static gd_tensor *make_param(gd_context *ctx, const configuration *c, bool per_head, double mean,
                             uint64_t *seed)
{
    int ndim = per_head ? 2 : 1;
    return random_leaf(ctx, c->param, ndim, c->shape + c->ndim - ndim, mean - 1, mean + 1, seed);
}

static gd_tensor *widened(gd_tensor *t)
{
    if (!t) return NULL;
    gd_tensor *wide =
        gd_tensor_create(gd_tensor_context(t), GD_FLOAT64, gd_tensor_ndim(t), gd_tensor_shape(t));
    gd_tensor_copy(wide, t);
    gd_tensor_set_requires_grad(wide, true);
    return wide;
}

/* The formula; the rounding of xhat counts as the identity. */
static gd_tensor *reference(const run *r)
{
    const configuration *c = r->c;
    gd_tensor *x = r->wide_x;
    gd_tensor *squares = gd_mean(gd_mul(x, x), (int[]){-1}, 1, true);
    gd_tensor *y = gd_div(x, gd_sqrt(gd_add_scalar(squares, gd_option(c->options.eps, 1e-5))));
    if (c->options.round_before_weight) {
        gd_tensor *rounded = gd_cast(gd_cast(gd_detach(y), c->x), GD_FLOAT64);
        y = gd_add(y, gd_sub(rounded, gd_detach(y)));
    }
    if (r->weight) y = gd_mul(y, gd_add_scalar(r->wide_weight, c->options.offset));
    return r->bias ? gd_add(y, r->wide_bias) : y;
}

static run make_run(const configuration *c, uint64_t seed)
{
    gd_context *ctx = test_context(2);
    shape s = {c->ndim, {c->shape[0], c->shape[1], c->shape[2], c->shape[3]}};
    run r = {.c = c, .ctx = ctx};
    r.x = random_tensor(ctx, c->x, s, c->layout, -2 * c->scale, 2 * c->scale, &seed);
    if (c->weight) r.weight = make_param(ctx, c, c->weight_per_head, 1, &seed);
    if (c->bias) r.bias = make_param(ctx, c, c->bias_per_head, 0, &seed);
    r.dy = random_leaf(ctx, c->x, c->ndim, c->shape, -2, 2, &seed);
    if (c->add) {
        r.residual =
            random_leaf(ctx, c->residual, c->ndim, c->shape, -2 * c->scale, 2 * c->scale, &seed);
        r.dsum = random_leaf(ctx, c->residual, c->ndim, c->shape, -2, 2, &seed);
    }
    r.y = c->add ? gd_add_rms_norm(r.x, r.residual, r.weight, r.bias, &c->options, &r.sum)
                 : gd_rms_norm_with(r.x, r.weight, r.bias, &c->options);
    ck_assert_no_error(ctx);
    bool wide = c->x == GD_FLOAT64 || (c->add && c->residual == GD_FLOAT64) ||
                ((c->weight || c->bias) && c->param == GD_FLOAT64);
    r.rtol = wide ? 1e-12 : 3e-6;
    r.wide_x = widened(c->add ? r.sum : r.x);
    r.wide_weight = widened(r.weight), r.wide_bias = widened(r.bias);
    r.wide_y = gd_keep(reference(&r));
    gd_tensor *outputs[] = {r.wide_y, gd_scale(r.wide_x, 1)};
    gd_tensor *cotangents[] = {gd_cast(r.dy, GD_FLOAT64),
                               c->add ? gd_cast(r.dsum, GD_FLOAT64) : NULL};
    gd_backward_options options = {.cotangents = cotangents, .keep_tape = true};
    gd_backward_from(outputs, c->add ? 2 : 1, &options);
    ck_assert_no_error(ctx);
    return r;
}

/* One unit in the last place for what is stored; more if something was rounded on the way. */
static void compare(const run *r, const gd_tensor *t, const gd_tensor *wide, double factor,
                    double ulps, const char *what)
{
    if (r->c->options.round_before_weight) ulps += 1; /* a tie may fall to the other side */
    double *want = values_of(wide);
    assert_near(t, want, factor, (bound){0, r->rtol, ulps}, what);
    free(want);
}

/* The second backward adds to the gradients of the leaves, which are rounded once more. */
static void compare_gradients(const run *r, int backwards)
{
    double ulps = backwards == 1 ? 1 : 2;
    const gd_tensor *dx = gd_grad(r->wide_x);
    if (backwards == 1 || r->c->layout == PACKED)
        compare(r, gd_grad(r->x), dx, backwards, ulps, "dx");
    if (r->residual) compare(r, gd_grad(r->residual), dx, backwards, ulps, "dresidual");
    if (r->weight) compare(r, gd_grad(r->weight), gd_grad(r->wide_weight), backwards, ulps, "dw");
    if (r->bias) compare(r, gd_grad(r->bias), gd_grad(r->wide_bias), backwards, ulps, "db");
}

static void check_configuration(const configuration *c, uint64_t seed)
{
    run r = make_run(c, seed);
    ck_assert_int_eq(gd_tensor_dtype(r.y), c->x);
    compare(&r, r.y, r.wide_y, 1, 1, "y");
    if (c->add) {
        ck_assert_int_eq(gd_tensor_dtype(r.sum), c->residual);
        gd_tensor *sum = gd_add(gd_cast(r.x, GD_FLOAT64), gd_cast(r.residual, GD_FLOAT64));
        compare(&r, r.sum, sum, 1, 1, "sum");
    }
    gd_tensor *outputs[] = {r.y, r.sum}, *cotangents[] = {r.dy, r.dsum};
    gd_backward_options options = {.cotangents = cotangents, .keep_tape = true};
    for (int backwards = 1; backwards <= 2; backwards++) {
        gd_backward_from(outputs, c->add ? 2 : 1, &options);
        ck_assert_no_error(r.ctx);
        compare_gradients(&r, backwards);
    }
    gd_context_free(r.ctx);
}

/* ---- Every option, at random -------------------------------------------------------------- */

static configuration random_configuration(uint64_t *seed, bool add)
{
    static const int64_t columns[] = {1, 2, 3, 7, 17, 31, 64, 65, 255, 256, 257, 300, 513};
    configuration c = {.ndim = (int)random_size(seed, 1, 4), .scale = 1, .add = add};
    for (int d = 0; d < c.ndim; d++) c.shape[d] = random_size(seed, 1, 5);
    c.shape[c.ndim - 1] = columns[random_below(seed, 13)];
    if (c.ndim == 2 && c.shape[1] < 20) c.shape[0] = random_size(seed, 1, 199);
    c.weight = random_chance(seed, 0.8);
    c.bias = random_chance(seed, 0.5);
    c.weight_per_head = c.ndim > 1 && random_chance(seed, 0.3);
    c.bias_per_head = c.ndim > 1 && random_chance(seed, 0.3);
    c.options.eps = random_chance(seed, 0.5) ? 1e-5 : 0.3;
    c.options.offset = random_chance(seed, 0.5) ? 0 : 1;
    c.options.round_before_weight = random_chance(seed, 0.3);
    c.layout = c.ndim == 1 ? PACKED : (layout)random_below(seed, LAYOUTS);
    /* The gradient for x is as good as 0 at N = 1 with a small eps: rounding is all there is. */
    if (c.shape[c.ndim - 1] < 4) c.options.eps = 0.3;
    return c;
}

/* All in float64, all in float32, and mixtures. */
LOOP_TEST(test_random, test_rounds(288))
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 1000 + (uint64_t)_i;
    configuration c = random_configuration(&seed, _i % 2);
    const int group = _i / 2 / 9, kind = _i / 2 % 9, mix = 4 * group + kind - 5;
    c.x = dtypes[kind < 5 ? kind % 2 : mix % 4];
    c.param = dtypes[kind < 5 ? kind % 2 : mix / 4 % 4];
    c.residual = dtypes[kind < 5 ? kind % 2 : mix / 16];
    check_configuration(&c, seed);
}

LOOP_TEST(test_scales, 6)
{
    /* Squares of these overflow and underflow float32; sums in double do not care. */
    static const double scales[] = {1e-30, 1e-18, 1e-3, 1e3, 1e18, 1e30};
    configuration c = {.ndim = 2, .shape = {5, 65}, .weight = true, .scale = scales[_i]};
    c.options.eps = GD_ZERO;
    check_configuration(&c, 7);
    c.add = true;
    check_configuration(&c, 8);
    c.x = c.param = c.residual = GD_FLOAT64;
    check_configuration(&c, 9);
}

/* ---- Rows that are not ordinary ----------------------------------------------------------- */

static gd_tensor *tensor_of(gd_context *ctx, int64_t rows, int64_t cols, const float *values)
{
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, 2, (int64_t[]){rows, cols}, values);
    gd_tensor_set_requires_grad(t, true);
    return t;
}

TEST(test_nan_and_infinity)
{
    const float values[] = {1, 2, NAN, 3, 1, 2, INFINITY, -3, 1, 2, 2, 3, 0, 0, 0, 0};
    gd_tensor *x = tensor_of(ctx, 4, 4, values);
    gd_tensor *y = gd_rms_norm(x, NULL, 1e-6);
    gd_backward_from(&y, 1, NULL);
    ck_assert_no_error(ctx);
    const float *got = gd_tensor_data(y), *dx = gd_tensor_data(gd_grad(x));
    for (int i = 0; i < 4; i++) {
        ck_assert(isnan(got[i]) && isnan(dx[i]));                /* one NaN makes its row NaN */
        ck_assert(i == 2 ? isnan(got[4 + i]) : got[4 + i] == 0); /* 2 / inf, inf / inf */
        ck_assert(fabs(got[8 + i] - values[8 + i] / sqrt(4.5 + 1e-6)) < 1e-6);
        ck_assert(isfinite(dx[8 + i])); /* and no other */
        ck_assert(got[12 + i] == 0);
        ck_assert(fabs(dx[12 + i] - 1e3) < 1e-3); /* dy / sqrt(eps) */
    }
    gd_step_end(ctx);
    y = gd_rms_norm(x, NULL, 0);
    ck_assert(isnan(((const float *)gd_tensor_data(y))[12])); /* 0 / 0 */
}

/* More than GD_STREAM_FROM bytes go past the caches, here from rows that begin anywhere. */
TEST(test_large_and_misaligned)
{
    const configuration c = {.ndim = 2, .shape = {4200, 1023}, .weight = true, .scale = 1};
    check_configuration(&c, 5);
}

/* ---- What changes no bit ------------------------------------------------------------------- */

/* A row's result is the same whatever other rows there are. */
TEST(test_rows_do_not_see_each_other)
{
    uint64_t seed = 3;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(500, 131), -2, 2, &seed);
    gd_tensor *all = gd_rms_norm(x, NULL, 1e-5);
    gd_tensor *one = gd_rms_norm(gd_slice(x, 0, 321, 322), NULL, 1e-5);
    ck_assert_no_error(ctx);
    const float *from_all = (const float *)gd_tensor_data(all) + 321 * 131;
    ck_assert(!memcmp(from_all, gd_tensor_data(one), 131 * sizeof(float)));
}

/* Fused or not: the same numbers, to the bit where the sum is rounded to be stored. */
LOOP_TEST(test_add_is_add_then_norm, 4)
{
    uint64_t seed = 11;
    gd_dtype dtype = (gd_dtype)_i;
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(9, 300), -2, 2, &seed);
    gd_tensor *r = random_leaf(ctx, dtype, GD_SHAPE(9, 300), -6, 6, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(300), 0, 2, &seed);
    gd_rms_norm_options options = {.eps = 1e-5, .round_before_weight = true};
    gd_tensor *sum, *y = gd_add_rms_norm(x, r, w, NULL, &options, &sum);
    gd_tensor *again = gd_rms_norm_with(gd_detach(sum), w, NULL, &options);
    ck_assert_no_error(ctx);
    ck_assert(!memcmp(gd_tensor_data(y), gd_tensor_data(again), 9 * 300 * gd_dtype_size(dtype)));
}

/* dx, or the residual's gradient, takes dy's memory: there is never a second one of [M, N]. */
TEST(test_gradient_over_dy)
{
    enum { M = 256, N = 64 };
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, N));
    gd_tensor *other = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(M, N));
    gd_tensor_set_requires_grad(row, true);
    for (int wanted = 0; wanted < 3; wanted++) { /* x, residual, x of rms_norm */
        gd_tensor *in[] = {other, other, NULL};
        in[wanted] = gd_scale(gd_expand(row, GD_SHAPE(M, N)), 2);
        gd_tensor *y = in[2] ? gd_rms_norm(in[2], NULL, 1e-5)
                             : gd_add_rms_norm(in[0], in[1], NULL, NULL, NULL, NULL);
        gd_memory_reset_peak(ctx);
        gd_backward(gd_sum(y, NULL, 0, false));
        ck_assert_uint_lt(gd_memory(ctx).peak[GD_MEMORY_GRADIENTS], 2 * M * N * sizeof(float));
        gd_step_end(ctx);
    }
}

CHECK_MAIN_WITHIN("rms_norm", setup, teardown)
