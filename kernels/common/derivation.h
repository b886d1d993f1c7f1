/* derivation.h - what definitions and derivatives (gd_op in autograd.h) share: ops by short names,
 * so that they read as formulas do. A tensor is NULL after an error, as everywhere. */
#ifndef GRADUS_DERIVATION_H
#define GRADUS_DERIVATION_H

#include <string.h>

#include "gradus/autograd.h"
#include "gradus/ops.h"

/* ---- Arithmetic --------------------------------------------------------------------------- */

static inline gd_tensor *add(gd_tensor *a, gd_tensor *b)
{
    return gd_add(a, b);
}

static inline gd_tensor *sub(gd_tensor *a, gd_tensor *b)
{
    return gd_sub(a, b);
}

static inline gd_tensor *mul(gd_tensor *a, gd_tensor *b)
{
    return gd_mul(a, b);
}

static inline gd_tensor *over(gd_tensor *a, gd_tensor *b)
{
    return gd_div(a, b);
}

static inline gd_tensor *square(gd_tensor *x)
{
    return gd_mul(x, x);
}

/* x times a number, and plus one; a number minus x. */
static inline gd_tensor *times(gd_tensor *x, double factor)
{
    return gd_scale(x, factor);
}

static inline gd_tensor *plus(gd_tensor *x, double term)
{
    return gd_add_scalar(x, term);
}

static inline gd_tensor *minus(double number, gd_tensor *x)
{
    return gd_add_scalar(gd_neg(x), number);
}

/* dy (1 - y^2) and -2 a b, each in one pass. */
gd_tensor *gd_tanh_gradient(gd_tensor *dy, gd_tensor *y);
gd_tensor *gd_minus_twice(gd_tensor *a, gd_tensor *b);

/* ---- Constants and choices ---------------------------------------------------------------- */

/* A number, of t's dtype, that ops broadcast. */
static inline gd_tensor *number(const gd_tensor *t, double value)
{
    return gd_constant(gd_tensor_context(t), gd_tensor_dtype(t), 0, NULL, value);
}

/* All elements are the value; of t's shape and dtype. */
static inline gd_tensor *all_of(const gd_tensor *t, double value)
{
    return gd_constant(gd_tensor_context(t), gd_tensor_dtype(t), gd_tensor_ndim(t),
                       gd_tensor_shape(t), value);
}

/* x where the mask is set, else 0; and x where it is not, else the value. An infinity in what is
 * not chosen, or in its gradient, does not matter: nothing is multiplied by 0. */
static inline gd_tensor *only(gd_tensor *mask, gd_tensor *x)
{
    return x ? gd_where(mask, x, number(x, 0)) : NULL;
}

static inline gd_tensor *unless(gd_tensor *mask, gd_tensor *x, double value)
{
    return gd_masked_fill(x, mask, value);
}

/* Masks: x == a number, x < it, x <= it, x > it; and where x is NaN. */
static inline gd_tensor *is(gd_tensor *x, double value)
{
    return x ? gd_eq(x, number(x, value)) : NULL;
}

static inline gd_tensor *below(gd_tensor *x, double value)
{
    return x ? gd_lt(x, number(x, value)) : NULL;
}

static inline gd_tensor *at_most(gd_tensor *x, double value)
{
    return x ? gd_le(x, number(x, value)) : NULL;
}

static inline gd_tensor *above(gd_tensor *x, double value)
{
    return x ? gd_gt(x, number(x, value)) : NULL;
}

static inline gd_tensor *is_nan(gd_tensor *x)
{
    return gd_ne(x, x);
}

/* ---- Shapes ------------------------------------------------------------------------------- */

/* x in another shape of as many elements: itself if it has that, or a view. */
static inline gd_tensor *shaped(gd_tensor *x, int ndim, const int64_t *shape)
{
    const size_t bytes = (size_t)ndim * sizeof *shape;
    const bool same = x && gd_tensor_ndim(x) == ndim && !memcmp(gd_tensor_shape(x), shape, bytes);
    return same ? x : gd_reshape(x, ndim, shape);
}

/* x in the shape of t: of as many elements; and repeated along dimensions of size 1. */
static inline gd_tensor *shaped_as(gd_tensor *x, const gd_tensor *t)
{
    return shaped(x, gd_tensor_ndim(t), gd_tensor_shape(t));
}

static inline gd_tensor *repeated_as(gd_tensor *x, const gd_tensor *t)
{
    return gd_expand(x, gd_tensor_ndim(t), gd_tensor_shape(t));
}

/* t [C] against the channels of x [B, C, ...]; NULL for NULL. */
gd_tensor *by_channel(gd_tensor *t, const gd_tensor *x);

/* The adjoint of broadcasting t: g summed over the axes along which t was repeated, in
 * t's shape. */
gd_tensor *sum_to(gd_tensor *g, const gd_tensor *t);

/* The adjoint of slicing t, from `start` on along an axis: g with zeros around it, in t's
 * size there. */
gd_tensor *among_zeros(gd_tensor *g, const gd_tensor *t, int axis, int64_t start);

/* ---- Normalisation ------------------------------------------------------------------------ */

/* x / sqrt(mean(x^2) + eps), over some axes. */
gd_tensor *of_unit_square(gd_tensor *x, const int *axes, int count, double eps);

/* x less its mean. */
gd_tensor *centred(gd_tensor *x, const int *axes, int count);

/* x weight + bias, each of which may be NULL. */
gd_tensor *scaled_and_shifted(gd_tensor *x, gd_tensor *weight, gd_tensor *bias);

#endif
