/* derivations.c - the reductions by ops (gd_op in autograd.h): their derivatives, and prod. */
#include "arguments.h"
#include "derivation.h"
#include "reduce/reduce.h"

/* ---- Axes --------------------------------------------------------------------------------- */

/* A result, or its cotangent, repeated along the reduced axes: in x's shape. */
static gd_tensor *back(const gd_call *call, gd_tensor *t)
{
    const gd_tensor *x = call->input[0];
    const unsigned reduced = gd_reduced_axes(call->args, gd_tensor_ndim(x));
    if (!(reduced & (reduced + 1))) return repeated_as(t, x); /* the first axes */
    int64_t kept[GD_MAX_DIMS] = {0};
    for (int d = 0; d < gd_tensor_ndim(x); d++)
        kept[d] = reduced >> d & 1 ? 1 : gd_tensor_shape(x)[d];
    return repeated_as(shaped(t, gd_tensor_ndim(x), kept), x);
}

/* The number of elements of which a result is made. */
static double reduced_count(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    const unsigned reduced = gd_reduced_axes(call->args, gd_tensor_ndim(x));
    double n = 1;
    for (int d = 0; d < gd_tensor_ndim(x); d++)
        if (reduced >> d & 1) n *= (double)gd_tensor_shape(x)[d];
    return n;
}

static const int *axes_of(const gd_reduce_args *args)
{
    return args->all ? NULL : args->axes;
}

/* x reduced by a function over the same axes, in the shape of the result. */
static gd_tensor *reduced(gd_tensor *(*by)(gd_tensor *, const int *, int, bool),
                          const gd_call *call, gd_tensor *x)
{
    const gd_reduce_args *args = call->args;
    return by(x, axes_of(args), args->count, args->keep_dims);
}

/* ---- Sums --------------------------------------------------------------------------------- */

void gd_sum_derivative(const gd_call *call)
{
    call->dinput[0] = back(call, call->doutput[0]);
}

void gd_mean_derivative(const gd_call *call)
{
    call->dinput[0] = back(call, times(call->doutput[0], 1 / reduced_count(call)));
}

/* dx = dy e^(x - y); a y of -inf, where all x are, stands for any number. */
void gd_logsumexp_derivative(const gd_call *call)
{
    gd_tensor *x = call->input[0], *y = call->output[0];
    gd_tensor *p = gd_exp(sub(x, back(call, unless(is(y, -INFINITY), y, 0))));
    call->dinput[0] = mul(back(call, call->doutput[0]), p);
}

/* dx = 2 dy (x - mean) / (n - correction) */
void gd_var_derivative(const gd_call *call)
{
    gd_tensor *x = call->input[0];
    const double divisor = gd_variance_divisor(call->args, (int64_t)reduced_count(call));
    gd_tensor *d = sub(x, back(call, reduced(gd_mean, call, x)));
    call->dinput[0] = mul(back(call, times(call->doutput[0], 2 / divisor)), d);
}

/* dx = dy (x - mean) / (y (n - correction)), and 0 where y is; y, which the tape lacks, is computed
 * again. */
void gd_std_derivative(const gd_call *call)
{
    const gd_variance_args *args = call->args;
    const gd_reduce_args *r = &args->reduce;
    gd_tensor *x = call->input[0];
    const double divisor = gd_variance_divisor(args, (int64_t)reduced_count(call));
    gd_tensor *y = gd_std(x, axes_of(r), r->count, args->correction, r->keep_dims);
    gd_tensor *none = is(y, 0);
    gd_tensor *part = unless(none, over(call->doutput[0], unless(none, y, 1)), 0);
    gd_tensor *d = sub(x, back(call, reduced(gd_mean, call, x)));
    call->dinput[0] = mul(back(call, times(part, 1 / divisor)), d);
}

/* ---- Choices ------------------------------------------------------------------------------ */

/* dy shared evenly by the elements x that equal y, or by those that are NaN. */
static gd_tensor *shared(const gd_call *call, gd_tensor *x, gd_tensor *y)
{
    gd_tensor *one = number(x, 1), *zero = number(x, 0);
    gd_tensor *hit = gd_where(gd_eq(x, back(call, y)), one, gd_where(is_nan(x), one, zero));
    return mul(back(call, over(call->doutput[0], reduced(gd_sum, call, hit))), hit);
}

void gd_max_derivative(const gd_call *call)
{
    call->dinput[0] = shared(call, call->input[0], call->output[0]);
}

/* x divided by its largest |x|, for p < 0 by the smallest, if that is a number other than 0. As a
 * constant: multiples of x have the same gradient, so none by that factor is left out. */
static gd_tensor *of_size_1(const gd_call *call, gd_tensor *x)
{
    const bool least = ((const gd_norm_args *)call->args)->p < 0;
    gd_tensor *size = reduced(least ? gd_min : gd_max, call, gd_abs(gd_detach(x)));
    size = unless(is(size, INFINITY), unless(is(size, 0), size, 1), 1);
    return over(x, back(call, size));
}

/* dx = dy sign(x) |x / y|^(p - 1), and 0 where x or y is; dy x / y for p = 2. The norm is computed
 * again, since the tape does not keep it. */
void gd_norm_derivative(const gd_call *call)
{
    const gd_norm_args *args = call->args;
    const gd_reduce_args *r = &args->reduce;
    gd_tensor *x = call->input[0], *dy = call->doutput[0];
    const bool by_size = args->p != 0 && args->p != 1 && !isinf(args->p);
    if (by_size) x = of_size_1(call, x);
    gd_tensor *y = gd_norm(x, args->p, axes_of(r), r->count, r->keep_dims);
    gd_tensor *none = is(y, 0), *divisor = by_size ? back(call, unless(none, y, 1)) : NULL;
    if (args->p == 0) {
        call->dinput[0] = NULL;
    } else if (isinf(args->p)) {
        call->dinput[0] = mul(shared(call, gd_abs(x), y), gd_sign(x));
    } else if (args->p == 1) {
        call->dinput[0] = mul(back(call, dy), gd_sign(x));
    } else if (args->p == 2) {
        call->dinput[0] = mul(back(call, unless(none, dy, 0)), over(x, divisor));
    } else {
        gd_tensor *zero = is(x, 0);
        gd_tensor *ratio = over(unless(zero, gd_abs(x), 1), divisor);
        gd_tensor *part = mul(gd_pow(ratio, args->p - 1), gd_sign(x));
        call->dinput[0] = mul(back(call, unless(none, dy, 0)), unless(zero, part, 0));
    }
}

/* ---- prod --------------------------------------------------------------------------------- */

/* x multiplied along an axis by halves, so that all derivatives are products too, whatever is 0.
 * The last element of an odd number waits until the halves have met. */
static gd_tensor *product_along(gd_tensor *x, int axis)
{
    int64_t n = gd_tensor_dim(x, axis);
    gd_tensor *odd = NULL;
    if (n == 0) return plus(gd_sum(x, &axis, 1, true), 1);
    for (; n > 1; n /= 2) {
        gd_tensor *last = n % 2 ? gd_slice(x, axis, n - 1, n) : NULL;
        if (last) odd = odd ? mul(odd, last) : last;
        x = mul(gd_slice(x, axis, 0, n / 2), gd_slice(x, axis, n / 2, n / 2 * 2));
    }
    return odd ? mul(x, odd) : x;
}

void gd_prod_definition(const gd_call *call)
{
    gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    const unsigned reduced = gd_reduced_axes(call->args, ndim);
    for (int d = 0; d < ndim; d++)
        if (reduced >> d & 1) x = product_along(x, d);
    call->output[0] = shaped_as(x, call->output[0]);
}
