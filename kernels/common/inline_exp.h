/* inline_exp.h - e^x and tanh(x) as plain arithmetic, for the inside of `#pragma omp simd` loops.
 *
 * With n the whole number nearest to x / ln 2 and r = x - n ln 2, |r| <= 0.35:
 *
 *     e^x = 2^n e^r,    e^r = 1 + r + r^2/2! + ... + r^m/m!
 *
 * up to m = 7 for float (the truncation error is below 6e-9 of the sum) and 13 for double (5e-18),
 * so that the error is that of rounding. n ln 2 is subtracted in two parts, the first with so few
 * bits that its product with n is exact. 2^n is added to the exponent's bits.
 *
 * For x up to 88 (709 for double). Below -87 (-708), where results would be subnormal, it is 0; at
 * -inf too, without the slow path of library functions, which matters for masked scores. NaN gives
 * NaN.
 */
#ifndef GRADUS_INLINE_EXP_H
#define GRADUS_INLINE_EXP_H

#include "kernel.h"

static inline REAL inline_exp(REAL x)
{
#ifdef GD_REAL_DOUBLE
    typedef uint64_t bits;
    enum { TERMS = 13, MANTISSA = 52 };
    const REAL round = 0x1.8p52, low = -708, ln2_high = 0x1.62e42feep-1,
               ln2_low = 0x1.a39ef35793c76p-33;
#else
    typedef uint32_t bits;
    enum { TERMS = 7, MANTISSA = 23 };
    const REAL round = 0x1.8p23f, low = -87, ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
#endif
    static const REAL over_factorial[] = {1,
                                          1,
                                          (REAL)(1. / 2),
                                          (REAL)(1. / 6),
                                          (REAL)(1. / 24),
                                          (REAL)(1. / 120),
                                          (REAL)(1. / 720),
                                          (REAL)(1. / 5040),
                                          (REAL)(1. / 40320),
                                          (REAL)(1. / 362880),
                                          (REAL)(1. / 3628800),
                                          (REAL)(1. / 39916800),
                                          (REAL)(1. / 479001600),
                                          (REAL)(1. / 6227020800)};
    /* A number so large has no fraction bits: adding it rounds, and leaves n in the last bits. */
    REAL shifted = x * (REAL)1.4426950408889634 + round;
    REAL n = shifted - round;
    REAL r = (x - n * ln2_high) - n * ln2_low;
    REAL sum = over_factorial[TERMS];
    for (int k = TERMS - 1; k >= 0; k--) sum = sum * r + over_factorial[k];
    bits exponent, result;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&result, &sum, sizeof result);
    result += exponent << MANTISSA;
    memcpy(&sum, &result, sizeof sum);
    return x < low ? 0 : sum;
}

/* (1 - e) / (1 + e) with e = exp(-2 |x|) cancels near 0, where the series of tanh is used for
 * float; a double needs too many of its terms. */
static inline REAL inline_tanh(REAL x)
{
#ifdef GD_REAL_DOUBLE
    return tanh(x);
#else
    const REAL size = fabsf(x), e = inline_exp(-2 * size), s = x * x;
    const REAL series =
        x + x * s *
                (-1 / 3.0f + s * (2 / 15.0f + s * (-17 / 315.0f +
                                                   s * (62 / 2835.0f + s * (-1382 / 155925.0f)))));
    const REAL far = (1 - e) / (1 + e);
    return size < 0.35f ? series : x < 0 ? -far : far;
#endif
}

#endif
