/* functions.h - the functions that unary.def and binary.def call, written once for all devices.
 *
 * In C, REAL is float or double by the way the file is compiled (kernel.h). In CUDA each function
 * is a template, and REAL its parameter; there one name, exp, serves both types, where C has expf
 * and exp. */
#ifndef GRADUS_FUNCTIONS_H
#define GRADUS_FUNCTIONS_H

#ifdef __CUDACC__
#define GD_FUNCTION       \
    template <class REAL> \
    __device__ inline
#define GD_MATH(function) ::function
#else
#include "kernel.h"
#include "vector_math.h"
#define GD_FUNCTION static inline
#endif

/* ---- One variable ------------------------------------------------------------------------- */

/* 1 / (1 + e^-x) overflows for large negative x. Multiplied by e^x above and below, it does not:
 * e^x / (1 + e^x). Either way the exponential is of -|x|, at most 1. */
GD_FUNCTION REAL sigmoid(REAL x)
{
    REAL e = GD_MATH(exp)(-GD_MATH(fabs)(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* (x s)' = s + x s', and s' = s (1 - s) for the sigmoid s. */
GD_FUNCTION REAL silu_slope(REAL x)
{
    REAL s = sigmoid(x);
    return s * (1 + x * (1 - s)); /* [silu slope] */
}

/* Phi(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2, which keeps its digits for negative
 * x, where 1 + erf cancels. */
GD_FUNCTION REAL normal_cdf(REAL x)
{
    return GD_MATH(erfc)(x * -(REAL)0.70710678118654752440) / 2;
}

/* (x Phi(x))' = Phi(x) + x phi(x), phi(x) = e^(-x^2 / 2) / sqrt(2 pi). */
GD_FUNCTION REAL gelu_slope(REAL x)
{
    REAL density = GD_MATH(exp)(x * x / -2) * (REAL)0.39894228040143267794;
    return normal_cdf(x) + x * density; /* [gelu slope] */
}

#define SQRT_2_OVER_PI ((REAL)0.79788456080286535588)
#define GELU_CUBIC ((REAL)0.044715)

GD_FUNCTION REAL gelu_tanh(REAL x)
{
    REAL u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
    return x * (1 + GD_MATH(tanh)(u)) / 2;
}

/* With t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2, u' = sqrt(2 / pi) (1 + 3 0.044715 x^2). From
 * |x| = 20 on 1 - t^2 is 0, and x stays there so that x u' cannot become infinite. */
GD_FUNCTION REAL gelu_tanh_slope(REAL x)
{
    REAL c = x > 20 ? 20 : x < -20 ? -20 : x;
    REAL t = GD_MATH(tanh)(SQRT_2_OVER_PI * (c + GELU_CUBIC * c * c * c));
    REAL du = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * c * c);
    return (1 + t + c * (1 - t * t) * du) / 2; /* [gelu_tanh slope] */
}

/* Squares are worth a short cut. */
GD_FUNCTION REAL power(REAL x, REAL p)
{
    return p == 2 ? x * x : p == 1 ? x : GD_MATH(pow)(x, p);
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

#endif
