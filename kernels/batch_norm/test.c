/* test.c - batch_norm and group_norm against their definitions in float64, and batch_norm's plain
 * twins; its running statistics, when they are updated and when not; and what is refused. */
#include "twin.h"

#include "batch_norm/batch_norm.h"
#include "gradus/gradcheck.h"
#include "one_context.h"

TWIN(batch_norm)
TWIN(batch_norm_fixed)

/* ---- The definition ----------------------------------------------------------------------- */

typedef struct problem {
    int64_t B, C, S;
    const double *x, *w, *b, *dy, *mean, *var; /* mean, var: given, or NULL */
    double eps;
} problem;

typedef struct expected {
    double *y, *dx, *dw, *db, *mean, *var; /* [B, C, S] twice, [C] */
} expected;

static void free_expected(expected *e)
{
    free(e->y), free(e->dx), free(e->dw), free(e->db), free(e->mean), free(e->var);
}

/* dx is written as the derivative of y through every path, element by element: O(n^2). */
static expected definition(const problem *p)
{
    const int64_t n = p->B * p->S, all = n * p->C;
    expected e = {zeros(all), zeros(all), zeros(p->C), zeros(p->C), zeros(p->C), zeros(p->C)};
    int64_t *at = malloc((size_t)n * sizeof *at);
    for (int64_t c = 0; c < p->C; c++) {
        long double mean = 0, var = 0;
        for (int64_t k = 0; k < n; k++) at[k] = (k / p->S * p->C + c) * p->S + k % p->S;
        for (int64_t k = 0; k < n; k++) mean += (long double)p->x[at[k]] / (long double)n;
        for (int64_t k = 0; k < n; k++)
            var += (p->x[at[k]] - mean) * (p->x[at[k]] - mean) / (long double)n;
        e.mean[c] = (double)mean, e.var[c] = (double)var;
        if (p->mean) mean = p->mean[c], var = p->var[c];
        const double r = 1 / sqrt((double)var + p->eps), w = p->w ? p->w[c] : 1;
        for (int64_t k = 0; k < n; k++) {
            const double xhat = (double)(p->x[at[k]] - mean) * r, d = p->dy[at[k]];
            e.y[at[k]] = xhat * w + (p->b ? p->b[c] : 0);
            e.dw[c] += d * xhat;
            e.db[c] += d;
            for (int64_t i = 0; i < n; i++) {
                const double other = (double)(p->x[at[i]] - mean) * r;
                double slope = i == k;
                if (!p->mean) slope -= 1 / (double)n + other * xhat / (double)n;
                e.dx[at[i]] += d * w * r * slope;
            }
        }
    }
    free(at);
    return e;
}

static gd_tensor *filled(gd_dtype dtype, int64_t count, double low, double high, bool grad)
{
    gd_tensor *t = random_tensor(ctx, dtype, (shape){1, {count}}, (enum layout)0, low, high, &seed);
    gd_tensor_set_requires_grad(t, grad);
    return t;
}

LOOP_TEST(it_is_the_definition, test_rounds(160))
{
    const gd_dtype dtype = dtypes[_i % 4];
    const bool evaluate = _i / 4 % 2, places = _i / 8 % 2, running = evaluate || _i / 16 % 2;
    seed = 700 + (uint64_t)_i;
    problem p = {
        .B = random_size(&seed, 2, 9), .C = random_size(&seed, 1, 40), .S = 1, .eps = 1e-3};
    shape s = {2, {p.B, p.C}};
    if (places) s = (shape){4, {p.B, p.C, random_size(&seed, 1, 4), random_size(&seed, 1, 5)}};
    if (places) p.S = s.dim[2] * s.dim[3];
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)(_i % LAYOUTS), 3, 7, &seed);
    gd_tensor *w = random_chance(&seed, 0.7) ? filled(dtype, p.C, 0.5, 2, true) : NULL;
    gd_tensor *b = random_chance(&seed, 0.7) ? filled(dtype, p.C, -1, 1, true) : NULL;
    gd_tensor *mean = running ? filled(GD_FLOAT32, p.C, 4, 6, false) : NULL;
    gd_tensor *var = running ? filled(GD_FLOAT32, p.C, 0.5, 2, false) : NULL;
    const gd_batch_norm_args args = {.eps = p.eps, .momentum = 0.25};
    assert_twin(evaluate ? batch_norm_fixed_twin() : batch_norm_twin(),
                (gd_tensor *[]){x, w, b, mean, var}, BATCH_INPUTS, &args, 100 * tolerance_of(dtype),
                &seed);
    double *old_mean = running ? values_of(mean) : NULL, *old_var = running ? values_of(var) : NULL;
    gd_tensor *y = gd_keep(gd_batch_norm(
        x, w, b,
        &(gd_batch_norm_options){
            .eps = p.eps, .momentum = 0.25, .mean = mean, .var = var, .evaluate = evaluate}));
    double *xv = values_of(x), *wv = w ? values_of(w) : NULL, *bv = b ? values_of(b) : NULL;
    double *dy = backward_random(ctx, y, &seed);
    p.x = xv, p.w = wv, p.b = bv, p.dy = dy;
    if (evaluate) p.mean = old_mean, p.var = old_var;
    expected e = definition(&p);
    const double tolerance = 32 * tolerance_of(dtype);
    assert_sums("y", y, e.y, tolerance);
    assert_sums("dx", gd_grad(x), e.dx, tolerance);
    if (w) assert_sums("dw", gd_grad(w), e.dw, tolerance * (double)(p.B * p.S));
    if (b) assert_sums("db", gd_grad(b), e.db, tolerance * (double)(p.B * p.S));
    const double n = (double)(p.B * p.S);
    for (int64_t c = 0; running && c < p.C; c++) {
        const double m = evaluate ? 0 : 0.25;
        e.mean[c] = (1 - m) * old_mean[c] + m * e.mean[c];
        e.var[c] = (1 - m) * old_var[c] + m * e.var[c] * n / (n - 1);
    }
    if (running) assert_sums("mean", mean, e.mean, 1e-5), assert_sums("var", var, e.var, 1e-5);
    free_expected(&e);
    free(xv), free(wv), free(bv), free(dy), free(old_mean), free(old_var);
}

/* group_norm is layer_norm over [B, groups, N], and then a weight and a bias for each channel. */
LOOP_TEST(group_norm_is_made_of_layer_norm, 40)
{
    const gd_dtype dtype = _i % 2 ? GD_FLOAT64 : GD_FLOAT32;
    const double tolerance = _i % 2 ? 1e-13 : 1e-5;
    seed = 40 + (uint64_t)_i;
    const int64_t B = random_size(&seed, 1, 4), groups = random_size(&seed, 1, 4),
                  each = random_size(&seed, 1, 4), S = random_size(&seed, 2, 40);
    const int64_t C = groups * each, split[] = {B, groups, each * S}, column[] = {C, 1};
    const shape s = {3, {B, C, S}};
    gd_tensor *x = random_tensor(ctx, dtype, s, (enum layout)0, 3, 7, &seed);
    gd_tensor *w = filled(dtype, C, 0.5, 2, true), *b = filled(dtype, C, -1, 1, true);
    gd_tensor *leaf[] = {x, w, b};
    double *want[4];
    for (int pass = 0; pass < 2; pass++) {
        gd_tensor *y;
        if (pass) {
            y = gd_group_norm(x, groups, w, b, 1e-3);
        } else {
            gd_tensor *xhat = gd_layer_norm(gd_reshape(x, 3, split), NULL, NULL, 1e-3);
            y = gd_add(gd_mul(gd_reshape(xhat, 3, s.dim), gd_reshape(w, 2, column)),
                       gd_reshape(b, 2, column));
        }
        gd_keep(y);
        gd_backward(gd_sum(gd_mul(gd_sin(y), y), NULL, 0, false));
        ck_assert_no_error(ctx);
        for (int i = 0; i < 4; i++) {
            gd_tensor *t = i ? gd_grad(leaf[i - 1]) : y;
            if (!pass) want[i] = values_of(t);
            if (!pass) continue;
            assert_near(t, want[i], 1, (bound){(double)(B * S), tolerance, 0},
                        i ? "a gradient" : "y");
            free(want[i]);
        }
        for (int i = 0; i < 3; i++) gd_grad_clear(leaf[i]);
        gd_step_end(ctx);
    }
}

/* ---- When the running statistics are updated ---------------------------------------------- */

enum { CHANNELS = 3 };

typedef struct layer {
    gd_tensor *x, *mean, *var;
} layer;

static layer make_layer(void)
{
    layer l = {gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(8, CHANNELS)),
               gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(CHANNELS)),
               gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(CHANNELS))};
    gd_random_normal(l.x, 2, 1);
    gd_tensor_set_requires_grad(l.x, true);
    gd_tensor_fill(l.var, 1);
    return l;
}

static gd_tensor *apply(void *user, gd_tensor *const *in, int count)
{
    const layer *l = user;
    (void)count;
    return gd_batch_norm(in[0], NULL, NULL,
                         &(gd_batch_norm_options){.mean = l->mean, .var = l->var});
}

/* How many updates the running mean has had, from 0 on. */
static int updates(const layer *l)
{
    double *x = values_of(l->x), *mean = values_of(l->mean), batch = 0, value = 0;
    for (int i = 0; i < 8; i++) batch += x[i * CHANNELS] / 8;
    int n = 0;
    for (; n < 10 && fabs(value - mean[0]) > 1e-5; n++) value = 0.9 * value + 0.1 * batch;
    free(x), free(mean);
    return n;
}

static void free_layer(layer *l)
{
    gd_step_end(ctx);
    gd_tensor_free(l->x), gd_tensor_free(l->mean), gd_tensor_free(l->var);
}

TEST(each_forward_updates_once)
{
    layer l = make_layer();
    for (int step = 1; step <= 3; step++) {
        gd_backward(gd_sum(apply(&l, &l.x, 1), NULL, 0, false));
        gd_step_end(ctx);
        ck_assert_int_eq(updates(&l), step);
    }
    gd_no_grad_begin(ctx); /* as in PyTorch, where the module's mode decides */
    apply(&l, &l.x, 1);
    gd_no_grad_end(ctx);
    ck_assert_int_eq(updates(&l), 4);
    free_layer(&l);
}

TEST(a_segment_that_runs_twice_updates_once)
{
    layer l = make_layer();
    gd_tensor *y = gd_recompute(ctx, apply, &l, &l.x, 1);
    ck_assert_int_eq(updates(&l), 1);
    gd_backward(gd_sum(gd_mul(y, y), NULL, 0, false));
    ck_assert_no_error(ctx);
    ck_assert_int_eq(updates(&l), 1);
    free_layer(&l);
}

TEST(gradcheck_updates_nothing)
{
    layer l = make_layer();
    gd_gradcheck_report report;
    gd_gradcheck_function(ctx, "layer", apply, &l, &l.x, 1, NULL, &report);
    ck_assert_str_eq(gd_verdict_name(report.verdict), "PASS");
    gd_gradcheck_report_free(&report);
    ck_assert_int_eq(updates(&l), 0);
    apply(&l, &l.x, 1);
    ck_assert_int_eq(updates(&l), 1);
    gd_repeat_begin(ctx);
    apply(&l, &l.x, 1);
    gd_repeat_end(ctx);
    ck_assert_int_eq(updates(&l), 1);
    gd_repeat_end(ctx);
    ck_assert_error(ctx, "repeat_end: there was no gd_repeat_begin before it");
    free_layer(&l);
}

TEST(evaluation_is_a_fixed_function)
{
    layer l = make_layer();
    const gd_batch_norm_options options = {.mean = l.mean, .var = l.var, .evaluate = true};
    double *first = values_of(gd_batch_norm(l.x, NULL, NULL, &options));
    double *x = values_of(l.x);
    for (int i = 0; i < 8 * CHANNELS; i++) ck_assert(fabs(first[i] - x[i] / sqrt(1 + 1e-5)) < 1e-6);
    ck_assert_int_eq(updates(&l), 0);
    free(first), free(x);
    free_layer(&l);
}

/* ---- Edges -------------------------------------------------------------------------------- */

/* Far from 0 a float32 mean has lost the digits that the deviation needs. */
TEST(far_from_zero)
{
    enum { N = 4096 };
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N, 1));
    gd_random_normal(x, 1e5, 1);
    gd_tensor *y = gd_batch_norm(x, NULL, NULL, NULL);
    double *xv = values_of(x), *yv = values_of(y), mean = 0, var = 0;
    for (int i = 0; i < N; i++) mean += xv[i] / N;
    for (int i = 0; i < N; i++) var += (xv[i] - mean) * (xv[i] - mean) / N;
    for (int i = 0; i < N; i++) ck_assert(fabs(yv[i] - (xv[i] - mean) / sqrt(var + 1e-5)) < 1e-5);
    free(xv), free(yv);
    gd_step_end(ctx);
    gd_tensor_free(x);
}

TEST(bad_input_is_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3, 4));
    gd_tensor *row = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor *one = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1, 3));
    gd_tensor *four = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4));
#define WITH(...) &(gd_batch_norm_options){__VA_ARGS__}
    REFUSED(gd_batch_norm(one, NULL, NULL, NULL),
            "x is [1, 3], wanted more than one element of each channel");
    REFUSED(gd_group_norm(x, 2, NULL, NULL, 1e-5),
            "groups is 2, wanted a divisor of the 3 channels of x [2, 3, 4]");
    REFUSED(gd_group_norm(x, 0, NULL, NULL, 1e-5), "groups is 0, wanted a divisor");
    gd_tensor_set_requires_grad(row, true);
    REFUSED(gd_batch_norm(x, NULL, NULL, WITH(.mean = row, .var = row)),
            "mean requires a gradient, wanted a tensor that does not");
    gd_tensor_free(x), gd_tensor_free(row), gd_tensor_free(one), gd_tensor_free(four);
}

CHECK_MAIN_WITHIN("batch_norm", setup, teardown)
