/* test_rms_norm_kernels.c - the functions of gradus/kernels.h on the CPU against the formulas,
 * written out in double: every option, mixes of dtypes, rows anywhere; and the same of the plain
 * kernels, whatever runs by itself. Each call is made by one thread and by four, which must give
 * the same bits; poisoned memory without a result stays NaN. */
#include "gradus/kernels.h"
#include "op_test.h"
#include "rms_norm/rms_norm.h"

/* ---- A call and its arrays ---------------------------------------------------------------- */

typedef struct call_case {
    int64_t tokens, heads, cols;
    gd_dtype dtype, y_dtype, weight_dtype, dweight_dtype;
    bool per_head, residual, dsum, no_weight, bias;
    bool no_dx, no_dw, db, dbranch; /* what is wanted */
    bool accumulate_dx, accumulate_dbranch, accumulate_dw, round, in_place, flat_dy;
    double offset;
    int64_t gap, shift; /* elements between tokens, and before the first one */
} call_case;

/* [rows, cols] in the memory of a tensor, NaN between the rows. */
typedef struct array {
    gd_tensor *t; /* NULL: absent */
    int64_t rows, cols, stride, shift;
    double *before, *after;
} array;

typedef struct run {
    call_case c;
    gd_context *ctx;
    gd_rms_norm_problem p;
    uint64_t seed;
    array x, residual, weight, bias, y, sum, rstd, dy, dsum, dx, dbranch, dw, db, workspace;
} run;

typedef struct numbers {
    double mean, deviation; /* 0: all poison */
} numbers;

static array make_array(run *r, bool present, gd_dtype dtype, int64_t rows, int64_t cols,
                        numbers of)
{
    bool packed = cols == 1 || rows == 1;
    array a = {.rows = rows, .cols = cols, .shift = r->c.shift};
    a.stride = cols + (packed ? 0 : r->c.gap);
    if (!present) return a;
    int64_t count = a.shift + rows * a.stride + 3;
    a.t = gd_tensor_create(r->ctx, dtype, 1, &count);
    ck_assert_no_error(r->ctx);
    double *values = zeros(count);
    for (int64_t i = 0; i < count; i++) values[i] = NAN;
    for (int64_t i = 0; i < rows && of.deviation > 0; i++)
        for (int64_t j = 0; j < cols; j++)
            values[a.shift + i * a.stride + j] =
                of.mean + random_in(&r->seed, -1.7, 1.7) * of.deviation;
    gd_tensor_write_f64(a.t, values, count);
    free(values);
    a.before = values_of(a.t);
    return a;
}

static void *pointer(const array *a)
{
    if (!a->t) return NULL;
    return (char *)gd_tensor_data(a->t) + (size_t)a->shift * gd_dtype_size(gd_tensor_dtype(a->t));
}

static double was(const array *a, int64_t i, int64_t j)
{
    return a->before[a->shift + i * a->stride + j];
}

static double is(const array *a, int64_t i, int64_t j)
{
    return a->after[a->shift + i * a->stride + j];
}

static bool is_wide(const call_case *c)
{
    return c->dtype == GD_FLOAT64 || c->y_dtype == GD_FLOAT64 || c->weight_dtype == GD_FLOAT64;
}

/* a takes the place of b. */
static void replace(array *a, const array *b)
{
    free(a->before);
    *a = *b;
}

static run make_run(const call_case *c, uint64_t seed)
{
    run r = {.c = *c, .ctx = test_context(1), .seed = seed};
    r.p = (gd_rms_norm_problem){.rows = c->tokens * c->heads,
                                .cols = c->cols,
                                .heads = c->heads,
                                .weight_per_head = c->per_head,
                                .dtype = c->dtype,
                                .y_dtype = c->y_dtype,
                                .weight_dtype = c->weight_dtype,
                                .dweight_dtype = c->dweight_dtype,
                                .eps = 1e-5,
                                .offset = c->offset,
                                .round_before_weight = c->round};
    const int64_t T = c->tokens, width = c->heads * c->cols;
    const int64_t sums = c->per_head ? width : c->cols;
    gd_dtype x_dtype = c->residual ? c->y_dtype : c->dtype;
    r.x = make_array(&r, true, x_dtype, T, width, (numbers){0.3, 1.7});
    r.residual = make_array(&r, c->residual, c->dtype, T, width, (numbers){-0.2, 1.1});
    r.weight = make_array(&r, !c->no_weight, c->weight_dtype, 1, sums, (numbers){0.7, 0.5});
    r.bias = make_array(&r, c->bias, c->weight_dtype, 1, sums, (numbers){0, 1});
    r.y = make_array(&r, true, c->y_dtype, T, width, (numbers){0});
    r.sum = make_array(&r, c->residual, c->dtype, T, width, (numbers){0});
    r.rstd =
        make_array(&r, true, is_wide(c) ? GD_FLOAT64 : GD_FLOAT32, T * c->heads, 1, (numbers){0});
    r.dy = make_array(&r, true, c->y_dtype, c->flat_dy ? 1 : T, width, (numbers){0.1, 1});
    r.dsum = make_array(&r, c->dsum, c->dtype, T, width, (numbers){0.05, 0.8});
    r.dx =
        make_array(&r, !c->no_dx, c->dtype, T, width, (numbers){0.2, c->accumulate_dx ? 0.9 : 0});
    r.dbranch = make_array(&r, c->dbranch, c->y_dtype, T, width,
                           (numbers){-0.1, c->accumulate_dbranch ? 0.5 : 0});
    r.dw = make_array(&r, !c->no_dw, c->dweight_dtype, 1, sums,
                      (numbers){2.5, c->accumulate_dw ? 1 : 0});
    r.db =
        make_array(&r, c->db, c->dweight_dtype, 1, sums, (numbers){-1.5, c->accumulate_dw ? 1 : 0});
    r.workspace = make_array(&r, true, GD_FLOAT64, 1, (int64_t)gd_cpu_rms_norm_workspace(&r.p) / 8,
                             (numbers){0});
    if (c->in_place) {
        if (x_dtype == c->y_dtype) replace(&r.y, &r.x);
        if (c->residual) replace(&r.sum, &r.residual);
        if (c->dsum)
            replace(&r.dx, &r.dsum);
        else if (c->dtype == c->y_dtype && !c->flat_dy)
            replace(&r.dx, &r.dy);
    }
    return r;
}

static gd_rms_norm_values values(const run *r)
{
    return (gd_rms_norm_values){.y = pointer(&r->y),
                                .y_stride = r->y.stride,
                                .rstd = pointer(&r->rstd),
                                .x = pointer(&r->x),
                                .x_stride = r->x.stride,
                                .residual = pointer(&r->residual),
                                .residual_stride = r->residual.stride,
                                .sum = pointer(&r->sum),
                                .sum_stride = r->sum.stride,
                                .weight = pointer(&r->weight),
                                .bias = pointer(&r->bias)};
}

static gd_rms_norm_gradients gradients(const run *r)
{
    const call_case *c = &r->c;
    const array *normalised = c->residual ? &r->sum : &r->x;
    return (gd_rms_norm_gradients){.dx = pointer(&r->dx),
                                   .dx_stride = r->dx.stride,
                                   .accumulate_dx = c->accumulate_dx && !c->in_place,
                                   .dbranch = pointer(&r->dbranch),
                                   .dbranch_stride = r->dbranch.stride,
                                   .accumulate_dbranch = c->accumulate_dbranch,
                                   .dweight = pointer(&r->dw),
                                   .dbias = pointer(&r->db),
                                   .accumulate_dweight = c->accumulate_dw,
                                   .accumulate_dbias = c->accumulate_dw,
                                   .dy = pointer(&r->dy),
                                   .dy_stride = c->flat_dy ? 0 : r->dy.stride,
                                   .dsum = pointer(&r->dsum),
                                   .dsum_stride = r->dsum.stride,
                                   .x = pointer(normalised),
                                   .x_stride = normalised->stride,
                                   .rstd = pointer(&r->rstd),
                                   .weight = pointer(&r->weight),
                                   .workspace = pointer(&r->workspace)};
}

static void reset(const array *a)
{
    if (a->t) gd_tensor_write_f64(a->t, a->before, gd_tensor_count(a->t));
}

/* Fetches a result; the second time it must be what it was. What is no element is still there. */
static void fetch(array *a, bool again, const char *what)
{
    if (!a->t) return;
    double *got = values_of(a->t);
    const int64_t count = gd_tensor_count(a->t);
    if (again)
        ck_assert_msg(!memcmp(got, a->after, (size_t)count * sizeof *got),
                      "%s depends on the number of threads", what);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i - a->shift;
        bool element = at >= 0 && at < a->rows * a->stride && at % a->stride < a->cols;
        if (!element && !isnan(got[i])) ck_abort_msg("%s: wrote outside of the rows", what);
    }
    free(a->after);
    a->after = got;
}

/* By the kernels that the library chooses, or by the plain ones. */
static void call_forward(const run *r, const gd_rms_norm_values *v, bool plain, int threads)
{
    if (!plain)
        ck_assert_int_eq(gd_cpu_rms_norm_forward(&r->p, v, threads), GD_OK);
    else if (is_wide(&r->c))
        rms_norm_plain_forward_f64(&r->p, v);
    else
        rms_norm_plain_forward_f32(&r->p, v);
}

static void call_backward(const run *r, const gd_rms_norm_gradients *g, bool plain, int threads)
{
    if (!plain)
        ck_assert_int_eq(gd_cpu_rms_norm_backward(&r->p, g, threads), GD_OK);
    else if (is_wide(&r->c))
        rms_norm_plain_backward_f64(&r->p, g);
    else
        rms_norm_plain_backward_f32(&r->p, g);
}

static void run_calls(run *r, bool plain)
{
    const gd_rms_norm_values v = values(r);
    const gd_rms_norm_gradients g = gradients(r);
    for (int again = 0; again < 2; again++) {
        const int threads = again ? 4 : 1;
        reset(&r->y), reset(&r->sum), reset(&r->rstd), reset(&r->x), reset(&r->residual);
        call_forward(r, &v, plain, threads);
        fetch(&r->y, again, "y"), fetch(&r->sum, again, "sum"), fetch(&r->rstd, again, "rstd");
        if (!r->c.residual) reset(&r->x); /* y may have taken its place */
        reset(&r->dx), reset(&r->dbranch), reset(&r->dw), reset(&r->db), reset(&r->workspace);
        reset(&r->dy), reset(&r->dsum);
        call_backward(r, &g, plain, threads);
        fetch(&r->dx, again, "dx"), fetch(&r->dbranch, again, "dbranch");
        fetch(&r->dw, again, "dw"), fetch(&r->db, again, "db");
        fetch(&r->workspace, false, "workspace");
    }
}

/* ---- The reference ------------------------------------------------------------------------ */

/* got is within `error` of want, but for the rounding to its dtype. */
static void check(const array *a, const char *what, int64_t i, int64_t j, double want, double error)
{
    const gd_dtype dtype = gd_tensor_dtype(a->t);
    const double unit = rounding_of(dtype), got = is(a, i, j);
    const double allowed = error * (1 + unit) + unit * fabs(want) + ulp_of(0, dtype);
    if (!(fabs(got - want) <= allowed))
        ck_abort_msg("%s[%d, %d] is %.9g, wanted %.9g (allowed %.3g)", what, (int)i, (int)j, got,
                     want, allowed);
}

/* What is summed up over the rows, and the sizes of its terms. */
typedef struct sums {
    double *dw, *dw_size, *db, *db_size;
} sums;

static void check_row(const run *r, int64_t row, const sums *s)
{
    const call_case *c = &r->c;
    const int64_t N = c->cols, t = row / c->heads, from = row % c->heads * N;
    const int64_t param = c->per_head ? from : 0, dy_row = c->flat_dy ? 0 : t;
    const double fine = is_wide(c) ? 1e-13 : 1e-6;
    double *v = zeros(N), *f = zeros(N), squares = 0, dot = 0, dot_size = 0;
    for (int64_t j = 0; j < N; j++) {
        v[j] = c->residual ? is(&r->sum, t, from + j) : was(&r->x, t, from + j);
        f[j] = c->no_weight ? 1 : c->offset + was(&r->weight, 0, param + j);
        squares += v[j] * v[j];
    }
    const double rstd = 1 / sqrt(squares / (double)N + 1e-5);
    check(&r->rstd, "rstd", row, 0, rstd, fine * rstd);
    for (int64_t j = 0; j < N; j++) {
        const double term = was(&r->dy, dy_row, from + j) * f[j] * v[j] * rstd / (double)N;
        dot += term, dot_size += fabs(term);
    }
    for (int64_t j = 0; j < N; j++) {
        const int64_t at = from + j;
        if (c->residual) {
            const double x = was(&r->x, t, at), residual = was(&r->residual, t, at);
            check(&r->sum, "sum", t, at, x + residual, fine / 8 * (fabs(x) + fabs(residual)));
        }
        /* xhat is not exact before it is rounded, which may send it either way. */
        const double xhat = v[j] * rstd, dy = was(&r->dy, dy_row, at);
        const double low = c->round ? rounded(xhat * (1 - fine), c->y_dtype) : xhat;
        const double high = c->round ? rounded(xhat * (1 + fine), c->y_dtype) : xhat;
        const double middle = (low + high) / 2, either = fabs(high - low) / 2;
        const double bias = c->bias ? was(&r->bias, 0, param + j) : 0;
        check(&r->y, "y", t, at, middle * f[j] + bias,
              fine * (fabs(xhat * f[j]) + fabs(bias)) + either * fabs(f[j]));

        const double past = c->dsum ? was(&r->dsum, t, at) : 0;
        const double dx = rstd * (dy * f[j] - xhat * dot) + past;
        const double size = rstd * (fabs(dy * f[j]) + fabs(xhat) * dot_size) + fabs(past);
        const double dx_was = r->dx.t && c->accumulate_dx && !c->in_place ? was(&r->dx, t, at) : 0;
        if (r->dx.t) check(&r->dx, "dx", t, at, dx + dx_was, fine * (size + fabs(dx_was)));
        const double branch_was = c->accumulate_dbranch && c->dbranch ? was(&r->dbranch, t, at) : 0;
        if (c->dbranch)
            check(&r->dbranch, "dbranch", t, at, dx + branch_was, fine * (size + fabs(branch_was)));
        const int64_t k = param + j;
        s->dw[k] += dy * middle, s->dw_size[k] += fabs(dy * xhat) + fabs(dy) * either / fine;
        s->db[k] += dy, s->db_size[k] += fabs(dy);
    }
    free(v), free(f);
}

static void check_run(const run *r)
{
    const call_case *c = &r->c;
    const int64_t n = c->cols * (c->per_head ? c->heads : 1);
    const double fine = is_wide(c) ? 1e-13 : 1e-6;
    sums s = {zeros(n), zeros(n), zeros(n), zeros(n)};
    for (int64_t row = 0; row < c->tokens * c->heads; row++) check_row(r, row, &s);
    for (int64_t k = 0; k < n; k++) {
        const double dw = r->dw.t && c->accumulate_dw ? was(&r->dw, 0, k) : 0;
        const double db = r->db.t && c->accumulate_dw ? was(&r->db, 0, k) : 0;
        if (r->dw.t) check(&r->dw, "dw", 0, k, s.dw[k] + dw, fine * (s.dw_size[k] + fabs(dw)));
        if (r->db.t) check(&r->db, "db", 0, k, s.db[k] + db, fine * (s.db_size[k] + fabs(db)));
    }
    free(s.dw), free(s.dw_size), free(s.db), free(s.db_size);
}

static void free_run(run *r)
{
    /* Places that two share are in all[] twice. */
    array *all[] = {&r->x,  &r->residual, &r->weight,  &r->bias, &r->y,  &r->sum,       &r->rstd,
                    &r->dy, &r->dsum,     &r->dbranch, &r->dx,   &r->dw, &r->workspace, &r->db};
    enum { COUNT = sizeof all / sizeof *all };
    for (int i = 0; i < COUNT; i++) {
        bool shared = false;
        for (int k = 0; k < i; k++) shared |= all[k]->before == all[i]->before;
        free(all[i]->after);
        if (!shared) free(all[i]->before);
    }
    gd_context_free(r->ctx);
}

static void run_case(const call_case *c, uint64_t seed)
{
    for (int plain = 0; plain < 2; plain++) {
        run r = make_run(c, seed);
        if (plain && r.p.rows * r.p.cols == 0) c = NULL; /* no problem for a kernel */
        if (c) run_calls(&r, plain);
        if (c) check_run(&r);
        free_run(&r);
    }
}

/* ---- Tests -------------------------------------------------------------------------------- */

static call_case plain_case(int64_t rows, int64_t cols, gd_dtype dtype)
{
    return (call_case){.tokens = rows,
                       .heads = 1,
                       .cols = cols,
                       .dtype = dtype,
                       .y_dtype = dtype,
                       .weight_dtype = dtype,
                       .dweight_dtype = dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32};
}

TEST_CASE("calls", NULL, NULL)

/* As the two ops call them, and as mixed precision does. */
LOOP_TEST(test_sizes, GD_INT32)
{
    static const int64_t rows[] = {0, 1, 2, 5, 133}, cols[] = {1, 3, 64, 127, 130, 513, 1030};
    for (size_t i = 0; i < sizeof rows / 8; i++)
        for (size_t j = 0; j < sizeof cols / 8; j++) {
            call_case c = plain_case(rows[i], cols[j], (gd_dtype)_i);
            run_case(&c, i * 10 + j);
            c.residual = c.dsum = true;
            run_case(&c, i * 10 + j);
            c.dtype = GD_FLOAT32, c.dbranch = true;
            run_case(&c, i * 10 + j);
        }
}

/* Outputs so large that they are written past the caches. */
TEST(test_past_the_caches)
{
    call_case c = plain_case(1030, 4100, GD_FLOAT32);
    c.gap = 3;
    run_case(&c, 1);
}

LOOP_TEST(test_heads, 2)
{
    static const int64_t heads[] = {1, 3, 8, 32}, cols[] = {64, 80, 33, 130};
    for (size_t i = 0; i < sizeof heads / 8; i++)
        for (size_t j = 0; j < sizeof cols / 8; j++)
            for (int per_head = 0; per_head < 2; per_head++) {
                call_case c = plain_case(11, cols[j], _i ? GD_BFLOAT16 : GD_FLOAT32);
                c.heads = heads[i], c.per_head = per_head;
                run_case(&c, i * 10 + j);
                c.gap = 2 * c.heads * c.cols, c.bias = c.db = true;
                run_case(&c, i * 10 + j);
                c.residual = c.dsum = c.dbranch = c.round = true, c.y_dtype = GD_BFLOAT16;
                run_case(&c, i * 10 + j);
            }
}

TEST_CASE("random", NULL, NULL)

/* Whatever one might ask for. */
LOOP_TEST(test_random_calls, test_rounds(6))
{
    uint64_t seed = (uint64_t)_i + 1;
    for (int i = 0; i < 40; i++) {
        const gd_dtype dtype = (gd_dtype)random_below(&seed, 4);
        call_case c = plain_case(random_below(&seed, 200), random_size(&seed, 1, 600), dtype);
        if (random_chance(&seed, 0.3)) c.heads = random_size(&seed, 1, 5);
        if (random_chance(&seed, 0.5)) c.y_dtype = (gd_dtype)random_below(&seed, 4);
        if (random_chance(&seed, 0.5)) c.weight_dtype = (gd_dtype)random_below(&seed, 4);
        c.dweight_dtype = (gd_dtype)random_below(&seed, 4);
        bool *const options[] = {&c.per_head,
                                 &c.residual,
                                 &c.dsum,
                                 &c.bias,
                                 &c.db,
                                 &c.dbranch,
                                 &c.round,
                                 &c.accumulate_dx,
                                 &c.accumulate_dbranch,
                                 &c.in_place,
                                 &c.accumulate_dw,
                                 &c.flat_dy};
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            *options[k] = random_chance(&seed, 0.4);
        c.flat_dy = c.flat_dy && c.tokens > 0;
        c.no_weight = random_chance(&seed, 0.1), c.no_dx = random_chance(&seed, 0.1);
        c.no_dw = random_chance(&seed, 0.1);
        c.offset = random_chance(&seed, 0.3) ? 1 : 0;
        c.gap = random_chance(&seed, 0.5) ? random_size(&seed, 1, 70) : 0;
        c.shift = random_chance(&seed, 0.3) ? random_size(&seed, 1, 3) : 0;
        run_case(&c, random_bits(&seed));
    }
}

TEST_CASE("calls", NULL, NULL)

/* rstd is the forward's only output that may be left out, and changes no other. */
TEST(test_without_rstd)
{
    const call_case c = plain_case(9, 200, GD_FLOAT32);
    run r = make_run(&c, 3);
    gd_rms_norm_values v = values(&r);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 1), GD_OK);
    fetch(&r.y, false, "y");
    reset(&r.y);
    v.rstd = NULL;
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 1), GD_OK);
    fetch(&r.y, true, "y");
    free_run(&r);
}

/* Bad calls get their status and write nothing. */
TEST(test_bad_calls)
{
    call_case c = plain_case(6, 40, GD_FLOAT32);
    c.residual = c.dsum = c.dbranch = true, c.y_dtype = GD_BFLOAT16;
    run r = make_run(&c, 1);
    const gd_rms_norm_values v = values(&r);
    const gd_rms_norm_gradients g = gradients(&r);
    gd_rms_norm_problem bad[] = {r.p, r.p, r.p, r.p, r.p, r.p, r.p, r.p, r.p, r.p};
    bad[0].rows = -6, bad[1].cols = -1, bad[2].heads = -2, bad[3].heads = 4, bad[4].eps = -1;
    bad[5].dtype = bad[6].y_dtype = bad[7].weight_dtype = bad[8].dweight_dtype = GD_INT32;
    bad[9].eps = NAN;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(gd_cpu_rms_norm_forward(&bad[i], &v, 1), GD_ERROR_ARGUMENT);
        ck_assert_int_eq(gd_cpu_rms_norm_backward(&bad[i], &g, 1), GD_ERROR_ARGUMENT);
        ck_assert_uint_eq(gd_cpu_rms_norm_workspace(&bad[i]), 0);
    }
    ck_assert_uint_eq(gd_cpu_rms_norm_workspace(NULL), 0);
    gd_rms_norm_values bad_v[] = {v, v, v};
    bad_v[0].y = bad_v[2].sum = NULL, bad_v[1].x = NULL;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &bad_v[i], 1), GD_ERROR_ARGUMENT);
    gd_rms_norm_gradients bad_g[] = {g, g, g, g, g};
    bad_g[0].dy = bad_g[1].x = bad_g[2].rstd = NULL, bad_g[3].workspace = NULL;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(gd_cpu_rms_norm_backward(&r.p, &bad_g[i], 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(NULL, &v, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_forward(&r.p, &v, 0), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_backward(NULL, &g, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_backward(&r.p, NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_cpu_rms_norm_backward(&r.p, &g, 0), GD_ERROR_ARGUMENT);
    array *outputs[] = {&r.y, &r.sum, &r.rstd, &r.dx, &r.dbranch, &r.dw};
    for (int i = 0; i < 6; i++) {
        fetch(outputs[i], false, "output");
        for (int64_t k = 0; k < gd_tensor_count(outputs[i]->t); k++)
            ck_assert(isnan(outputs[i]->after[k]));
    }
    /* Nothing wanted, nothing asked for. */
    bad_g[4].dx = bad_g[4].dbranch = bad_g[4].dweight = bad_g[4].workspace = NULL;
    ck_assert_int_eq(gd_cpu_rms_norm_backward(&r.p, &bad_g[4], 1), GD_OK);
    free_run(&r);
}

CHECK_MAIN("rms_norm_kernels")
