/* reduce_cpu.c - the CPU kernels of sum, mean, max, logsumexp, var, std, prod, norm, any and all.
 *
 * Below, `result` is any array of the shape of y with the reduced axes kept at size 1. Over
 * the shape of x it is a broadcast operand: its strides along the reduced axes are 0. */
#include "loops.h"
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

/* Loops without and with `omp simd`, which may call vector forms of exp and pow. */
#define EACH(i, n) for (int64_t i = 0; i < (n); i++)

/* ---- Forward ------------------------------------------------------------------------------ */

/* Defines a row of terms: a value in x[i] and, if the reduction has them, the results a[i], b[i]. */
#define TERM(name, each, a, b, value)                                                             \
    static void name(REAL *out, bool add, const REAL *x, const REAL *a, const REAL *b, int64_t n) \
    {                                                                                             \
        (void)add, (void)a, (void)b;                                                              \
        each(i, n) out[i] = value;                                                                \
    }

/* The reduction of x over the axes, or of r's terms of x; r.data[2] are results, r.data[3] is a number. */
static const double *reduce(const gd_call *call, const result_layout *layout, gd_reduction *r)
{
    r->walk = gd_walk_like(call->input[0]);
    add_result(&r->walk, layout);
    gd_walk_add_tensor(&r->walk, call->input[0]);
    r->data[1] = gd_data(call->input[0]);
    if (r->data[2]) add_result(&r->walk, layout);
    if (r->data[3]) gd_walk_add(&r->walk, 0, NULL, NULL);
    return GD_REAL_NAME(gd_reduce)(call, r);
}

/* y = the sum or the maximum, divided by n if `mean`. */
static gd_status reduce_forward(const gd_call *call, bool max, bool mean)
{
    const result_layout layout = layout_of_result(call);
    const double *result = reduce(call, &layout, &(gd_reduction){.max = max});
    if (!result) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    const double n = mean ? (double)layout.n : 1;
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)(result[i] / n);
    return GD_OK;
}

GD_KERNEL_OF_REAL(sum_forward, reduce_forward(call, false, false))
GD_KERNEL_OF_REAL(mean_forward, reduce_forward(call, false, true))
GD_KERNEL_OF_REAL(max_forward, reduce_forward(call, true, false))

TERM(exp_row, GD_EACH, shift, unused, GD_MATH(exp)(x[i] - shift[i]))

/* ln(sum e^x) = m + ln(sum e^(x - m)). With m = max x no term is above 1, and one is 1: neither
 * overflow nor ln(0). An infinite maximum cannot be subtracted (inf - inf is NaN); with m = 0
 * instead, the exponentials give the right infinity. */
gd_status GD_REAL_NAME(logsumexp_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *max = reduce(call, &layout, &(gd_reduction){.max = true});
    REAL *shift = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!max || !shift) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) shift[i] = isinf(max[i]) ? 0 : (REAL)max[i];
    const double *sum =
        reduce(call, &layout, &(gd_reduction){.term = exp_row, .data = {[2] = shift}});
    if (!sum) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)(shift[i] + log(sum[i]));
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

enum { DX, SHARE, X, Y };

/* dx = row(share, x, y), where the results share and y are repeated along the reduced axes; NULL: not used
 * by the row. */
typedef struct spread_work spread_work;
typedef void spread_row(const spread_work *w, REAL *dx, const REAL *share, const REAL *x,
                        const REAL *y, int64_t at, int64_t n);
struct spread_work {
    spread_row *row;
    const REAL *share, *x, *y;
    const double *results[3]; /* that the row looks up itself, from element `at` on */
    REAL p;                   /* of norm */
    const gd_rows *rows;
    REAL *dx;
    bool add;
};

/* Defines a row: dx (+)= value, an expression in share[i], x[i], y[i], w, and r, the index of a result. */
#define SPREAD(name, each, value)                                                      \
    static void name(const spread_work *w, REAL *dx, const REAL *share, const REAL *x, \
                     const REAL *y, int64_t at, int64_t n)                             \
    {                                                                                  \
        const bool add = w->add;                                                       \
        const int64_t step = w->rows->step[SHARE];                                     \
        (void)share, (void)x, (void)y;                                                 \
        each(i, n)                                                                     \
        {                                                                              \
            const int64_t r = at + i * step;                                           \
            (void)r;                                                                   \
            dx[i] = (REAL)((add ? dx[i] : 0) + (value));                               \
        }                                                                              \
    }

static void spread_piece(const void *work, int64_t i)
{
    const spread_work *w = work;
    REAL buffer[3][GD_PIECE];
    for (gd_piece p = gd_piece_begin(w->rows, i); gd_piece_valid(&p); gd_piece_next(&p))
        w->row(w, w->dx + gd_piece_offset(&p, DX),
               w->share ? gd_piece_load(&p, SHARE, w->share, buffer[0]) : NULL,
               w->x ? gd_piece_load(&p, X, w->x, buffer[1]) : NULL,
               w->y ? gd_piece_load(&p, Y, w->y, buffer[2]) : NULL, gd_piece_offset(&p, SHARE),
               p.n);
}

static gd_status spread(const gd_call *call, const result_layout *layout, spread_work *w)
{
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, layout);
    if (w->x) gd_walk_add_tensor(&walk, call->input[0]);
    if (w->y) add_result(&walk, layout);
    const gd_rows rows = gd_rows_of(walk);
    w->rows = &rows;
    w->dx = gd_dx(call, 0);
    w->add = gd_adds(call, 0);
    return gd_each_piece(call, gd_walk_count(&walk), rows.pieces, spread_piece, w);
}

static void repeat_row(const spread_work *w, REAL *dx, const REAL *share, const REAL *x,
                       const REAL *y, int64_t at, int64_t n)
{
    const bool add = w->add;
    (void)x, (void)y, (void)at;
    EACH(i, n) dx[i] = (add ? dx[i] : 0) + share[i]; /* [sum] */
}

SPREAD(share_row, EACH, max_dx(share[i], x[i], y[i]))
SPREAD(softmax_row, GD_EACH, logsumexp_dx(share[i], x[i], y[i]))
TERM(same_row, EACH, y, unused, reduce_same(x[i], y[i]) ? 1 : 0)

/* y = x_1 + ... + x_n: each x_j has the gradient dy, or of the mean dy / n. */
static gd_status sum_gradient(const gd_call *call, bool mean)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *dy = gd_dy(call, 0);
    REAL *share = mean ? gd_call_scratch(call, (size_t)layout.count * sizeof(REAL)) : NULL;
    if (mean && !share) return gd_error_status(call->context);
    for (int64_t i = 0; mean && i < layout.count; i++)
        share[i] = (REAL)mean_share((double)dy[i], (double)layout.n);
    return spread(call, &layout, &(spread_work){.row = repeat_row, .share = mean ? share : dy});
}

GD_KERNEL_OF_REAL(sum_backward, sum_gradient(call, false))
GD_KERNEL_OF_REAL(mean_backward, sum_gradient(call, true))

/* The k elements that are equal to the maximum share its gradient: dy / k each, the others 0. */
gd_status GD_REAL_NAME(max_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *y = gd_data(call->output[0]), *dy = gd_dy(call, 0);
    const double *k = reduce(call, &layout, &(gd_reduction){.term = same_row, .data = {[2] = y}});
    REAL *share = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!k || !share) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) share[i] = (REAL)max_share((double)dy[i], k[i]);
    return spread(
        call, &layout,
        &(spread_work){.row = share_row, .share = share, .x = gd_data(call->input[0]), .y = y});
}

/* dy/dx_j = e^(x_j) / sum e^x = e^(x_j - y): the softmax. */
gd_status GD_REAL_NAME(logsumexp_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    return spread(call, &layout,
                  &(spread_work){.row = softmax_row,
                                 .share = gd_dy(call, 0),
                                 .x = gd_data(call->input[0]),
                                 .y = gd_data(call->output[0])});
}

/* ---- var and std -------------------------------------------------------------------------- */

/* The mean and the squares around it in double, in which those of float neither overflow nor
 * vanish. Saves that are not needed are NULL. */
static gd_status variance(const gd_call *call, bool root)
{
    const result_layout layout = layout_of_result(call);
    double *mean = gd_data(call->save[SAVE_MEAN]), *deviation = gd_data(call->save[SAVE_DEVIATION]);
    if (!mean) mean = gd_call_scratch(call, (size_t)layout.count * sizeof *mean);
    const double *sum = reduce(call, &layout, &(gd_reduction){.max = false});
    if (!mean || !sum) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) mean[i] = sum[i] / (double)layout.n;
    const double *squares = reduce(call, &layout, &(gd_reduction){.centre = mean});
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

static double by_distance(double share, double x, double mean)
{
    const double d = var_distance(x, mean);
    GD_STEP("d", d);
    return var_dx(share, d);
}

SPREAD(distance_row, EACH, by_distance(w->results[0][r], (double)x[i], w->results[1][r]))

/* dx_j = dy dy/dx_j: each x_j moves y by its distance from the mean, which itself moves nothing,
 * since the distances add up to 0. */
static gd_status variance_backward(const gd_call *call, bool root)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const double divisor = gd_variance_divisor(call->args, layout.n);
    const double *deviation = gd_data(call->save[SAVE_DEVIATION]);
    const REAL *dy = gd_dy(call, 0);
    double *share = gd_call_scratch(call, (size_t)layout.count * sizeof *share);
    if (!share) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) {
        share[i] = root ? std_share((double)dy[i], divisor, deviation[i])
                        : var_share((double)dy[i], divisor);
        GD_STEP("share", share[i]);
    }
    return spread(call, &layout,
                  &(spread_work){.row = distance_row,
                                 .x = gd_data(call->input[0]),
                                 .results = {share, gd_data(call->save[SAVE_MEAN])}});
}

GD_KERNEL_OF_REAL(var_forward, variance(call, false))
GD_KERNEL_OF_REAL(var_backward, variance_backward(call, false))
GD_KERNEL_OF_REAL(std_forward, variance(call, true))
GD_KERNEL_OF_REAL(std_backward, variance_backward(call, true))

/* ---- prod --------------------------------------------------------------------------------- */

/* number 2^exponent; beyond 5000 that is 0 or infinite anyway. */
static double scaled(double number, double exponent)
{
    return ldexp(number, (int)fmax(-5000, fmin(5000, exponent)));
}

gd_status GD_REAL_NAME(prod_forward)(const gd_call *call)
{
    const result_layout layout = layout_of_result(call);
    const double *product = reduce(call, &layout, &(gd_reduction){.product = true});
    if (!product) return gd_error_status(call->context);
    const int64_t n = layout.count;
    for (int k = 0; k < PRODUCT_SAVES; k++)
        if (call->save[k] && n > 0)
            memcpy(gd_data(call->save[k]), product + k * n, (size_t)n * sizeof *product);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < n; i++) {
        const bool zero = product[SAVE_ZEROS * n + i] > 0;
        y[i] = (REAL)(zero ? 0 * product[i] : scaled(product[i], product[SAVE_EXPONENT * n + i]));
        GD_STEP("P", scaled(product[i], product[SAVE_EXPONENT * n + i]));
    }
    return GD_OK;
}

/* dy times the product of all elements of the group but x. */
static double by_others(const double *const saved[PRODUCT_SAVES], REAL dy, int64_t result, double x)
{
    const double product = (double)dy * saved[SAVE_NUMBER][result];
    const double zeros = saved[SAVE_ZEROS][result], exponent = saved[SAVE_EXPONENT][result];
    int own = 0;
    if (prod_of_others_is_zero(zeros, x)) return 0 * product;
    if (zeros == 1) x = 1;
    if (isfinite(x)) x = frexp(x, &own);
    return scaled(prod_dx(product, x), exponent - own);
}

SPREAD(others_row, EACH, by_others(w->results, share[i], r, (double)x[i]))

gd_status GD_REAL_NAME(prod_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    spread_work w = {.row = others_row, .share = gd_dy(call, 0), .x = gd_data(call->input[0])};
    for (int k = 0; k < PRODUCT_SAVES; k++) w.results[k] = gd_data(call->save[k]);
    return spread(call, &layout, &w);
}

/* ---- norm --------------------------------------------------------------------------------- */

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

TERM(size_row, EACH, a, b, GD_MATH(fabs)(x[i]))
TERM(minus_size_row, EACH, a, b, -GD_MATH(fabs)(x[i]))
TERM(not_zero_row, EACH, a, b, x[i] != 0)
TERM(scaled_row, EACH, unit, b, GD_MATH(fabs)(x[i]) * unit[i])
TERM(square_row, EACH, unit, b, (x[i] * unit[i]) * (x[i] * unit[i]))
TERM(power_row, EACH, unit, p, power_of_quotient(GD_MATH(fabs)(x[i]), unit[i], p[i]))
TERM(same_size_row, EACH, y, b, reduce_same(GD_MATH(fabs)(x[i]), y[i]) ? 1 : 0)

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
    const double *size = reduce(
        call, layout, &(gd_reduction){.term = p < 0 ? minus_size_row : size_row, .max = true});
    if (!unit) unit = gd_call_scratch(call, (size_t)layout->count * sizeof(REAL));
    if (!size || !unit) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout->count; i++)
        unit[i] = (REAL)(whole ? scale_of(size[i]) : fabs(size[i]));
    const double *sum =
        reduce(call, layout, &(gd_reduction){.term = term, .data = {[2] = unit, [3] = &exponent}});
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
    const double *result = reduce(call, &layout, &(gd_reduction){.term = term, .max = p != 0});
    if (!result) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++)
        y[i] = (REAL)(p < 0 ? -result[i] : isinf(p) && layout.n == 0 ? 0 : result[i]);
    if (unit) memcpy(unit, y, (size_t)layout.count * sizeof *y);
    return GD_OK;
}

/* dy/dx over dy/dm */
static REAL norm_slope(REAL x, REAL unit, REAL p)
{
    if (norm_is_flat(x, p)) return 0;
    if (isinf(p)) return norm_max_dx(x, unit);
    if (p == 1) return reduce_sign(x);
    if (p == 2) return x * unit;
    return norm_dx(x, power_of_quotient(GD_MATH(fabs)(x), unit, p - 1));
}

SPREAD(norm_row, EACH, share[i] * norm_slope(x[i], y[i], w->p))

/* dy times dy/dm: equal largest (or smallest) elements share that of an infinite p, as those of max do. */
static const REAL *norm_shares(const gd_call *call, const result_layout *layout, double p)
{
    const REAL *unit = gd_data(call->save[SAVE_UNIT]), *slope = gd_data(call->save[SAVE_SLOPE]);
    const REAL *dy = gd_dy(call, 0);
    gd_reduction same = {.term = same_size_row, .data = {[2] = unit}};
    const double *k = isinf(p) ? reduce(call, layout, &same) : NULL;
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
    return spread(call, &layout,
                  &(spread_work){.row = norm_row,
                                 .share = share,
                                 .x = gd_data(call->input[0]),
                                 .y = gd_data(call->save[SAVE_UNIT]),
                                 .p = (REAL)p});
}

/* ---- any and all -------------------------------------------------------------------------- */

TERM(zero_row, EACH, a, b, x[i] == 0)

/* Whether one element is what the term asks for, or if `none`, whether none is. */
static gd_status find(const gd_call *call, gd_row_function *term, bool none)
{
    const result_layout layout = layout_of_result(call);
    const double *max = reduce(call, &layout, &(gd_reduction){.term = term, .max = true});
    if (!max) return gd_error_status(call->context);
    int32_t *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (max[i] > 0) != none;
    return GD_OK;
}

GD_KERNEL_OF_REAL(any_forward, find(call, not_zero_row, false))
GD_KERNEL_OF_REAL(all_forward, find(call, zero_row, true))
