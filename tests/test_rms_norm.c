/* test_rms_norm.c - rms_norm and add_rms_norm against the formula, written out in double: the
 * forward as it is defined, the backward by the full Jacobian of each row, N x N numbers that the
 * kernels never see. */
#include "check_main.h"
#include "reference.h"

#include <stdio.h>
#include <string.h>

/* ---- The reference ------------------------------------------------------------------------ */

/* One problem, all in double. Rows of x are x[m * N ...]; row m meets row m % heads of a parameter.
 * Arrays that are NULL do not take part. */
typedef struct problem {
    int64_t M, N, weight_heads, bias_heads;
    double eps, offset;
    gd_dtype round_xhat; /* GD_FLOAT64: not rounded */
    const double *x, *weight, *bias, *dy;
} problem;

static double gain_of(const problem *p, int64_t m, int64_t i)
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
    return p->round_xhat == GD_FLOAT64 ? xhat : ref_round(xhat, p->round_xhat);
}

static void reference_forward(const problem *p, double *y)
{
    for (int64_t m = 0; m < p->M; m++) {
        double root = root_of(p, m);
        for (int64_t i = 0; i < p->N; i++) {
            double bias = p->bias ? p->bias[m % p->bias_heads * p->N + i] : 0;
            y[m * p->N + i] = xhat_of(p, m, i, root) * gain_of(p, m, i) + bias;
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
                sum += dy[i] * gain_of(p, m, i) * jacobian;
            }
            dx[m * p->N + j] = sum;
            if (dw) dw[m % p->weight_heads * p->N + j] += dy[j] * xhat_of(p, m, j, root);
            if (db) db[m % p->bias_heads * p->N + j] += dy[j];
        }
    }
}

/* ---- One configuration, run and compared -------------------------------------------------- */

typedef enum layout { PACKED, SLICED, TRANSPOSED, EXPANDED } layout;

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

/* A tensor of the shape wanted, and with unusual strides if so configured. */
static gd_tensor *make_x(gd_context *ctx, const configuration *c, uint64_t *seed)
{
    int64_t shape[4];
    int last = c->ndim - 1, swapped[4] = {0, 1, 2, 3};
    memcpy(shape, c->shape, sizeof shape);
    if (c->layout == SLICED) shape[last] += 5;
    if (c->layout == EXPANDED) shape[0] = 1;
    if (c->layout == TRANSPOSED) {
        shape[0] = c->shape[last], shape[last] = c->shape[0];
        swapped[0] = last, swapped[last] = 0;
    }
    gd_tensor *base = ref_tensor(ctx, c->x, c->ndim, shape, 0, c->scale, seed);
    if (c->layout == SLICED) base = gd_slice(base, last, 2, 2 + c->shape[last]);
    if (c->layout == EXPANDED) base = gd_expand(base, c->ndim, c->shape);
    if (c->layout == TRANSPOSED) base = gd_permute(base, swapped);
    return c->layout == PACKED ? base : gd_keep_grad(base);
}

static gd_tensor *make_param(gd_context *ctx, const configuration *c, bool per_head, double mean,
                             uint64_t *seed)
{
    int ndim = per_head ? 2 : 1;
    return ref_tensor(ctx, c->param, ndim, c->shape + c->ndim - ndim, mean, 0.5, seed);
}

static problem make_problem(const run *r)
{
    const configuration *c = r->c;
    int64_t heads = c->ndim > 1 ? c->shape[c->ndim - 2] : 1;
    bool rounds = c->options.round_before_weight;
    problem p = {.N = c->shape[c->ndim - 1],
                 .weight_heads = c->weight_per_head ? heads : 1,
                 .bias_heads = c->bias_per_head ? heads : 1,
                 .eps = c->options.eps,
                 .offset = c->options.offset,
                 .round_xhat = rounds ? c->x : GD_FLOAT64,
                 .x = ref_values(c->add ? r->sum : r->x),
                 .weight = ref_values(r->weight),
                 .bias = ref_values(r->bias),
                 .dy = ref_values(r->dy)};
    p.M = r->count / p.N;
    return p;
}

static run make_run(const configuration *c, uint64_t seed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 2, .poison = true});
    run r = {.c = c, .ctx = ctx, .x = make_x(ctx, c, &seed)};
    if (c->weight) r.weight = make_param(ctx, c, c->weight_per_head, 1, &seed);
    if (c->bias) r.bias = make_param(ctx, c, c->bias_per_head, 0, &seed);
    r.dy = ref_tensor(ctx, c->x, c->ndim, c->shape, 0, 1, &seed);
    if (c->add) {
        r.residual = ref_tensor(ctx, c->residual, c->ndim, c->shape, 0, c->scale, &seed);
        r.dsum = ref_tensor(ctx, c->residual, c->ndim, c->shape, 0, 1, &seed);
    }
    r.y = c->add ? gd_add_rms_norm(r.x, r.residual, r.weight, r.bias, &c->options, &r.sum)
                 : gd_rms_norm_with(r.x, r.weight, r.bias, &c->options);
    ck_assert_no_error(ctx);
    r.count = gd_tensor_count(r.x);
    bool wide = c->x == GD_FLOAT64 || (c->add && c->residual == GD_FLOAT64) ||
                ((c->weight || c->bias) && c->param == GD_FLOAT64);
    r.rtol = wide ? 1e-12 : 3e-6;
    r.p = make_problem(&r);
    r.want_y = ref_array(r.count);
    r.want_dx = ref_array(r.count);
    r.want_dw = ref_array(r.p.weight_heads * r.p.N);
    r.want_db = ref_array(r.p.bias_heads * r.p.N);
    reference_forward(&r.p, r.want_y);
    reference_backward(&r.p, r.want_dx, r.want_dw, r.want_db);
    double *extra = ref_values(r.dsum);
    for (int64_t i = 0; extra && i < r.count; i++) r.want_dx[i] += extra[i];
    free(extra);
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
    ck_assert_msg(t != NULL, "%s is missing", what);
    int64_t count = gd_tensor_count(t);
    double *got = ref_values(t), *scaled = ref_array(count);
    for (int64_t i = 0; i < count; i++) scaled[i] = factor * want[i];
    if (r->p.round_xhat != GD_FLOAT64) ulps += 1; /* a tie may fall to the other side */
    ref_near(got, scaled, count, r->rtol, gd_tensor_dtype(t), ulps, what);
    free(got), free(scaled);
}

static void compare_sum(const run *r)
{
    double *x = ref_values(r->x), *residual = ref_values(r->residual);
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
    configuration c = {.ndim = (int)ref_integer(seed, 1, 5), .scale = 1, .add = add};
    for (int d = 0; d < c.ndim; d++) c.shape[d] = ref_integer(seed, 1, 6);
    c.shape[c.ndim - 1] = columns[ref_integer(seed, 0, 13)];
    if (c.ndim == 2 && c.shape[1] < 20) c.shape[0] = ref_integer(seed, 1, 200);
    c.weight = ref_uniform(seed) < 0.8;
    c.bias = ref_uniform(seed) < 0.5;
    c.weight_per_head = c.ndim > 1 && ref_uniform(seed) < 0.3;
    c.bias_per_head = c.ndim > 1 && ref_uniform(seed) < 0.3;
    c.options.eps = ref_uniform(seed) < 0.5 ? 1e-5 : 0.3;
    c.options.offset = ref_uniform(seed) < 0.5 ? 0 : 1;
    c.options.round_before_weight = ref_uniform(seed) < 0.3;
    c.layout = c.ndim == 1 ? PACKED : (layout)ref_integer(seed, 0, 4);
    /* The gradient for x is as good as 0 at N = 1 with a small eps: rounding is all that is left. */
    if (c.shape[c.ndim - 1] < 4) c.options.eps = 0.3;
    return c;
}

START_TEST(test_random_f64)
{
    uint64_t seed = 1000 + (uint64_t)_i;
    configuration c = random_configuration(&seed, _i % 2);
    c.x = c.param = c.residual = GD_FLOAT64;
    check_configuration(&c, seed);
}
END_TEST

START_TEST(test_random_f32)
{
    uint64_t seed = 2000 + (uint64_t)_i;
    configuration c = random_configuration(&seed, _i % 2);
    c.x = c.param = c.residual = GD_FLOAT32;
    check_configuration(&c, seed);
}
END_TEST

START_TEST(test_random_dtypes)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 3000 + (uint64_t)_i;
    configuration c = random_configuration(&seed, _i % 2);
    c.x = dtypes[_i / 2 % 4];
    c.param = dtypes[_i / 8 % 4];
    c.residual = dtypes[_i / 32 % 4];
    check_configuration(&c, seed);
}
END_TEST

START_TEST(test_scales)
{
    /* Squares of these overflow and underflow float32; sums in double do not care. */
    static const double scales[] = {1e-30, 1e-18, 1e-3, 1e3, 1e18, 1e30};
    configuration c = {.ndim = 2, .shape = {5, 65}, .weight = true, .scale = scales[_i]};
    c.options.eps = 0;
    check_configuration(&c, 7);
    c.add = true;
    check_configuration(&c, 8);
    c.x = c.param = c.residual = GD_FLOAT64;
    check_configuration(&c, 9);
}
END_TEST

/* ---- Rows that are not ordinary ----------------------------------------------------------- */

static gd_tensor *tensor_of(gd_context *ctx, int64_t rows, int64_t cols, const float *values)
{
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, 2, (int64_t[]){rows, cols}, values);
    gd_tensor_set_requires_grad(t, true);
    return t;
}

START_TEST(test_nan_and_infinity)
{
    gd_context *ctx = gd_context_create(NULL);
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
    gd_context_free(ctx);
}
END_TEST

START_TEST(test_empty)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true});
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
        double *dw = ref_values(gd_grad(w));
        for (int64_t j = 0; j < cols; j++) ck_assert(dw[j] == 0);
        free(dw);
        gd_step_end(ctx);
    }
    gd_context_free(ctx);
}
END_TEST

/* More than GD_STREAM_FROM bytes go past the caches, here from rows that begin anywhere. */
START_TEST(test_large_and_misaligned)
{
    enum { M = 4200, N = 1023 };
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 2});
    uint64_t seed = 5;
    gd_tensor *x = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(M, N), 0, 1, &seed);
    gd_tensor *w = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(N), 1, 0.5, &seed);
    gd_tensor *dy = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(M, N), 0, 1, &seed);
    gd_tensor *y = gd_rms_norm(x, w, 1e-5);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(ctx);
    double *xs = ref_values(x), *ws = ref_values(w), *dys = ref_values(dy), *dw = ref_array(N);
    double *ys = ref_values(y), *dxs = ref_values(gd_grad(x)), *dws = ref_values(gd_grad(w));
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
        ref_near(ys + m * N, want_y, N, 1e-6, GD_FLOAT32, 1, "y");
        ref_near(dxs + m * N, want_dx, N, 1e-6, GD_FLOAT32, 1, "dx");
    }
    ref_near(dws, dw, N, 1e-6, GD_FLOAT32, 1, "dw");
    free(xs), free(ws), free(dys), free(dw), free(ys), free(dxs), free(dws);
    gd_context_free(ctx);
}
END_TEST

/* ---- What must not make a difference ------------------------------------------------------ */

/* The bits of y, sum, dx, dresidual, dw and db, one after the other. */
static unsigned char *all_bits(int threads, const configuration *c, size_t *bytes)
{
    uint64_t seed = 77;
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = threads, .poison = true});
    gd_tensor *x = make_x(ctx, c, &seed), *sum;
    gd_tensor *w = make_param(ctx, c, c->weight_per_head, 1, &seed);
    gd_tensor *b = make_param(ctx, c, c->bias_per_head, 0, &seed);
    gd_tensor *r = ref_tensor(ctx, c->residual, c->ndim, c->shape, 0, 1, &seed);
    gd_tensor *dy = ref_tensor(ctx, c->x, c->ndim, c->shape, 0, 1, &seed);
    gd_tensor *y = gd_add_rms_norm(x, r, w, b, &c->options, &sum);
    gd_backward_from((gd_tensor *[]){y, sum}, 2,
                     &(gd_backward_options){.cotangents = (gd_tensor *[]){dy, dy}});
    ck_assert_no_error(ctx);
    gd_tensor *all[] = {sum, gd_grad(x), gd_grad(r), gd_grad(w), gd_grad(b), y};
    *bytes = 0;
    unsigned char *bits = NULL;
    for (int i = 0; i < 6; i++) {
        size_t size = (size_t)gd_tensor_count(all[i]) * gd_dtype_size(gd_tensor_dtype(all[i]));
        bits = realloc(bits, *bytes + size);
        ck_assert_int_eq(gd_tensor_read(all[i], bits + *bytes, size), GD_OK);
        *bytes += size;
    }
    gd_context_free(ctx);
    return bits;
}

START_TEST(test_threads)
{
    configuration c = {.ndim = 3, .shape = {701, 6, 17}, .scale = 1, .options = {.eps = 1e-5}};
    c.x = c.param = c.residual = _i % 2 ? GD_FLOAT64 : GD_FLOAT32;
    c.weight_per_head = c.bias_per_head = _i / 2;
    size_t bytes, other_bytes;
    unsigned char *one = all_bits(1, &c, &bytes);
    for (int threads = 2; threads <= 5; threads++) {
        unsigned char *other = all_bits(threads, &c, &other_bytes);
        ck_assert_uint_eq(bytes, other_bytes);
        ck_assert_msg(!memcmp(one, other, bytes), "%d threads give other bits than one", threads);
        free(other);
    }
    free(one);
}
END_TEST

/* A row's result is the same whatever other rows there are. */
START_TEST(test_rows_do_not_see_each_other)
{
    gd_context *ctx = gd_context_create(NULL);
    uint64_t seed = 3;
    gd_tensor *x = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(500, 131), 0, 1, &seed);
    gd_tensor *all = gd_rms_norm(x, NULL, 1e-5);
    gd_tensor *one = gd_rms_norm(gd_slice(x, 0, 321, 322), NULL, 1e-5);
    ck_assert_no_error(ctx);
    const float *from_all = (const float *)gd_tensor_data(all) + 321 * 131;
    ck_assert(!memcmp(from_all, gd_tensor_data(one), 131 * sizeof(float)));
    gd_context_free(ctx);
}
END_TEST

/* Fused or not: the same numbers, to the bit where the sum is rounded to be stored. */
START_TEST(test_add_is_add_then_norm)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_FLOAT64, GD_BFLOAT16, GD_FLOAT16};
    gd_context *ctx = gd_context_create(NULL);
    uint64_t seed = 11;
    gd_dtype dtype = dtypes[_i];
    gd_tensor *x = ref_tensor(ctx, dtype, GD_SHAPE(9, 300), 0, 1, &seed);
    gd_tensor *r = ref_tensor(ctx, dtype, GD_SHAPE(9, 300), 0, 3, &seed);
    gd_tensor *w = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(300), 1, 0.5, &seed);
    gd_rms_norm_options options = {.eps = 1e-5, .round_before_weight = true};
    gd_tensor *sum, *y = gd_add_rms_norm(x, r, w, NULL, &options, &sum);
    gd_tensor *again = gd_rms_norm_with(gd_detach(sum), w, NULL, &options);
    ck_assert_no_error(ctx);
    ck_assert(!memcmp(gd_tensor_data(y), gd_tensor_data(again), 9 * 300 * gd_dtype_size(dtype)));
    gd_context_free(ctx);
}
END_TEST

/* Any subset of gradients has the bits that all of them together have. */
START_TEST(test_subsets)
{
    unsigned char *bits[4] = {NULL};
    for (int subset = 15; subset > 0; subset--) {
        uint64_t seed = 21;
        gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true});
        gd_tensor *in[] = {ref_tensor(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), 0, 1, &seed),
                           ref_tensor(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), 0, 1, &seed),
                           ref_tensor(ctx, GD_FLOAT64, GD_SHAPE(6, 19), 1, 0.5, &seed),
                           ref_tensor(ctx, GD_FLOAT64, GD_SHAPE(19), 0, 1, &seed)};
        gd_tensor *dy = ref_tensor(ctx, GD_FLOAT64, GD_SHAPE(37, 6, 19), 0, 1, &seed);
        for (int i = 0; i < 4; i++) gd_tensor_set_requires_grad(in[i], subset >> i & 1);
        gd_rms_norm_options options = {.eps = 1e-5};
        gd_tensor *y = gd_add_rms_norm(in[0], in[1], in[2], in[3], &options, NULL);
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        ck_assert_no_error(ctx);
        for (int i = 0; i < 4; i++) {
            size_t size = (size_t)gd_tensor_count(in[i]) * sizeof(double);
            ck_assert_int_eq(gd_grad(in[i]) != NULL, subset >> i & 1);
            if (!gd_grad(in[i])) continue;
            if (subset == 15) bits[i] = memcpy(malloc(size), gd_tensor_data(gd_grad(in[i])), size);
            ck_assert(!memcmp(bits[i], gd_tensor_data(gd_grad(in[i])), size));
        }
        gd_context_free(ctx);
    }
    for (int i = 0; i < 4; i++) free(bits[i]);
}
END_TEST

/* add_rms_norm when a gradient came to one of its outputs alone. */
START_TEST(test_missing_cotangents)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true});
    uint64_t seed = 31;
    gd_tensor *x = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(6, 10), 0, 1, &seed);
    gd_tensor *r = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(6, 10), 0, 1, &seed);
    gd_tensor *w = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(10), 1, 0.5, &seed);
    gd_tensor *u = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(6, 10), 0, 1, &seed);
    gd_rms_norm_options options = {.eps = 1e-5};
    gd_tensor *sum, *y = gd_add_rms_norm(x, r, w, NULL, &options, &sum);
    gd_backward_options given = {.cotangents = &u, .keep_tape = true};
    double *want = ref_values(u), *zeros = ref_array(10);
    for (int round = 1; round <= 2; round++) { /* the second time it adds */
        gd_backward_from(&sum, 1, &given);
        ck_assert_no_error(ctx);
        double *dx = ref_values(gd_grad(x)), *dr = ref_values(gd_grad(r));
        double *dw = ref_values(gd_grad(w));
        for (int i = 0; i < 60; i++) dx[i] /= round, dr[i] /= round;
        ref_near(dx, want, 60, 0, GD_FLOAT32, 0, "dx");
        ref_near(dr, want, 60, 0, GD_FLOAT32, 0, "dresidual");
        ref_near(dw, zeros, 10, 0, GD_FLOAT32, 0, "dw");
        free(dx), free(dr), free(dw);
    }
    gd_grad_clear(x), gd_grad_clear(w);
    gd_backward_from(&y, 1, &given);
    double *dx = ref_values(gd_grad(x)), *dw = ref_values(gd_grad(w));
    gd_step_end(ctx);
    gd_grad_clear(x), gd_grad_clear(w);
    double *added = ref_values(x), *rest = ref_values(r);
    for (int i = 0; i < 60; i++) added[i] += rest[i];
    gd_tensor *plain = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(6, 10), 0, 1, &seed);
    gd_tensor_write_f64(plain, added, 60);
    y = gd_rms_norm(plain, w, 1e-5);
    gd_backward_from(&y, 1, &given);
    ck_assert_no_error(ctx);
    double *plain_dx = ref_values(gd_grad(plain)), *plain_dw = ref_values(gd_grad(w));
    ref_near(dx, plain_dx, 60, 0, GD_FLOAT32, 0, "dx");
    ref_near(dw, plain_dw, 10, 0, GD_FLOAT32, 0, "dw");
    free(want), free(zeros), free(dx), free(dw), free(added), free(rest);
    free(plain_dx), free(plain_dw);
    gd_context_free(ctx);
}
END_TEST

/* In a chain the gradient of each middle tensor takes the memory of the one after it. */
START_TEST(test_dx_in_place_of_dy)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true});
    uint64_t seed = 41;
    double *first = NULL;
    for (int keep = 1; keep >= 0; keep--) {
        seed = 41;
        gd_tensor *x = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(20, 300), 0, 1, &seed);
        gd_tensor *w = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(300), 1, 0.5, &seed);
        gd_tensor *dy = ref_tensor(ctx, GD_FLOAT32, GD_SHAPE(20, 300), 0, 1, &seed);
        gd_tensor *y = x;
        for (int i = 0; i < 4; i++) {
            y = gd_rms_norm(y, w, 1e-1);
            if (keep) gd_keep_grad(y); /* then nothing may be written over it */
        }
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        ck_assert_no_error(ctx);
        double *dx = ref_values(gd_grad(x)), *dw = ref_values(gd_grad(w));
        first = first ? first : memcpy(ref_array(6300), dx, 6000 * sizeof *dx);
        if (keep) memcpy(first + 6000, dw, 300 * sizeof *dw);
        ref_near(dx, first, 6000, 0, GD_FLOAT32, 0, "dx");
        ref_near(dw, first + 6000, 300, 0, GD_FLOAT32, 0, "dw");
        free(dx), free(dw);
        gd_step_end(ctx);
    }
    free(first);
    gd_context_free(ctx);
}
END_TEST

/* ---- What is refused ---------------------------------------------------------------------- */

typedef struct shape {
    bool given;
    int ndim;
    int64_t dims[3];
} shape;

static const struct refusal {
    const char *message;
    shape x, weight, bias;
    gd_dtype dtype; /* of x */
    gd_rms_norm_options options;
} refused[] = {
    {.message =
         "rms_norm: weight has shape [768], but the last dimension of x [32, 64, 512] is 512",
     .x = {true, 3, {32, 64, 512}},
     .weight = {true, 1, {768}}},
    {.message = "rms_norm: bias has shape [1], but the last dimension of x [3, 4] is 4",
     .x = {true, 2, {3, 4}},
     .weight = {true, 1, {4}},
     .bias = {true, 1, {1}}},
    {.message = "rms_norm: weight has shape [2, 4], but the last dimension but one of x [2, 3, 4] "
                "is 3",
     .x = {true, 3, {2, 3, 4}},
     .weight = {true, 2, {2, 4}}},
    {.message = "rms_norm: weight has shape [1, 4], one row per head, but x [4] has no heads",
     .x = {true, 1, {4}},
     .weight = {true, 2, {1, 4}}},
    {.message = "rms_norm: weight has shape [], wanted one dimension, or two for one row per head",
     .x = {true, 2, {3, 4}},
     .weight = {true, 0, {0}}},
    {.message = "rms_norm: bias has shape [1, 3, 4], wanted one dimension, or two for one row per "
                "head",
     .x = {true, 2, {3, 4}},
     .bias = {true, 3, {1, 3, 4}}},
    {.message = "rms_norm: x has no dimensions, wanted [..., N]", .x = {true, 0, {0}}},
    {.message = "rms_norm: x is int32, wanted a real dtype",
     .x = {true, 2, {3, 4}},
     .dtype = GD_INT32},
    {.message = "rms_norm: eps is -1, wanted at least 0",
     .x = {true, 2, {3, 4}},
     .options = {.eps = -1}},
    {.message = "rms_norm: eps is nan, wanted at least 0",
     .x = {true, 2, {3, 4}},
     .options = {.eps = (double)NAN}},
    {.message = "rms_norm: offset is inf, wanted a finite number",
     .x = {true, 2, {3, 4}},
     .options = {.offset = (double)INFINITY}},
};

static gd_tensor *tensor_like(gd_context *ctx, gd_dtype dtype, const shape *s)
{
    return s->given ? gd_tensor_create(ctx, dtype, s->ndim, s->dims) : NULL;
}

START_TEST(test_refused)
{
    const struct refusal *r = &refused[_i];
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = tensor_like(ctx, r->dtype, &r->x);
    gd_tensor *w = tensor_like(ctx, GD_FLOAT32, &r->weight);
    gd_tensor *b = tensor_like(ctx, GD_FLOAT32, &r->bias);
    ck_assert_ptr_null(gd_rms_norm_with(x, w, b, &r->options));
    ck_assert_int_eq(gd_error_status(ctx), GD_ERROR_ARGUMENT);
    ck_assert_error(ctx, r->message);
    gd_context_free(ctx);
}
END_TEST

START_TEST(test_refused_add)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 4)), *sum = x;
    gd_tensor *r = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 3));
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(3, 4));
    gd_rms_norm_options options = {.eps = 1e-5};
    ck_assert_ptr_null(gd_add_rms_norm(x, r, NULL, NULL, &options, &sum));
    ck_assert_ptr_null(sum);
    ck_assert_error(ctx, "add_rms_norm: residual has shape [4, 3], but that of x is [3, 4]");
    ck_assert_ptr_null(gd_add_rms_norm(x, ids, NULL, NULL, &options, NULL));
    ck_assert_error(ctx, "add_rms_norm: residual is int32, wanted a real dtype");
    ck_assert_ptr_null(gd_add_rms_norm(x, NULL, NULL, NULL, &options, NULL));
    ck_assert_error(ctx, "add_rms_norm: residual is NULL");
    ck_assert_ptr_null(gd_add_rms_norm(x, x, NULL, NULL, NULL, &sum));
    ck_assert_error(ctx, "add_rms_norm: options is NULL");
    ck_assert_ptr_null(gd_rms_norm_with(x, NULL, NULL, NULL));
    ck_assert_error(ctx, "rms_norm: options is NULL");
    ck_assert_ptr_null(gd_rms_norm(NULL, NULL, 1e-5));
    gd_context_free(ctx);
}
END_TEST

static Suite *rms_norm_suite(void)
{
    Suite *suite = suite_create("rms_norm");
    TCase *numbers = tcase_create("numbers");
    tcase_set_timeout(numbers, 60);
    tcase_add_loop_test(numbers, test_random_f64, 0, 80);
    tcase_add_loop_test(numbers, test_random_f32, 0, 80);
    tcase_add_loop_test(numbers, test_random_dtypes, 0, 128);
    tcase_add_loop_test(numbers, test_scales, 0, 6);
    tcase_add_test(numbers, test_nan_and_infinity);
    tcase_add_test(numbers, test_empty);
    tcase_add_test(numbers, test_large_and_misaligned);
    suite_add_tcase(suite, numbers);
    TCase *same = tcase_create("no difference");
    tcase_add_loop_test(same, test_threads, 0, 4);
    tcase_add_test(same, test_rows_do_not_see_each_other);
    tcase_add_loop_test(same, test_add_is_add_then_norm, 0, 4);
    tcase_add_test(same, test_subsets);
    tcase_add_test(same, test_missing_cotangents);
    tcase_add_test(same, test_dx_in_place_of_dy);
    suite_add_tcase(suite, same);
    TCase *errors = tcase_create("refused");
    tcase_add_loop_test(errors, test_refused, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(errors, test_refused_add);
    suite_add_tcase(suite, errors);
    return suite;
}

int main(void)
{
    return check_main(rms_norm_suite());
}
