/* reduce_cpu.c - the CPU kernels of sum, mean, max, logsumexp, var, std, norm, any and all.
 *
 * Below, `result` is any array of the shape of y with the reduced axes kept at size 1. Over
 * the shape of x it is a broadcast operand: its strides along the reduced axes are 0. */
#include "loops.h"
#include "reduce/formula.h"
#include "reduce/reduce.h"
#include "reduce/reduction.h"

static void add_result(gd_walk *walk, const result_layout *result)
{
    gd_walk_add(walk, result->ndim, result->shape, result->strides);
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* Defines a row of terms: a value in x, in a result, if the reduction has one, and in a number
 * p. */
#define TERM(name, x, result, p, value) GD_MAP_ROW(name, x, result, c, d, p, q, value)

/* The reduction of x over the axes, or of r's terms of x and of results, r.data[2]. */
static const double *reduce(const gd_call *call, const result_layout *layout, gd_reduction *r)
{
    r->walk = gd_walk_like(call->input[0]);
    add_result(&r->walk, layout);
    gd_walk_add_tensor(&r->walk, call->input[0]);
    r->data[1] = gd_data(call->input[0]);
    if (r->data[2]) add_result(&r->walk, layout);
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

TERM(exp_row, x, shift, p, GD_MATH(exp)(x - shift))

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
    const double *sum = reduce(
        call, &layout, &(gd_reduction){.term = {.function = exp_row}, .data = {[2] = shift}});
    if (!sum) return gd_error_status(call->context);
    REAL *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (REAL)(shift[i] + log(sum[i]));
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* dx (+)= the row of a share, x and y, where the results share and y are repeated along the reduced
 * axes; x and y may be NULL, if the row does not read them. */
static gd_status spread(const gd_call *call, const result_layout *layout, gd_row row,
                        const REAL *share, const REAL *x, const REAL *y)
{
    row.add = gd_adds(call, 0);
    const gd_map map = {
        .out = gd_dx(call, 0), .size = sizeof(REAL), .in = {share, x, y}, .row = row};
    gd_walk walk = gd_walk_like(call->input[0]);
    gd_walk_add_tensor(&walk, call->dinput[0]);
    add_result(&walk, layout);
    if (x) gd_walk_add_tensor(&walk, call->input[0]);
    if (y) add_result(&walk, layout);
    return gd_map_walk(call, walk, &map);
}

GD_GRADIENT_ROW(repeat_row, share, x, y, d, p, q, sum_dx(share))
GD_GRADIENT_ROW(share_row, share, x, y, d, p, q, max_dx(share, x, y))
GD_GRADIENT_ROW(softmax_row, share, x, y, d, p, q, logsumexp_dx(share, x, y))
TERM(same_row, x, y, p, reduce_same(x, y) ? 1 : 0)

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
    return spread(call, &layout, (gd_row){.function = repeat_row}, mean ? share : dy, NULL, NULL);
}

GD_KERNEL_OF_REAL(sum_backward, sum_gradient(call, false))
GD_KERNEL_OF_REAL(mean_backward, sum_gradient(call, true))

/* The k elements that are equal to the maximum share its gradient: dy / k each, the others 0. */
gd_status GD_REAL_NAME(max_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    const REAL *y = gd_data(call->output[0]), *dy = gd_dy(call, 0);
    const double *k =
        reduce(call, &layout, &(gd_reduction){.term = {.function = same_row}, .data = {[2] = y}});
    REAL *share = gd_call_scratch(call, (size_t)layout.count * sizeof(REAL));
    if (!k || !share) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout.count; i++) share[i] = (REAL)max_share((double)dy[i], k[i]);
    return spread(call, &layout, (gd_row){.function = share_row}, share, gd_data(call->input[0]),
                  y);
}

/* dy/dx_j = e^(x_j) / sum e^x = e^(x_j - y): the softmax. */
gd_status GD_REAL_NAME(logsumexp_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const result_layout layout = layout_of_result(call);
    return spread(call, &layout, (gd_row){.function = softmax_row}, gd_dy(call, 0),
                  gd_data(call->input[0]), gd_data(call->output[0]));
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

/* dx (+)= the results `share` times the distances of x from the results `mean` [double]. */
typedef struct distances {
    gd_rows rows;
    const REAL *x;
    const double *share, *mean;
    REAL *dx;
    bool add;
} distances;

enum { DX, RESULT, X };

static void distance_piece(const void *work, int64_t piece)
{
    const distances *w = work;
    const int64_t step = w->rows.step[RESULT];
    REAL buffer[GD_PIECE];
    for (gd_piece p = gd_piece_begin(&w->rows, piece); gd_piece_valid(&p); gd_piece_next(&p)) {
        REAL *dx = w->dx + gd_piece_offset(&p, DX);
        const REAL *x = gd_piece_load(&p, X, w->x, buffer);
        const double *share = w->share + gd_piece_offset(&p, RESULT);
        const double *mean = w->mean + gd_piece_offset(&p, RESULT);
        for (int64_t i = 0; i < p.n; i++) {
            const double d = var_distance((double)x[i], mean[i * step]);
            GD_STEP("d", d);
            dx[i] = (REAL)((w->add ? (double)dx[i] : 0) + var_dx(share[i * step], d));
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
    const double *deviation = gd_data(call->save[SAVE_DEVIATION]);
    const REAL *dy = gd_dy(call, 0);
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
    const distances w = {.rows = gd_rows_of(walk),
                         .x = gd_data(call->input[0]),
                         .share = share,
                         .mean = gd_data(call->save[SAVE_MEAN]),
                         .dx = gd_dx(call, 0),
                         .add = gd_adds(call, 0)};
    return gd_each_piece(call, gd_walk_count(&walk), w.rows.pieces, distance_piece, &w);
}

GD_KERNEL_OF_REAL(var_forward, variance(call, false))
GD_KERNEL_OF_REAL(var_backward, variance_backward(call, false))
GD_KERNEL_OF_REAL(std_forward, variance(call, true))
GD_KERNEL_OF_REAL(std_backward, variance_backward(call, true))

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

TERM(size_row, x, y, p, GD_MATH(fabs)(x))
TERM(minus_size_row, x, y, p, -GD_MATH(fabs)(x))
TERM(not_zero_row, x, y, p, x != 0)
TERM(scaled_row, x, unit, p, GD_MATH(fabs)(x) * unit)
TERM(square_row, x, unit, p, (x * unit) * (x * unit))
TERM(power_row, x, unit, p, power_of_quotient(GD_MATH(fabs)(x), unit, p))
TERM(same_size_row, x, y, p, reduce_same(GD_MATH(fabs)(x), y) ? 1 : 0)

/* A power of two that brings `size` to between 0.5 and 1, if that is a number but 0; 0 for inf. */
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
 * no power is above 1, and s is between 1 and n. If m is 0 or not finite, so is y. For p = 1 and 2,
 * m is a power of two near the largest |x|, by whose inverse x is multiplied. `unit` is m or that
 * inverse. */
static gd_status norm_of_powers(const gd_call *call, const result_layout *layout, double p)
{
    const bool whole = p == 1 || p == 2;
    REAL *y = gd_data(call->output[0]), *unit = gd_data(call->save[SAVE_UNIT]);
    REAL *slope = gd_data(call->save[SAVE_SLOPE]);
    const gd_row term = {p == 1 ? scaled_row : p == 2 ? square_row : power_row, .p = (REAL)p};
    const double *size = reduce(
        call, layout,
        &(gd_reduction){.term = {.function = p < 0 ? minus_size_row : size_row}, .max = true});
    if (!unit) unit = gd_call_scratch(call, (size_t)layout->count * sizeof(REAL));
    if (!size || !unit) return gd_error_status(call->context);
    for (int64_t i = 0; i < layout->count; i++)
        unit[i] = (REAL)(whole ? scale_of(size[i]) : fabs(size[i]));
    const double *sum = reduce(call, layout, &(gd_reduction){.term = term, .data = {[2] = unit}});
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
    const double *result =
        reduce(call, &layout, &(gd_reduction){.term = {.function = term}, .max = p != 0});
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

GD_GRADIENT_ROW(norm_row, share, x, unit, d, p, q, share *norm_slope(x, unit, p))

/* dy times dy/dm. For p = +-inf, elements tied for the extreme share the gradient as in max. */
static const REAL *norm_shares(const gd_call *call, const result_layout *layout, double p)
{
    const REAL *unit = gd_data(call->save[SAVE_UNIT]), *slope = gd_data(call->save[SAVE_SLOPE]);
    const REAL *dy = gd_dy(call, 0);
    gd_reduction same = {.term = {.function = same_size_row}, .data = {[2] = unit}};
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
    return spread(call, &layout, (gd_row){.function = norm_row, .p = (REAL)p}, share,
                  gd_data(call->input[0]), gd_data(call->save[SAVE_UNIT]));
}

/* ---- any and all -------------------------------------------------------------------------- */

TERM(zero_row, x, y, p, x == 0)

/* Whether one element is what the term asks for, or if `none`, whether none is. */
static gd_status find(const gd_call *call, gd_row_function *term, bool none)
{
    const result_layout layout = layout_of_result(call);
    const double *max =
        reduce(call, &layout, &(gd_reduction){.term = {.function = term}, .max = true});
    if (!max) return gd_error_status(call->context);
    int32_t *y = gd_data(call->output[0]);
    for (int64_t i = 0; i < layout.count; i++) y[i] = (max[i] > 0) != none;
    return GD_OK;
}

GD_KERNEL_OF_REAL(any_forward, find(call, not_zero_row, false))
GD_KERNEL_OF_REAL(all_forward, find(call, zero_row, true))
