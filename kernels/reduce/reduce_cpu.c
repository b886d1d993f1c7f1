/* reduce_cpu.c - the CPU kernels of sum, mean, max, logsumexp, var and std.
 *
 * Below, `result` is any array of the shape of y with the reduced axes kept at size 1. Over
 * the shape of x it is a broadcast operand: its strides along the reduced axes are 0. */
#include "reduce/reduce.h"
#include "reduce/reduction.h"
#include "vector_math.h"

/* The layout of a result, and n, the number of elements of x that make one element of it. */
typedef struct result_layout {
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int64_t count, n;
} result_layout;

static result_layout layout_of_result(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    result_layout layout = {.ndim = gd_tensor_ndim(x), .count = 1, .n = 1};
    const unsigned reduced = gd_reduced_axes(call->args, layout.ndim);
    for (int d = layout.ndim - 1; d >= 0; d--) {
        int64_t size = gd_tensor_shape(x)[d];
        layout.shape[d] = reduced >> d & 1 ? 1 : size;
        layout.strides[d] = gd_max64(layout.count, 1);
        layout.count *= layout.shape[d];
        layout.n *= reduced >> d & 1 ? size : 1;
    }
    return layout;
}

static void add_result(gd_walk *walk, const result_layout *result)
{
    gd_walk_add(walk, result->ndim, result->shape, result->strides);
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* The sum (or maximum) over the reduced axes of term(x, result), or of x alone. */
static const double *reduce(const gd_call *call, const result_layout *layout, gd_row_function *term,
                            const REAL *result, bool max)
{
    gd_reduction r = {.walk = gd_walk_like(call->input[0]), .term = term, .max = max};
    add_result(&r.walk, layout);
    gd_walk_add_tensor(&r.walk, call->input[0]);
    r.data[1] = gd_data(call->input[0]);
    if (result) add_result(&r.walk, layout);
    r.data[2] = result;
    return GD_REAL_NAME(gd_reduce)(call, &r);
}

gd_status GD_REAL_NAME(sum_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *sum = reduce(call, &layout, NULL, NULL, false);
    if (!sum) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)sum[i];
    return GD_OK;
}

gd_status GD_REAL_NAME(mean_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *sum = reduce(call, &layout, NULL, NULL, false);
    if (!sum) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)(sum[i] / (double)layout.n);
    return GD_OK;
}

gd_status GD_REAL_NAME(max_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *max = reduce(call, &layout, NULL, NULL, true);
    if (!max) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)max[i];
    return GD_OK;
}

static void exp_row(REAL *out, bool add, const REAL *x, const REAL *shift, const REAL *unused,
                    int64_t n)
{
    (void)unused;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = (add ? out[i] : 0) + GD_MATH(exp)(x[i] - shift[i]);
}

/* ln(sum e^x) = m + ln(sum e^(x - m)). With m = max x no term is above 1, and one is 1: neither
 * overflow nor ln(0). An infinite maximum cannot be subtracted (inf - inf is NaN); with m = 0
 * instead, the exponentials give the right infinity. */
gd_status GD_REAL_NAME(logsumexp_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *max = reduce(call, &layout, NULL, NULL, true);
    REAL *shift = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!max || !shift) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) shift[i] = isinf(max[i]) ? 0 : (REAL)max[i];
    const double *sum = reduce(call, &layout, exp_row, shift, false);
    if (!sum) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)(shift[i] + log(sum[i]));
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

enum { DX, SHARE, X, Y };

typedef struct spread_work {
    gd_rows rows;
    gd_row_function *row;
    REAL *dx;
    const REAL *share, *x, *y;
    bool add;
} spread_work;

static void spread_piece(const void *work, int64_t i)
{
    const spread_work *w = work;
    REAL buffer[3][GD_BLOCK];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *share_row = gd_piece_load(&p, SHARE, w->share, buffer[0]);
        const REAL *x_row = w->x ? gd_piece_load(&p, X, w->x, buffer[1]) : NULL;
        const REAL *y_row = w->y ? gd_piece_load(&p, Y, w->y, buffer[2]) : NULL;
        w->row(w->dx + gd_piece_offset(&p, DX), w->add, share_row, x_row, y_row, p.n);
    }
}

/* dx = row(share, x, y), where share [result] is repeated along the reduced axes; so is y. x and y
 * are NULL if the row does not use them. */
static void spread(const gd_call *call, const result_layout *layout, gd_row_function *row,
                   const REAL *share, const REAL *x, const REAL *y)
{
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, layout);
    if (x) gd_walk_add_tensor(&walk, call->input[0]);
    if (y) add_result(&walk, layout);
    const spread_work w = {gd_rows_of(walk),   row, gd_data(call->dinput[0]), share, x, y,
                           call->accumulate[0]};
    gd_for_each(gd_threads_for(call->threads, gd_walk_count(&walk)), w.rows.pieces, spread_piece,
                &w);
}

static void repeat_row(REAL *dx, bool add, const REAL *share, const REAL *x, const REAL *y,
                       int64_t n)
{
    (void)x, (void)y;
    for (int64_t i = 0; i < n; i++) dx[i] = (add ? dx[i] : 0) + share[i]; /* [sum] */
}

/* y = x_1 + ... + x_n: each x_j has the gradient dy. */
gd_status GD_REAL_NAME(sum_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    spread(call, &layout, repeat_row, gd_data(call->doutput[0]), NULL, NULL);
    return GD_OK;
}

/* y = (x_1 + ... + x_n) / n: each x_j has the gradient dy / n. */
gd_status GD_REAL_NAME(mean_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *dy = gd_data(call->doutput[0]);
    REAL *share = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!share) return gd_error_status(call->context);
    /* [mean] */
    for (int64_t i = 0; i < layout.count; i++) share[i] = (REAL)(dy[i] / (double)layout.n);
    spread(call, &layout, repeat_row, share, NULL, NULL);
    return GD_OK;
}

/* A NaN result came from the NaN elements. */
static inline bool same(REAL x, REAL y)
{
    return x == y || (x != x && y != y);
}

static void same_row(REAL *out, bool add, const REAL *x, const REAL *y, const REAL *unused,
                     int64_t n)
{
    (void)unused;
    for (int64_t i = 0; i < n; i++) out[i] = (add ? out[i] : 0) + (same(x[i], y[i]) ? 1 : 0);
}

static void share_row(REAL *dx, bool add, const REAL *share, const REAL *x, const REAL *y,
                      int64_t n)
{
    /* [max] */
    for (int64_t i = 0; i < n; i++) dx[i] = (add ? dx[i] : 0) + (same(x[i], y[i]) ? share[i] : 0);
}

/* The k elements that are equal to the maximum share its gradient: dy / k each, the others 0. */
gd_status GD_REAL_NAME(max_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *x = gd_data(call->input[0]), *y = gd_data(call->output[0]);
    const REAL *dy = gd_data(call->doutput[0]);
    const double *k = reduce(call, &layout, same_row, y, false);
    REAL *share = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!k || !share) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) share[i] = (REAL)(dy[i] / k[i]); /* [max share] */
    spread(call, &layout, share_row, share, x, y);
    return GD_OK;
}

static void softmax_row(REAL *dx, bool add, const REAL *dy, const REAL *x, const REAL *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL weight = GD_MATH(exp)(x[i] - y[i]); /* [logsumexp] */
        dx[i] = (add ? dx[i] : 0) + (y[i] == -(REAL)INFINITY ? 0 : dy[i] * weight);
    }
}

/* dy/dx_j = e^(x_j) / sum e^x = e^(x_j - y): the softmax. If y is -inf all x are, and none has an
 * influence: 0, not the NaN of inf - inf. */
gd_status GD_REAL_NAME(logsumexp_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *x = gd_data(call->input[0]), *y = gd_data(call->output[0]);
    spread(call, &layout, softmax_row, gd_data(call->doutput[0]), x, y);
    return GD_OK;
}

/* ---- var and std -------------------------------------------------------------------------- */

/* NULL if save i is not needed. */
static double *saved(const gd_call *call, int i)
{
    return call->save[i] ? gd_data(call->save[i]) : NULL;
}

/* The mean and the squares around it in double, in which those of float neither overflow nor
 * vanish. */
static gd_status variance(const gd_call *call, bool root)
{
    const result_layout layout = layout_of_result(call);
    double *mean = saved(call, SAVE_MEAN), *deviation = saved(call, SAVE_DEVIATION);
    if (!mean) mean = gd_call_scratch(call, (size_t)layout.count * sizeof *mean);
    const double *sum = reduce(call, &layout, NULL, NULL, false);
    if (!mean || !sum) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) mean[i] = sum[i] / (double)layout.n;

    gd_reduction r = {.walk = gd_walk_like(call->input[0]), .centre = mean};
    add_result(&r.walk, &layout);
    gd_walk_add_tensor(&r.walk, call->input[0]);
    r.data[1] = gd_data(call->input[0]);
    const double *squares = GD_REAL_NAME(gd_reduce)(call, &r);
    if (!squares) return gd_error_status(call->context);
    const double divisor = gd_variance_divisor(call->args, layout.n);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) {
        const double value = root ? sqrt(squares[i] / divisor) : squares[i] / divisor;
        if (root && deviation) deviation[i] = value;
        y[i] = (REAL)value;
    }
    return GD_OK;
}

typedef struct distance_work {
    gd_rows rows;
    REAL *dx;
    const REAL *x;
    const double *share, *mean; /* of a result */
    bool add;
} distance_work;

static void distance_piece(const void *work, int64_t i)
{
    enum { RESULT = 1, FROM };
    const distance_work *w = work;
    const double *share = w->share, *mean = w->mean;
    const bool add = w->add;
    REAL buffer[GD_BLOCK];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *x_row = gd_piece_load(&p, FROM, w->x, buffer);
        REAL *dx_row = w->dx + gd_piece_offset(&p, DX);
        const int64_t at = gd_piece_offset(&p, RESULT), step = w->rows.step[RESULT];
        for (int64_t j = 0; j < p.n; j++) {
            const int64_t r = at + j * step;
            const double d = (double)x_row[j] - mean[r];              /* [distance] */
            dx_row[j] = (REAL)((add ? dx_row[j] : 0) + share[r] * d); /* [var] [std] */
        }
    }
}

/* dx_j = dy dy/dx_j: each x_j moves y by its distance from the mean, which itself moves nothing,
 * since the distances add up to 0. Equal elements have no distances: 0, not the NaN of 0 / 0. */
static gd_status variance_backward(const gd_call *call, bool root)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const double divisor = gd_variance_divisor(call->args, layout.n);
    const double *mean = saved(call, SAVE_MEAN), *deviation = saved(call, SAVE_DEVIATION);
    const REAL *dy = gd_data(call->doutput[0]);
    double *share = gd_call_scratch(call, (size_t)layout.count * sizeof *share);
    if (!share) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) {
        if (root)
            share[i] = deviation[i] == 0 ? 0 : dy[i] / (divisor * deviation[i]); /* [std_factor] */
        else
            share[i] = dy[i] * (2 / divisor); /* [var_factor] */
    }
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, &layout);
    gd_walk_add_tensor(&walk, call->input[0]);
    const distance_work w = {
        gd_rows_of(walk),   gd_data(call->dinput[0]), gd_data(call->input[0]), share, mean,
        call->accumulate[0]};
    gd_for_each(gd_threads_for(call->threads, gd_walk_count(&walk)), w.rows.pieces, distance_piece,
                &w);
    return GD_OK;
}

gd_status GD_REAL_NAME(var_forward)(const gd_call *call)
{
    return variance(call, false);
}

gd_status GD_REAL_NAME(var_backward)(const gd_call *call)
{
    return variance_backward(call, false);
}

gd_status GD_REAL_NAME(std_forward)(const gd_call *call)
{
    return variance(call, true);
}

gd_status GD_REAL_NAME(std_backward)(const gd_call *call)
{
    return variance_backward(call, true);
}
