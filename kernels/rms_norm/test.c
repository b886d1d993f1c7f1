/* test.c - rms_norm and add_rms_norm against the formula, written out in double: the
 * forward as it is defined, the backward by the full Jacobian of each row, N x N numbers that the
 * kernels never see. */
#include "each_context.h"

/* ---- The reference ------------------------------------------------------------------------ */

/* One problem, all in double. Rows of x are x[m * N ...]; row m meets row m % heads of a parameter.
 * Arrays that are NULL do not take part. */
typedef struct problem {
    int64_t M, N, weight_heads, bias_heads;
    double eps, offset;
    gd_dtype round_xhat; /* GD_FLOAT64: not rounded */
    const double *x, *weight, *bias, *dy;
} problem;

static double factor_of(const problem *p, int64_t m, int64_t i)
{
    return p->weight ? p->offset + p->weight[m % p->weight_heads * p->N + i] : 1;
}

static double root_of(const problem *p, int64_t m)
{
    double sum = 0;
    for (int64_t i = p->N - 1; i >= 0; i--) sum += pow(p->x[m * p->N + i], 2);
    return sqrt(sum / (double)p->N + p->eps);
}

static double xhat_of(const problem *p, int64_t m, int64_t i, double root)
{
    double xhat = p->x[m * p->N + i] / root;
    return p->round_xhat == GD_FLOAT64 ? xhat : rounded(xhat, p->round_xhat);
}

static void reference_forward(const problem *p, double *y)
{
    for (int64_t m = 0; m < p->M; m++) {
        double root = root_of(p, m);
        for (int64_t i = 0; i < p->N; i++) {
            double bias = p->bias ? p->bias[m % p->bias_heads * p->N + i] : 0;
            y[m * p->N + i] = xhat_of(p, m, i, root) * factor_of(p, m, i) + bias;
        }
    }
}

/* d(x_i / root) / dx_j = [i = j] / root - x_i x_j / (N root^3); the rounding of xhat counts as the
 * identity. Sets dx, adds into dw and db. */
static void reference_backward(const problem *p, double *dx, double *dw, double *db)
{
    for (int64_t m = 0; m < p->M; m++) {
        const double *x = p->x + m * p->N, *dy = p->dy + m * p->N;
        double root = root_of(p, m);
        for (int64_t j = 0; j < p->N; j++) {
            double sum = 0;
            for (int64_t i = 0; i < p->N; i++) {
                double jacobian =
                    (i == j ? 1 / root : 0) - x[i] / root * (x[j] / root) / root / (double)p->N;
                sum += dy[i] * factor_of(p, m, i) * jacobian;
            }
            dx[m * p->N + j] = sum;
            if (dw) dw[m % p->weight_heads * p->N + j] += dy[j] * xhat_of(p, m, j, root);
            if (db) db[m % p->bias_heads * p->N + j] += dy[j];
        }
    }
}

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

/* A configuration with its tensors, and the reference's results. */
typedef struct run {
    const configuration *c;
    gd_context *ctx;
    gd_tensor *x, *residual, *weight, *bias, *y, *sum, *dy, *dsum;
    problem p;
    double *want_y, *want_dx, *want_dw, *want_db;
    int64_t count;
    double rtol; /* of what is computed, before it is rounded to be stored */
} run;

static gd_tensor *make_param(gd_context *ctx, const configuration *c, bool per_head, double mean,
                             uint64_t *seed)
{
    int ndim = per_head ? 2 : 1;
    return random_leaf(ctx, c->param, ndim, c->shape + c->ndim - ndim, mean - 1, mean + 1, seed);
}

static problem make_problem(const run *r)
{
    const configuration *c = r->c;
    int64_t heads = c->ndim > 1 ? c->shape[c->ndim - 2] : 1;
    bool rounds = c->options.round_before_weight;
    problem p = {.N = c->shape[c->ndim - 1],
                 .weight_heads = c->weight_per_head ? heads : 1,
                 .bias_heads = c->bias_per_head ? heads : 1,
                 .eps = gd_option(c->options.eps, 1e-5),
                 .offset = c->options.offset,
                 .round_xhat = rounds ? c->x : GD_FLOAT64,
                 .x = values_of(c->add ? r->sum : r->x),
                 .weight = r->weight ? values_of(r->weight) : NULL,
                 .bias = r->bias ? values_of(r->bias) : NULL,
                 .dy = values_of(r->dy)};
    p.M = r->count / p.N;
    return p;
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
    r.count = gd_tensor_count(r.x);
    bool wide = c->x == GD_FLOAT64 || (c->add && c->residual == GD_FLOAT64) ||
                ((c->weight || c->bias) && c->param == GD_FLOAT64);
    r.rtol = wide ? 1e-12 : 3e-6;
    r.p = make_problem(&r);
    r.want_y = zeros(r.count);
    r.want_dx = zeros(r.count);
    r.want_dw = zeros(r.p.weight_heads * r.p.N);
    r.want_db = zeros(r.p.bias_heads * r.p.N);
    reference_forward(&r.p, r.want_y);
    reference_backward(&r.p, r.want_dx, r.want_dw, r.want_db);
    if (c->add) {
        double *dsum = values_of(r.dsum);
        for (int64_t i = 0; i < r.count; i++) r.want_dx[i] += dsum[i];
        free(dsum);
    }
    return r;
}

static void free_run(run *r)
{
    free((void *)r->p.x), free((void *)r->p.weight), free((void *)r->p.bias), free((void *)r->p.dy);
    free(r->want_y), free(r->want_dx), free(r->want_dw), free(r->want_db);
    gd_context_free(r->ctx);
}

/* One unit in the last place for what is stored; more if something was rounded on the way. */
static void compare(const run *r, const gd_tensor *t, const double *want, double factor,
                    double ulps, const char *what)
{
    if (r->p.round_xhat != GD_FLOAT64) ulps += 1; /* a tie may fall to the other side */
    assert_near(t, want, factor, (bound){0, r->rtol, ulps}, what);
}

static void compare_sum(const run *r)
{
    double *x = values_of(r->x), *residual = values_of(r->residual);
    for (int64_t i = 0; i < r->count; i++) x[i] += residual[i];
    compare(r, r->sum, x, 1, 1, "sum");
    free(x), free(residual);
}

/* The second backward adds to the gradients of the leaves, which are rounded once more. */
static void compare_gradients(const run *r, int backwards)
{
    double ulps = backwards == 1 ? 1 : 2;
    if (backwards == 1 || r->c->layout == PACKED)
        compare(r, gd_grad(r->x), r->want_dx, backwards, ulps, "dx");
    if (r->residual) compare(r, gd_grad(r->residual), r->want_dx, backwards, ulps, "dresidual");
    if (r->weight) compare(r, gd_grad(r->weight), r->want_dw, backwards, ulps, "dw");
    if (r->bias) compare(r, gd_grad(r->bias), r->want_db, backwards, ulps, "db");
}

static void check_configuration(const configuration *c, uint64_t seed)
{
    run r = make_run(c, seed);
    ck_assert_int_eq(gd_tensor_dtype(r.y), c->x);
    compare(&r, r.y, r.want_y, 1, 1, "y");
    if (c->add) {
        ck_assert_int_eq(gd_tensor_dtype(r.sum), c->residual);
        compare_sum(&r);
    }
    gd_tensor *outputs[] = {r.y, r.sum}, *cotangents[] = {r.dy, r.dsum};
    gd_backward_options options = {.cotangents = cotangents, .keep_tape = true};
    for (int backwards = 1; backwards <= 2; backwards++) {
        gd_backward_from(outputs, c->add ? 2 : 1, &options);
        ck_assert_no_error(r.ctx);
        compare_gradients(&r, backwards);
    }
    free_run(&r);
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

TEST(test_empty)
{
    for (int no_columns = 0; no_columns < 2; no_columns++) {
        int64_t rows = no_columns ? 3 : 0, cols = no_columns ? 0 : 5;
        gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, 2, (int64_t[]){rows, cols});
        gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, 1, &cols);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor_set_requires_grad(w, true);
        gd_tensor *sum, *y = gd_rms_norm_with(x, w, w, &(gd_rms_norm_options){.eps = 1e-5});
        gd_tensor *z = gd_add_rms_norm(y, x, w, NULL, &(gd_rms_norm_options){.eps = 1e-5}, &sum);
        gd_backward_from((gd_tensor *[]){z, sum}, 2, NULL);
        ck_assert_no_error(ctx);
        ck_assert_int_eq(gd_tensor_count(y), 0);
        double *dw = values_of(gd_grad(w));
        for (int64_t j = 0; j < cols; j++) ck_assert(dw[j] == 0);
        free(dw);
        gd_step_end(ctx);
    }
}

/* More than GD_STREAM_FROM bytes go past the caches, here from rows that begin anywhere. */
TEST(test_large_and_misaligned)
{
    enum { M = 4200, N = 1023 };
    uint64_t seed = 5;
    gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(M, N), -2, 2, &seed);
    gd_tensor *w = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(N), 0, 2, &seed);
    gd_tensor *dy = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(M, N), -2, 2, &seed);
    gd_tensor *y = gd_rms_norm(x, w, 1e-5);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(ctx);
    double *xs = values_of(x), *ws = values_of(w), *dys = values_of(dy), *dw = zeros(N);
    double *ys = values_of(y), *dxs = values_of(gd_grad(x)), *dws = values_of(gd_grad(w));
    double want_y[N], want_dx[N];
    for (int64_t m = 0; m < M; m++) {
        problem p = {1, N, 1, 1, 1e-5, 0, GD_FLOAT64, xs + m * N, ws, NULL, dys + m * N};
        double root = root_of(&p, 0), dot = 0;
        for (int64_t i = 0; i < N; i++) {
            want_y[i] = p.x[i] / root * ws[i];
            dw[i] += p.dy[i] * p.x[i] / root;
            dot += p.dy[i] * ws[i] * p.x[i];
        }
        for (int64_t i = 0; i < N; i++)
            want_dx[i] = p.dy[i] * ws[i] / root - p.x[i] * dot / (N * root * root * root);
        arrays_near(ys + m * N, want_y, N, (bound){0, 1e-6, 1}, GD_FLOAT32, "y");
        arrays_near(dxs + m * N, want_dx, N, (bound){0, 1e-6, 1}, GD_FLOAT32, "dx");
    }
    arrays_near(dws, dw, N, (bound){0, 1e-6, 1}, GD_FLOAT32, "dw");
    free(xs), free(ws), free(dys), free(dw), free(ys), free(dxs), free(dws);
}

/* dx, or the residual's gradient, takes dy's memory: there is never a second one of [M, N]. */
TEST(test_gradient_over_dy)
{
    enum { M = 256, N = 64 };
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, N));
    gd_tensor *other = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(M, N));
    gd_tensor_set_requires_grad(row, true);
    for (int wanted = 0; wanted < 2; wanted++) {
        gd_tensor *in[] = {other, other};
        in[wanted] = gd_scale(gd_expand(row, GD_SHAPE(M, N)), 2);
        gd_tensor *y = gd_add_rms_norm(in[0], in[1], NULL, NULL, NULL, NULL);
        gd_memory_reset_peak(ctx);
        gd_backward(gd_sum(y, NULL, 0, false));
        ck_assert_uint_lt(gd_memory(ctx).peak[GD_MEMORY_GRADIENTS], 2 * M * N * sizeof(float));
        gd_step_end(ctx);
    }
}

CHECK_MAIN_WITHIN("rms_norm", setup, teardown)
