/* functions.h - the functions that unary.def and binary.def call, and those that other ops
 * have too. */
#ifndef GRADUS_FUNCTIONS_H
#define GRADUS_FUNCTIONS_H

#include "formulas.h"

/* ---- One variable ------------------------------------------------------------------------- */

/* 1 / (1 + e^-x) overflows for large negative x. Multiplied by e^x above and below, it does not:
 * e^x / (1 + e^x). Either way the exponential is of -|x|, at most 1. */
GD_FUNCTION REAL sigmoid(REAL x)
{
    REAL e = GD_EXP(-GD_MATH(fabs)(x));
    return gd_quotient(x < 0 ? e : 1, 1 + e);
}

/* silu, mish, gelu and gelu_tanh are x times a gate. Where the gate is 0, so is the product, at
 * -inf too, where 0 * inf would be NaN; and their slopes clamp x to a range beyond which they
 * are 0 or 1. */
GD_FUNCTION REAL within(REAL x, REAL limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

GD_FUNCTION REAL gated(REAL x, REAL gate, REAL limit)
{
    return (x < -limit ? -limit : x) * gate;
}

#define SILU_LIMIT ((REAL)1000) /* e^-1000 is 0 */

GD_FUNCTION REAL silu(REAL x)
{
    return gated(x, sigmoid(x), SILU_LIMIT);
}

/* (x s)' = s + x s', and s' = s (1 - s) for the sigmoid s. */
GD_FUNCTION REAL silu_slope(REAL x)
{
    REAL s = sigmoid(x);
    return s * (1 + within(x, SILU_LIMIT) * (1 - s)); /* [silu slope] */
}

/* tanh(ln(1 + e^x)) = ((1 + u)^2 - 1) / ((1 + u)^2 + 1), u = e^x: that is u (u + 2) / (u (u + 2) +
 * 2), and for positive x, with all divided by u^2 and e = 1 / u, (1 + 2 e) / (1 + 2 e + 2 e^2). */
GD_FUNCTION REAL mish_gate(REAL x)
{
    REAL e = GD_EXP(-GD_MATH(fabs)(x));
    REAL above = x < 0 ? e * (e + 2) : 1 + 2 * e;
    return gd_quotient(above, above + (x < 0 ? 2 : 2 * e * e));
}

#define MISH_LIMIT ((REAL)1000) /* e^-1000 is 0 */

GD_FUNCTION REAL mish(REAL x)
{
    return gated(x, mish_gate(x), MISH_LIMIT);
}

/* (x t)' = t + x t', and t' = (1 - t^2) s for t = tanh(softplus(x)), s = sigmoid(x). */
GD_FUNCTION REAL mish_slope(REAL x)
{
    REAL t = mish_gate(x);
    return t + within(x, MISH_LIMIT) * (1 - t * t) * sigmoid(x); /* [mish slope] */
}

/* ln(1 + e^x), with an exponential that is never more than 1. */
GD_FUNCTION REAL softplus(REAL x)
{
    return (x > 0 ? x : x != x ? x : 0) + GD_MATH(log1p)(GD_MATH(exp)(-GD_MATH(fabs)(x)));
}

/* Phi(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2, which keeps its digits for negative
 * x, where 1 + erf cancels. */
GD_FUNCTION REAL normal_cdf(REAL x)
{
    return GD_MATH(erfc)(x * -(REAL)0.70710678118654752440) / 2;
}

#define GELU_LIMIT ((REAL)100) /* phi and Phi of -100 are 0 */

GD_FUNCTION REAL gelu(REAL x)
{
    return gated(x, normal_cdf(x), GELU_LIMIT);
}

/* (x Phi(x))' = Phi(x) + x phi(x), phi(x) = e^(-x^2 / 2) / sqrt(2 pi). */
GD_FUNCTION REAL gelu_slope(REAL x)
{
    REAL c = within(x, GELU_LIMIT);
    REAL density = GD_MATH(exp)(c * c / -2) * (REAL)0.39894228040143267794;
    return normal_cdf(x) + c * density; /* [gelu slope] */
}

#define SQRT_2_OVER_PI ((REAL)0.79788456080286535588)
#define GELU_CUBIC ((REAL)0.044715)
#define GELU_TANH_LIMIT ((REAL)20) /* 1 + tanh(u) is 0 or 2 from there on */

GD_FUNCTION REAL gelu_tanh(REAL x)
{
    REAL u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
    return gated(x, (1 + GD_MATH(tanh)(u)) / 2, GELU_TANH_LIMIT);
}

/* With t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2, u' = sqrt(2 / pi) (1 + 3 0.044715 x^2). */
GD_FUNCTION REAL gelu_tanh_slope(REAL x)
{
    REAL c = within(x, GELU_TANH_LIMIT);
    REAL t = GD_MATH(tanh)(SQRT_2_OVER_PI * (c + GELU_CUBIC * c * c * c));
    REAL du = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * c * c);
    return (1 + t + c * (1 - t * t) * du) / 2; /* [gelu_tanh slope] */
}

GD_FUNCTION REAL erf_slope(REAL x)
{
    /* the factor is 2 / sqrt(pi) [erf slope] */
    return (REAL)1.12837916709551257390 * GD_MATH(exp)(-(x * x));
}

/* A fast path for squares; and for cubes on a GPU, whose pow is less exact than two products. */
GD_FUNCTION REAL power(REAL x, REAL p)
{
#ifdef __CUDACC__
    if (p == 3) return x * x * x;
#endif
    return p == 2 ? x * x : p == 1 ? x : GD_MATH(pow)(x, p);
}

/* The nearest number within [low, high]; NaN stays. */
GD_FUNCTION REAL clamp(REAL x, REAL low, REAL high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- Two variables ------------------------------------------------------------------------ */

/* NaN if either is. */
GD_FUNCTION REAL larger(REAL a, REAL b)
{
    return a > b || a != a ? a : b;
}

/* The part of the gradient of max(a, b) that goes to a. NaN, which is neither larger nor smaller,
 * gets all of it. */
GD_FUNCTION REAL share(REAL a, REAL b)
{
    return a < b ? 0 : a == b ? (REAL)0.5 : 1;
}

/* The backward fills dy with 0. */
GD_FUNCTION REAL masked(REAL x, bool mask, REAL value)
{
    return mask ? value : x; /* [masked_fill] */
}

/* The part of dy that goes to a, for which it is chosen, or to b. */
GD_FUNCTION REAL where_part(REAL dy, bool chosen)
{
    return chosen ? dy : 0; /* [where] */
}

/* d(a^b)/da = b a^(b - 1): 0 for b = 0 and any a. */
GD_FUNCTION REAL base_slope(REAL a, REAL b)
{
    return b == 0 ? 0 : b * GD_MATH(pow)(a, b - 1); /* [pow_tensor base] */
}

/* d(a^b)/db = a^b ln a: 0 for 0^b, b >= 0, which is the same beside it (but at b = 0). */
GD_FUNCTION REAL exponent_slope(REAL a, REAL b)
{
    /* [pow_tensor exponent] */
    return a == 0 && b >= 0 ? 0 : GD_MATH(pow)(a, b) * GD_MATH(log)(a);
}

#endif
