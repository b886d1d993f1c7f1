/* test_calls.h - a call of gradus/kernels.h with all its tensors, and its comparison with the
 * formulas, written out in double: for the CPU (test_rms_norm_kernels.c) and for CUDA
 * (cuda_rms_norm.cu), so in C and in C++. */
#ifndef GRADUS_TEST_CALLS_H
#define GRADUS_TEST_CALLS_H

#include <stdio.h>

#include "gradus/kernels.h"
#include "numbers.h"

/* ---- A call ------------------------------------------------------------------------------- */

typedef struct call_case {
    int64_t tokens, heads, cols; /* x [tokens, heads, cols] */
    gd_dtype dtype, y_dtype, weight_dtype, dweight_dtype;
    bool per_head, residual, dsum, no_weight, bias;
    bool no_dx, no_dw, db, dbranch; /* what is wanted */
    bool accumulate_dx, accumulate_dbranch, accumulate_dw, round, in_place, flat_dy;
    double offset;
    int64_t gap;  /* at least so many elements between tokens, or none */
    unsigned odd; /* bit k: tensor k begins `shift` elements behind an aligned address */
    int64_t shift;
    int64_t ahead; /* tokens of zeros before these */
} call_case;

static inline call_case plain_case(int64_t tokens, int64_t cols, gd_dtype dtype)
{
    call_case c;
    memset(&c, 0, sizeof c);
    c.tokens = tokens, c.heads = 1, c.cols = cols, c.shift = 1;
    c.dtype = c.y_dtype = c.weight_dtype = dtype;
    c.dweight_dtype = dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
    return c;
}

/* Whatever one might ask for; the sizes are left as they are. */
static inline void random_options(call_case *c, uint64_t *seed)
{
    gd_dtype *const dtypes[] = {&c->y_dtype, &c->weight_dtype, &c->dweight_dtype};
    for (int k = 0; k < 3; k++)
        if (random_chance(seed, 0.5)) *dtypes[k] = (gd_dtype)random_below(seed, 4);
    bool *const options[] = {&c->per_head,
                             &c->residual,
                             &c->dsum,
                             &c->bias,
                             &c->db,
                             &c->dbranch,
                             &c->round,
                             &c->accumulate_dx,
                             &c->accumulate_dbranch,
                             &c->in_place,
                             &c->accumulate_dw,
                             &c->flat_dy,
                             &c->no_weight,
                             &c->no_dx,
                             &c->no_dw};
    for (int k = 0; k < 15; k++) *options[k] = random_chance(seed, k < 11 ? 0.4 : 0.1);
    c->flat_dy = c->flat_dy && c->tokens > 0;
    c->offset = random_chance(seed, 0.3) ? 1 : 0;
    c->gap = random_chance(seed, 0.5) ? random_size(seed, 1, 70) : 0;
    if (random_chance(seed, 0.5)) c->gap *= 8; /* so that rows stay aligned */
    c->shift = random_size(seed, 1, 3);
    c->odd = random_chance(seed, 0.3) ? (unsigned)random_bits(seed) : 0;
}

/* Whether sums are in float64. */
static inline bool is_wide(const call_case *c)
{
    return c->dtype == GD_FLOAT64 || c->y_dtype == GD_FLOAT64 || c->weight_dtype == GD_FLOAT64;
}

static inline gd_rms_norm_problem problem_of(const call_case *c)
{
    gd_rms_norm_problem p;
    memset(&p, 0, sizeof p);
    p.rows = (c->ahead + c->tokens) * c->heads, p.cols = c->cols, p.heads = c->heads;
    p.weight_per_head = c->per_head, p.dtype = c->dtype, p.y_dtype = c->y_dtype;
    p.weight_dtype = c->weight_dtype, p.dweight_dtype = c->dweight_dtype, p.eps = 1e-5;
    p.offset = c->offset, p.round_before_weight = c->round;
    return p;
}

/* ---- Its tensors -------------------------------------------------------------------------- */

/* The forward's first, inputs before outputs, then the backward's. */
enum { X, RESIDUAL, WEIGHT, BIAS, Y, SUM, RSTD, DY, DSUM, DX, DBRANCH, DW, DB, WORKSPACE, TENSORS };
static const char *const tensor_names[] = {"x",       "residual", "weight", "bias",     "y",
                                           "sum",     "rstd",     "dy",     "dsum",     "dx",
                                           "dbranch", "dw",       "db",     "workspace"};

/* [rows, cols], `stride` from row to row, `shift` elements behind an aligned address. Where no
 * number is, all bits are set, which is NaN in every dtype. */
typedef struct call_tensor {
    bool present;
    gd_dtype dtype;
    int64_t rows, cols;
    double mean, deviation; /* of the numbers before the call; 0: all poison */
    int64_t stride, shift;
    const char *before, *after; /* what is in memory, from the first number on */
} call_tensor;

static inline call_tensor tensor_of(const call_case *c, int which, size_t workspace)
{
    const int64_t T = c->tokens, W = c->heads * c->cols, sums = c->per_head ? W : c->cols;
    const gd_dtype S = c->dtype, B = c->y_dtype, P = c->weight_dtype, D = c->dweight_dtype;
    const bool dx = c->accumulate_dx && !c->in_place, dw = c->accumulate_dw;
    const gd_dtype wide = is_wide(c) ? GD_FLOAT64 : GD_FLOAT32;
#define TENSOR(...)                   \
    {                                 \
        __VA_ARGS__, 0, 0, NULL, NULL \
    }
    const call_tensor all[] = {
        TENSOR(true, c->residual ? B : S, T, W, 0.3, 1.7),
        TENSOR(c->residual, S, T, W, -0.2, 1.1),
        TENSOR(!c->no_weight, P, 1, sums, 0.7, 0.5),
        TENSOR(c->bias, P, 1, sums, 0, 1),
        TENSOR(true, B, T, W, 0, 0),
        TENSOR(c->residual, S, T, W, 0, 0),
        TENSOR(true, wide, T * c->heads, 1, 0, 0),
        TENSOR(true, B, c->flat_dy ? 1 : T, W, 0.1, 1),
        TENSOR(c->dsum, S, T, W, 0.05, 0.8),
        TENSOR(!c->no_dx, S, T, W, 0.2, dx ? 0.9 : 0),
        TENSOR(c->dbranch, B, T, W, -0.1, c->accumulate_dbranch ? 0.5 : 0),
        TENSOR(!c->no_dw, D, 1, sums, 2.5, dw ? 0.5 : 0),
        TENSOR(c->db, D, 1, sums, -1.5, dw ? 0.5 : 0),
        TENSOR(true, GD_FLOAT32, 1, (int64_t)(workspace / 4), 0, 0),
    };
#undef TENSOR
    call_tensor t = all[which];
    const bool rows = which < DW && which != WEIGHT && which != BIAS && which != RSTD;
    t.stride = t.cols + (rows ? c->gap * (1 + which % 3) : 0);
    t.shift = c->odd >> which & 1 && which != RSTD && which != WORKSPACE ? c->shift : 0;
    if (!t.present) t.rows = 0;
    return t;
}

/* The tensor in whose memory this one is: itself, or what it overwrites. */
static inline int place_of(const call_case *c, int which)
{
    const bool same = c->dtype == c->y_dtype;
    if (!c->in_place) return which;
    if (which == Y && (same || c->residual)) return X;
    if (which == SUM && c->residual) return RESIDUAL;
    if (which == DX && (c->dsum || (same && !c->flat_dy))) return c->dsum ? DSUM : DY;
    return which;
}

/* Whether everything outside the rows is as it was; the memory begins `first` bytes before them. */
static inline bool edges_untouched(const call_tensor *t, const char *before, const char *after,
                                   size_t first, size_t bytes)
{
    const size_t size = gd_dtype_size(t->dtype);
    size_t from = 0;
    for (int64_t i = 0; i <= t->rows; i++) {
        const size_t to = i < t->rows ? first + (size_t)(i * t->stride) * size : bytes;
        if (memcmp(before + from, after + from, to - from)) return false;
        from = to + (size_t)t->cols * size;
    }
    return true;
}

static inline gd_rms_norm_values values_of_call(void *const *data, const call_tensor *t)
{
    gd_rms_norm_values v;
    memset(&v, 0, sizeof v);
    v.y = data[Y], v.y_stride = t[Y].stride, v.rstd = data[RSTD];
    v.x = data[X], v.x_stride = t[X].stride;
    v.residual = data[RESIDUAL], v.residual_stride = t[RESIDUAL].stride;
    v.sum = data[SUM], v.sum_stride = t[SUM].stride;
    v.weight = data[WEIGHT], v.bias = data[BIAS];
    return v;
}

static inline gd_rms_norm_gradients gradients_of_call(const call_case *c, void *const *data,
                                                      const call_tensor *t)
{
    const int normalised = c->residual ? SUM : X;
    gd_rms_norm_gradients g;
    memset(&g, 0, sizeof g);
    g.dx = data[DX], g.dx_stride = t[DX].stride;
    g.accumulate_dx = c->accumulate_dx && !c->in_place;
    g.dbranch = data[DBRANCH], g.dbranch_stride = t[DBRANCH].stride;
    g.accumulate_dbranch = c->accumulate_dbranch;
    g.dweight = data[DW], g.dbias = data[DB];
    g.accumulate_dweight = g.accumulate_dbias = c->accumulate_dw;
    g.dy = data[DY], g.dy_stride = c->flat_dy ? 0 : t[DY].stride;
    g.dsum = data[DSUM], g.dsum_stride = t[DSUM].stride;
    g.x = data[normalised], g.x_stride = t[normalised].stride;
    g.rstd = data[RSTD], g.weight = data[WEIGHT], g.workspace = data[WORKSPACE];
    return g;
}

/* What the calls say that are none, of a case with a residual: NULL, or what is wrong. */
typedef gd_status forward_call(const gd_rms_norm_problem *, const gd_rms_norm_values *);
typedef gd_status backward_call(const gd_rms_norm_problem *, const gd_rms_norm_gradients *);
typedef size_t workspace_call(const gd_rms_norm_problem *);
static inline const char *wrong_status(const call_case *c, void *const *data, const call_tensor *t,
                                       forward_call *forward, backward_call *backward,
                                       workspace_call *workspace)
{
    const gd_rms_norm_values v = values_of_call(data, t);
    const gd_rms_norm_gradients g = gradients_of_call(c, data, t);
    const gd_rms_norm_problem good = problem_of(c);
    for (int i = 0; i < 10; i++) {
        gd_rms_norm_problem p = good;
        gd_dtype *const dtypes[] = {&p.dtype, &p.y_dtype, &p.weight_dtype, &p.dweight_dtype};
        int64_t *const sizes[] = {&p.rows, &p.cols, &p.heads};
        if (i < 3) *sizes[i] = -6;
        if (i == 3) p.heads = 4; /* of 6 rows */
        if (i > 3 && i < 8) *dtypes[i - 4] = GD_INT32;
        if (i > 7) p.eps = i == 8 ? -1 : NAN;
        if (forward(&p, &v) != GD_ERROR_ARGUMENT || backward(&p, &g) != GD_ERROR_ARGUMENT ||
            workspace(&p) != 0)
            return "what is no problem";
    }
    if (forward(NULL, &v) != GD_ERROR_ARGUMENT || forward(&good, NULL) != GD_ERROR_ARGUMENT ||
        backward(NULL, &g) != GD_ERROR_ARGUMENT || backward(&good, NULL) != GD_ERROR_ARGUMENT ||
        workspace(NULL) != 0)
        return "nothing";
    static const int needed[] = {Y, X, SUM, DY, SUM, RSTD, WORKSPACE};
    for (int i = 0; i < 7; i++) {
        void *without[TENSORS];
        memcpy(without, data, sizeof without);
        without[needed[i]] = NULL;
        const gd_rms_norm_values less = values_of_call(without, t);
        const gd_rms_norm_gradients fewer = gradients_of_call(c, without, t);
        if ((i < 3 ? forward(&good, &less) : backward(&good, &fewer)) != GD_ERROR_ARGUMENT)
            return tensor_names[needed[i]];
    }
    gd_rms_norm_gradients unwanted = g;
    unwanted.dx = unwanted.dbranch = unwanted.dweight = unwanted.dbias = unwanted.workspace = NULL;
    return backward(&good, &unwanted) == GD_OK ? NULL : "nothing wanted";
}

/* ---- The reference ------------------------------------------------------------------------ */

/* Says what is wrong, and to what call. */
static void wrong_number(const call_case *c, const char *text);

static inline double was(const call_tensor *t, int64_t i, int64_t j)
{
    return stored_number(t->before, t->dtype, i * t->stride + j);
}

/* What a result has before the call, if the call adds to it. */
static inline double added(const call_tensor *t, int64_t i, int64_t j)
{
    return t->present && t->deviation > 0 ? was(t, i, j) : 0;
}

/* The result is within `error` of want, but for the rounding to its dtype. */
static inline void check_number(const call_case *c, const call_tensor *all, int which, int64_t i,
                                int64_t j, double want, double error)
{
    const call_tensor *const t = &all[which];
    if (!t->present) return;
    const double got = stored_number(t->after, t->dtype, i * t->stride + j);
    const double unit = rounding_of(t->dtype);
    const double allowed = error * (1 + unit) + unit * fabs(want) + ulp_of(0, t->dtype);
    if (fabs(got - want) <= allowed) return;
    char text[200];
    snprintf(text, sizeof text, "%s[%lld, %lld] is %.9g, wanted %.9g (allowed %.3g)",
             tensor_names[which], (long long)i, (long long)j, got, want, allowed);
    wrong_number(c, text);
}

/* What is summed up over the rows, and the sizes of its terms. */
typedef struct row_sums {
    double dw, dw_size, db, db_size;
} row_sums;

/* Compares a row's results; `fine`: the relative error of what is computed in float32. */
static inline void check_row(const call_case *c, const call_tensor *t, int64_t row, double fine,
                             row_sums *sums)
{
    const int64_t N = c->cols, token = row / c->heads, from = row % c->heads * N;
    const int64_t param = c->per_head ? from : 0, dy_row = c->flat_dy ? 0 : token;
    if (is_wide(c)) fine = 1e-13;
    double *const v = (double *)malloc((size_t)(3 * N + 1) * sizeof *v), *const f = v + N;
    double *const d = f + N, squares = 0, dot = 0, dot_size = 0;
    for (int64_t j = 0; j < N; j++) {
        v[j] = c->residual ? stored_number(t[SUM].after, c->dtype, token * t[SUM].stride + from + j)
                           : was(&t[X], token, from + j);
        f[j] = c->no_weight ? 1 : c->offset + was(&t[WEIGHT], 0, param + j);
        d[j] = was(&t[DY], dy_row, from + j);
        squares += v[j] * v[j];
    }
    const double rstd = 1 / sqrt(squares / (double)N + 1e-5);
    check_number(c, t, RSTD, row, 0, rstd, fine * rstd);
    for (int64_t j = 0; j < N; j++) {
        const double term = d[j] * f[j] * v[j] * rstd / (double)N;
        dot += term, dot_size += fabs(term);
    }
    for (int64_t j = 0; j < N; j++) {
        const int64_t at = from + j;
        if (c->residual) {
            const double x = was(&t[X], token, at), residual = was(&t[RESIDUAL], token, at);
            check_number(c, t, SUM, token, at, x + residual, fine / 8 * (fabs(x) + fabs(residual)));
        }
        /* xhat is not exact before it is rounded, which may send it either way. */
        const double xhat = v[j] * rstd;
        const double low = c->round ? rounded(xhat * (1 - fine), c->y_dtype) : xhat;
        const double high = c->round ? rounded(xhat * (1 + fine), c->y_dtype) : xhat;
        const double middle = (low + high) / 2, either = fabs(high - low) / 2;
        const double bias = c->bias ? was(&t[BIAS], 0, param + j) : 0;
        check_number(c, t, Y, token, at, middle * f[j] + bias,
                     fine * (fabs(xhat * f[j]) + fabs(bias)) + either * fabs(f[j]));

        const double past = c->dsum ? was(&t[DSUM], token, at) : 0;
        const double dx = rstd * (d[j] * f[j] - xhat * dot) + past;
        const double size = rstd * (fabs(d[j] * f[j]) + fabs(xhat) * dot_size) + fabs(past);
        for (int which = DX; which <= DBRANCH; which++) {
            const double old = added(&t[which], token, at);
            check_number(c, t, which, token, at, dx + old, fine * (size + fabs(old)));
        }
        row_sums *const s = &sums[param + j];
        s->dw += d[j] * middle, s->dw_size += fabs(d[j] * xhat) + fabs(d[j]) * either / fine;
        s->db += d[j], s->db_size += fabs(d[j]);
    }
    free(v);
}

/* Compares the sums over all rows. */
static inline void check_sums(const call_case *c, const call_tensor *t, double fine,
                              const row_sums *sums)
{
    if (is_wide(c)) fine = 1e-13;
    for (int64_t k = 0; k < c->cols * (c->per_head ? c->heads : 1); k++) {
        const double dw = added(&t[DW], 0, k), db = added(&t[DB], 0, k);
        check_number(c, t, DW, 0, k, sums[k].dw + dw, fine * (sums[k].dw_size + fabs(dw)));
        check_number(c, t, DB, 0, k, sums[k].db + db, fine * (sums[k].db_size + fabs(db)));
    }
}

#endif
