/* formulas.h - how formulas are written once for all devices: kernels/NAME/formula.h has an op's.
 *
 * A formula is a function in the common subset of C and CUDA, GD_FUNCTION REAL NAME(REAL x ...).
 * REAL is the type of an op's numbers and ACC that of its sums, neither of 16 bits: loops widen. In
 * C, REAL is float or double, as the file is compiled twice (kernel.h), and ACC is double. In CUDA
 * each function is a template, and both are its parameters; there exp is the name for both types,
 * while C has expf and exp. A file of loops may define, before it includes formulas,
 *
 *     GD_EXP, GD_TANH      the exponential and tanh that its loops call (inline_exp.h)
 *     GD_EXACT_QUOTIENT    that quotients of floats are rounded correctly, in CUDA too */
#ifndef GRADUS_FORMULAS_H
#define GRADUS_FORMULAS_H

#ifdef __CUDACC__
#define GD_FUNCTION                                 \
    template <class REAL = float, class ACC = REAL> \
    __device__ inline
#define GD_MATH(function) ::function
#define GD_RSQRT ::rsqrt
/* a / b within two units in the last place, in far fewer instructions; b up to 2^126. */
__device__ inline float gd_quotient(float a, float b)
{
#ifdef GD_EXACT_QUOTIENT
    return a / b;
#else
    return __fdividef(a, b);
#endif
}
__device__ inline double gd_quotient(double a, double b)
{
    return a / b;
}
#else
#include "kernel.h"
#include "vector_math.h"
#define GD_FUNCTION static inline
#define ACC double
#define gd_quotient(a, b) ((a) / (b))
#define GD_RSQRT(x) (1 / GD_MATH(sqrt)(x))
#endif

#ifndef GD_EXP
#define GD_EXP GD_MATH(exp)
#endif
#ifndef GD_TANH
#define GD_TANH GD_MATH(tanh)
#endif

#endif
