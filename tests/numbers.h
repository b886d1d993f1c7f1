/* numbers.h - random numbers, and numbers of each dtype: their rounding, and how they lie in memory. In
 * C and in C++; it shares no code with the library. */
#ifndef GRADUS_NUMBERS_H
#define GRADUS_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/tensor.h"

/* ---- Random numbers ----------------------------------------------------------------------- */

/* GRADUS_TEST_SEED=5 in the environment: other random numbers in every test that draws them with
 * random_bits() or by a case of a record, and that must pass for them, too. */
static inline uint64_t test_seed(void)
{
    static uint64_t seed = UINT64_MAX;
    if (seed == UINT64_MAX)
        seed = getenv("GRADUS_TEST_SEED") ? strtoull(getenv("GRADUS_TEST_SEED"), NULL, 10) : 0;
    return seed;
}

/* SplitMix64 (Steele, Lea & Flood 2014): any seed works, each gives another sequence. */
static inline uint64_t random_bits(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15) + (test_seed() << 32);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* In [low, high). */
static inline double random_in(uint64_t *seed, double low, double high)
{
    return low + (high - low) * (double)(random_bits(seed) >> 11) * 0x1p-53;
}

/* True with probability p. */
static inline bool random_chance(uint64_t *seed, double p)
{
    return random_in(seed, 0, 1) < p;
}

/* 0 .. n - 1 */
static inline int64_t random_below(uint64_t *seed, int64_t n)
{
    return (int64_t)(random_bits(seed) % (uint64_t)n);
}

/* low .. high, both of them */
static inline int64_t random_size(uint64_t *seed, int64_t low, int64_t high)
{
    return low + random_below(seed, high - low + 1);
}

/* ---- Rounding ------------------------------------------------------------------------------- */

/* The distance between neighbouring numbers of a dtype around a value. */
static inline double ulp_of(double value, gd_dtype dtype)
{
    static const int bits[] = {23, 52, 7, 10, 0}, lowest[] = {-126, -1022, -126, -14, 0};
    int exponent = value == 0 || !isfinite(value) ? lowest[dtype] : ilogb(value);
    if (exponent < lowest[dtype]) exponent = lowest[dtype];
    return ldexp(1, exponent - bits[dtype]);
}

/* The nearest number of that dtype, ties to even (its range is taken to be endless). */
static inline double rounded(double value, gd_dtype dtype)
{
    double ulp = ulp_of(value, dtype);
    return isfinite(value) ? nearbyint(value / ulp) * ulp : value;
}

/* The most that rounding to a dtype changes a number near 1. */
static inline double rounding_of(gd_dtype dtype)
{
    return ulp_of(1, dtype) / 2;
}

/* ---- In memory ------------------------------------------------------------------------------ */

/* Number i of an array. The exponent of a float16 is that of a float and 112. */
static inline double stored_number(const void *array, gd_dtype dtype, int64_t i)
{
    if (dtype == GD_FLOAT32) return ((const float *)array)[i];
    if (dtype == GD_FLOAT64) return ((const double *)array)[i];
    const uint32_t half = ((const uint16_t *)array)[i];
    uint32_t bits = half << 16;
    if (dtype == GD_FLOAT16) bits = (half & 0x8000) << 16 | (half & 0x7fff) << 13;
    const bool finite = dtype == GD_BFLOAT16 || (half & 0x7c00) < 0x7c00;
    if (!finite) bits |= 0x7f800000;
    float number;
    memcpy(&number, &bits, sizeof number);
    return dtype == GD_FLOAT16 && finite ? number * 0x1p112f : number;
}

static inline void store_number(void *array, gd_dtype dtype, int64_t i, double value)
{
    if (dtype == GD_FLOAT64) ((double *)array)[i] = value;
    if (dtype == GD_FLOAT32) ((float *)array)[i] = (float)value;
    if (dtype == GD_FLOAT32 || dtype == GD_FLOAT64) return;
    float number = (float)rounded(value, dtype);
    if (dtype == GD_FLOAT16) number *= fabs(value) < 65520 ? 0x1p-112f : INFINITY;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (dtype == GD_FLOAT16) bits = (bits >> 16 & 0x8000) | (bits >> 13 & 0x7fff);
    ((uint16_t *)array)[i] = (uint16_t)(dtype == GD_FLOAT16 ? bits : bits >> 16);
}

#endif
