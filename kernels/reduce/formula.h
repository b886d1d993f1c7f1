/* formula.h - the reductions: what an element x of n gets of the gradient dy of its result y. */
#ifndef GRADUS_REDUCE_FORMULA_H
#define GRADUS_REDUCE_FORMULA_H

#include "formulas.h"

GD_FUNCTION REAL sum_dx(REAL dy)
{
    return dy; /* [sum] */
}

GD_FUNCTION ACC mean_share(ACC dy, ACC n)
{
    return dy / n; /* [mean] */
}

/* A NaN result came from the NaN elements. */
GD_FUNCTION bool reduce_same(REAL x, REAL y)
{
    return x == y || (x != x && y != y);
}

/* k elements are equal to the maximum. */
GD_FUNCTION ACC max_share(ACC dy, ACC k)
{
    return dy / k; /* [max share] */
}

GD_FUNCTION REAL max_dx(REAL share, REAL x, REAL y)
{
    return reduce_same(x, y) ? share : 0; /* [max] */
}

/* Where y is -inf all x are, and none has an influence: 0, not the NaN of inf - inf. */
GD_FUNCTION REAL logsumexp_dx(REAL dy, REAL x, REAL y)
{
    const REAL weight = GD_EXP(x - y); /* [logsumexp] */
    return y == -(REAL)INFINITY ? 0 : dy * weight;
}

/* divisor is n - correction. */
GD_FUNCTION ACC var_share(ACC dy, ACC divisor)
{
    return dy * (2 / divisor); /* [var_factor] */
}

/* Equal elements have no distances: 0, not the NaN of 0 / 0. */
GD_FUNCTION ACC std_share(ACC dy, ACC divisor, ACC deviation)
{
    return deviation == 0 ? 0 : dy / (divisor * deviation); /* [std_factor] */
}

GD_FUNCTION ACC var_distance(ACC x, ACC mean)
{
    return x - mean; /* [distance] */
}

GD_FUNCTION ACC var_dx(ACC share, ACC d)
{
    return share * d; /* [var] [std] */
}

/* Whether the product of the elements but x is 0, of a group with so many zeros. */
GD_FUNCTION bool prod_of_others_is_zero(ACC zeros, ACC x)
{
    return zeros > 1 || (zeros == 1 && x != 0); /* [prod zeros] */
}

/* product is dy y. */
GD_FUNCTION ACC prod_dx(ACC product, ACC x)
{
    return product / x; /* [prod] */
}

/* -1, 0 or 1; NaN for NaN. */
GD_FUNCTION REAL reduce_sign(REAL x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x * 0;
}

GD_FUNCTION bool norm_is_flat(REAL x, REAL p)
{
    return x == 0 || p == 0; /* [norm at 0] */
}

GD_FUNCTION REAL norm_max_dx(REAL x, REAL y)
{
    return reduce_same(GD_MATH(fabs)(x), y) ? reduce_sign(x) : 0; /* [norm max] */
}

/* power is (|x| / y)^(p - 1). */
GD_FUNCTION REAL norm_dx(REAL x, REAL power)
{
    return reduce_sign(x) * power; /* [norm] */
}

#endif
