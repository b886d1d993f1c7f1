/* reduce_cpu.c - the CPU kernels of sum, mean, max, logsumexp, var, std, prod, norm, any and all.
 *
 * Below, `result` is any array of the shape of y with the reduced axes kept at size 1. Over
 * the shape of x it is a broadcast operand: its strides along the reduced axes are 0. */
#include "reduce/formula.h"
#include "reduce/reduce.h"
#include "reduce/reduction.h"

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
    REAL buffer[3][GD_PIECE];
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
    for (int64_t i = 0; i < layout.count; i++)
        share[i] = (REAL)mean_share((double)dy[i], (double)layout.n);
    spread(call, &layout, repeat_row, share, NULL, NULL);
    return GD_OK;
}

static void same_row(REAL *out, bool add, const REAL *x, const REAL *y, const REAL *unused,
                     int64_t n)
{
    (void)unused;
    for (int64_t i = 0; i < n; i++) out[i] = (add ? out[i] : 0) + (reduce_same(x[i], y[i]) ? 1 : 0);
}

static void share_row(REAL *dx, bool add, const REAL *share, const REAL *x, const REAL *y,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = (add ? dx[i] : 0) + max_dx(share[i], x[i], y[i]);
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
    for (int64_t i = 0; i < layout.count; i++) share[i] = (REAL)max_share((double)dy[i], k[i]);
    spread(call, &layout, share_row, share, x, y);
    return GD_OK;
}

static void softmax_row(REAL *dx, bool add, const REAL *dy, const REAL *x, const REAL *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = (add ? dx[i] : 0) + logsumexp_dx(dy[i], x[i], y[i]);
}

/* dy/dx_j = e^(x_j) / sum e^x = e^(x_j - y): the softmax. */
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
    REAL buffer[GD_PIECE];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *x_row = gd_piece_load(&p, FROM, w->x, buffer);
        REAL *dx_row = w->dx + gd_piece_offset(&p, DX);
        const int64_t at = gd_piece_offset(&p, RESULT), step = w->rows.step[RESULT];
        for (int64_t j = 0; j < p.n; j++) {
            const int64_t r = at + j * step;
            const double d = var_distance((double)x_row[j], mean[r]);
            GD_STEP("d", d);
            dx_row[j] = (REAL)((add ? (double)dx_row[j] : 0) + var_dx(share[r], d));
        }
    }
}

/* dx_j = dy dy/dx_j: each x_j moves y by its distance from the mean, which itself moves nothing,
 * since the distances add up to 0. */
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
        share[i] = root ? std_share((double)dy[i], divisor, deviation[i])
                        : var_share((double)dy[i], divisor);
        GD_STEP("share", share[i]);
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

/* ---- prod --------------------------------------------------------------------------------- */

/* number 2^exponent; beyond 5000 that is 0 or infinite anyway. */
static double scaled(double number, double exponent)
{
    return ldexp(number, (int)fmax(-5000, fmin(5000, exponent)));
}

gd_status GD_REAL_NAME(prod_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    gd_reduction r = {.walk = gd_walk_like(call->input[0]), .product = true};
    add_result(&r.walk, &layout);
    gd_walk_add_tensor(&r.walk, call->input[0]);
    r.data[1] = gd_data(call->input[0]);
    const double *product = GD_REAL_NAME(gd_reduce)(call, &r);
    if (!product) return gd_error_status(call->context);
    const int64_t n = layout.count;
    for (int k = 0; k < PRODUCT_SAVES; k++)
        if (saved(call, k)) memcpy(saved(call, k), product + k * n, (size_t)n * sizeof *product);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < n; i++) {
        const bool zero = product[SAVE_ZEROS * n + i] > 0;
        y[i] = (REAL)(zero ? 0 * product[i] : scaled(product[i], product[SAVE_EXPONENT * n + i]));
        GD_STEP("P", scaled(product[i], product[SAVE_EXPONENT * n + i]));
    }
    return GD_OK;
}

typedef struct others_work {
    gd_rows rows;
    REAL *dx;
    const REAL *dy, *x;
    const double *number, *exponent, *zeros;
    bool add;
} others_work;

/* dy times the product of all elements of the group but x. */
static double by_others(const others_work *w, int64_t result, double x)
{
    const double product = (double)w->dy[result] * w->number[result];
    const double zeros = w->zeros[result];
    int own = 0;
    if (prod_of_others_is_zero(zeros, x)) return 0 * product;
    if (zeros == 1) x = 1;
    if (isfinite(x)) x = frexp(x, &own);
    return scaled(prod_dx(product, x), w->exponent[result] - own);
}

static void others_piece(const void *work, int64_t i)
{
    enum { RESULT = 1, FROM };
    const others_work *w = work;
    const bool add = w->add;
    REAL buffer[GD_PIECE];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *x_row = gd_piece_load(&p, FROM, w->x, buffer);
        REAL *dx_row = w->dx + gd_piece_offset(&p, DX);
        const int64_t at = gd_piece_offset(&p, RESULT), step = w->rows.step[RESULT];
        for (int64_t j = 0; j < p.n; j++) {
            const double value = by_others(w, at + j * step, (double)x_row[j]);
            dx_row[j] = (REAL)((add ? (double)dx_row[j] : 0) + value);
        }
    }
}

gd_status GD_REAL_NAME(prod_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, &layout);
    gd_walk_add_tensor(&walk, call->input[0]);
    const others_work w = {gd_rows_of(walk),          gd_data(call->dinput[0]),
                           gd_data(call->doutput[0]), gd_data(call->input[0]),
                           saved(call, SAVE_NUMBER),  saved(call, SAVE_EXPONENT),
                           saved(call, SAVE_ZEROS),   call->accumulate[0]};
    gd_for_each(gd_threads_for(call->threads, gd_walk_count(&walk)), w.rows.pieces, others_piece,
                &w);
    return GD_OK;
}

/* ---- norm --------------------------------------------------------------------------------- */

static void size_row(REAL *out, bool add, const REAL *x, const REAL *b, const REAL *c, int64_t n)
{
    (void)add, (void)b, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = GD_MATH(fabs)(x[i]);
}

static void minus_size_row(REAL *out, bool add, const REAL *x, const REAL *b, const REAL *c,
                           int64_t n)
{
    (void)add, (void)b, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = -GD_MATH(fabs)(x[i]);
}

static void not_zero_row(REAL *out, bool add, const REAL *x, const REAL *b, const REAL *c,
                         int64_t n)
{
    (void)add, (void)b, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] != 0;
}

static void scaled_row(REAL *out, bool add, const REAL *x, const REAL *scale, const REAL *c,
                       int64_t n)
{
    (void)add, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = GD_MATH(fabs)(x[i]) * scale[i];
}

static void square_row(REAL *out, bool add, const REAL *x, const REAL *scale, const REAL *c,
                       int64_t n)
{
    (void)add, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] * scale[i]) * (x[i] * scale[i]);
}

/* (a / b)^p of a and b of at least 0, also where the quotient is beyond the range of its type. */
static REAL power_of_quotient(REAL a, REAL b, REAL p)
{
    const REAL least = sizeof(REAL) == sizeof(double) ? (REAL)DBL_MIN : FLT_MIN;
    const REAL quotient = a / b, most = 1 / least;
    if (!(quotient < least || quotient > most)) return GD_MATH(pow)(quotient, p);
    const REAL quarter = GD_MATH(sqrt)(GD_MATH(sqrt)(a)) / GD_MATH(sqrt)(GD_MATH(sqrt)(b));
    REAL power = GD_MATH(pow)(quarter, p);
    power *= power;
    return power * power;
}

static void power_row(REAL *out, bool add, const REAL *x, const REAL *extreme, const REAL *p,
                      int64_t n)
{
    (void)add;
    for (int64_t i = 0; i < n; i++)
        out[i] = power_of_quotient(GD_MATH(fabs)(x[i]), extreme[i], p[i]);
}

/* A power of two that brings `size` to between 0.5 and 1, if that is a number other than 0; 0 for inf. */
static double scale_of(double size)
{
    const int most = sizeof(REAL) == sizeof(double) ? 1022 : 126;
    int exponent = 0;
    if (isinf(size)) return 0;
    if (!isnan(size)) frexp(size, &exponent);
    return ldexp(1, exponent > most ? -most : exponent < -most ? most : -exponent);
}

/* With m the largest |x| of a group (for p < 0 the smallest)
 *     y = m s^(1/p),  dy/dm = s^(1/p - 1),  s = sum of (|x| / m)^p:
 * no power is above 1, and s is between 1 and n. If m is 0 or not finite, so is y. For p = 1 and 2, m is
 * a power of two near the largest |x|, by whose inverse x is multiplied. `unit` is m or that inverse. */
static gd_status norm_of_powers(const gd_call *call, const result_layout *layout, double p)
{
    const bool whole = p == 1 || p == 2;
    REAL *y = gd_data(call->output[0]), *unit = gd_data(call->save[SAVE_UNIT]);
    REAL *slope = gd_data(call->save[SAVE_SLOPE]);
    const REAL exponent = (REAL)p;
    gd_row_function *const term = p == 1 ? scaled_row : p == 2 ? square_row : power_row;
    const double *size = reduce(call, layout, p < 0 ? minus_size_row : size_row, NULL, true);
    if (!unit) unit = gd_call_scratch(call, (size_t)layout->count * sizeof(REAL));
    if (!size || !unit) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout->count; i++)
        unit[i] = (REAL)(whole ? scale_of(size[i]) : fabs(size[i]));

    gd_reduction r = {.walk = gd_walk_like(call->input[0]), .term = term};
    add_result(&r.walk, layout);
    gd_walk_add_tensor(&r.walk, call->input[0]);
    add_result(&r.walk, layout);
    gd_walk_add(&r.walk, 0, NULL, NULL); /* p, the same everywhere */
    r.data[1] = gd_data(call->input[0]), r.data[2] = unit, r.data[3] = &exponent;
    const double *sum = GD_REAL_NAME(gd_reduce)(call, &r);
    if (!sum) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout->count; i++) {
        const double s = sum[i], m = layout->n || p < 0 ? fabs(size[i]) : 0;
        const bool number = m > 0 && !isinf(m);
        const double root = p == 1 ? s : p == 2 ? sqrt(s) : pow(s, 1 / p);
        y[i] = (REAL)(number ? whole ? root / (double)unit[i] : root * m : m);
        if (slope) slope[i] = (REAL)(p == 1 || isinf(m) ? 1 : number ? pow(s, 1 / p - 1) : m);
    }
    return GD_OK;
}

static double p_of(const gd_call *call)
{
    return gd_option_of_dtype(call->dtype, ((const gd_norm_args *)call->args)->p);
}

gd_status GD_REAL_NAME(norm_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double p = p_of(call);
    REAL *y = gd_data(call->output[0]), *unit = gd_data(call->save[SAVE_UNIT]);
    if (p != 0 && !isinf(p)) return norm_of_powers(call, &layout, p);
    gd_row_function *const term = p == 0 ? not_zero_row : p < 0 ? minus_size_row : size_row;
    const double *result = reduce(call, &layout, term, NULL, p != 0);
    if (!result) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++)
        y[i] = (REAL)(p < 0 ? -result[i] : isinf(p) && layout.n == 0 ? 0 : result[i]);
    if (unit) memcpy(unit, y, (size_t)layout.count * sizeof *y);
    return GD_OK;
}

typedef struct norm_work {
    gd_rows rows;
    REAL *dx;
    const REAL *share, *x, *unit;
    REAL p;
    bool add;
} norm_work;

/* dy/dx over dy/dm */
static REAL norm_slope(REAL x, REAL unit, REAL p)
{
    if (norm_is_flat(x, p)) return 0;
    if (isinf(p)) return norm_max_dx(x, unit);
    if (p == 1) return reduce_sign(x);
    if (p == 2) return x * unit;
    return norm_dx(x, power_of_quotient(GD_MATH(fabs)(x), unit, p - 1));
}

static void norm_piece(const void *work, int64_t i)
{
    const norm_work *w = work;
    const REAL p = w->p;
    const bool add = w->add;
    REAL buffer[3][GD_PIECE];
    for (gd_piece piece = gd_piece_begin(&w->rows, i); gd_piece_valid(&piece);
         gd_piece_next(&piece)) {
        const REAL *share = gd_piece_load(&piece, SHARE, w->share, buffer[0]);
        const REAL *x = gd_piece_load(&piece, X, w->x, buffer[1]);
        const REAL *unit = gd_piece_load(&piece, Y, w->unit, buffer[2]);
        REAL *dx = w->dx + gd_piece_offset(&piece, DX);
        for (int64_t j = 0; j < piece.n; j++)
            dx[j] = (add ? dx[j] : 0) + share[j] * norm_slope(x[j], unit[j], p);
    }
}

static void same_size_row(REAL *out, bool add, const REAL *x, const REAL *y, const REAL *c,
                          int64_t n)
{
    (void)add, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = reduce_same(GD_MATH(fabs)(x[i]), y[i]) ? 1 : 0;
}

/* dy times dy/dm: equal largest (or smallest) elements share that of an infinite p, as those of max do. */
static const REAL *norm_shares(const gd_call *call, const result_layout *layout, double p)
{
    const REAL *unit = gd_data(call->save[SAVE_UNIT]), *slope = gd_data(call->save[SAVE_SLOPE]);
    const REAL *dy = gd_data(call->doutput[0]);
    const double *k = isinf(p) ? reduce(call, layout, same_size_row, unit, false) : NULL;
    REAL *share = gd_call_scratch(call, (size_t)layout->count * sizeof(REAL));
    if ((isinf(p) && !k) || !share) return NULL;
    for (int64_t i = 0; i < layout->count; i++)
        share[i] = k ? (REAL)((double)dy[i] / k[i]) : p == 0 ? dy[i] : dy[i] * slope[i];
    return share;
}

gd_status GD_REAL_NAME(norm_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const double p = p_of(call);
    const REAL *share = norm_shares(call, &layout, p);
    if (!share) return gd_error_status(call->context);
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, &layout);
    gd_walk_add_tensor(&walk, call->input[0]);
    add_result(&walk, &layout);
    const norm_work w = {gd_rows_of(walk),        gd_data(call->dinput[0]),       share,
                         gd_data(call->input[0]), gd_data(call->save[SAVE_UNIT]), (REAL)p,
                         call->accumulate[0]};
    gd_for_each(gd_threads_for(call->threads, gd_walk_count(&walk)), w.rows.pieces, norm_piece, &w);
    return GD_OK;
}

/* ---- any and all -------------------------------------------------------------------------- */

static void zero_row(REAL *out, bool add, const REAL *x, const REAL *b, const REAL *c, int64_t n)
{
    (void)add, (void)b, (void)c;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] == 0;
}

/* Whether one element is what the term asks for, or if `none`, whether none is. */
static gd_status find(const gd_call *call, gd_row_function *term, bool none)
{
    const result_layout layout = layout_of_result(call);
    const double *max = reduce(call, &layout, term, NULL, true);
    if (!max) return gd_error_status(call->context);
    int32_t *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (max[i] > 0) != none;
    return GD_OK;
}

gd_status GD_REAL_NAME(any_forward)(const gd_call *call)
{
    return find(call, not_zero_row, false);
}

gd_status GD_REAL_NAME(all_forward)(const gd_call *call)
{
    return find(call, zero_row, true);
}
