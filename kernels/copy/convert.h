/* convert.h - one number from one dtype to another.
 *
 * The 16-bit formats are float32 with bits missing. In float32 a number has 1 bit of sign, 8 of
 * exponent and 23 of mantissa; bfloat16 keeps all of the exponent and 7 bits of the mantissa;
 * float16 has 5 bits of exponent and 10 of mantissa:
 *
 *     float32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *     bfloat16  s eeeeeeee mmmmmmm
 *     float16   s eeeee mmmmmmmmmm
 *
 * Every conversion rounds once, to nearest, ties to even. Written on the bits as integers, without
 * branches, so that loops over them vectorise.
 */
#ifndef GRADUS_CONVERT_H
#define GRADUS_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "gradus/tensor.h"

static inline uint32_t gd_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gd_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float gd_bf16_to_f32(uint16_t half)
{
    return gd_f32_from_bits((uint32_t)half << 16);
}

/* Dropping 16 bits rounds down. Adding just under half of what is dropped, and one more if the bit
 * that stays is odd, makes it round to nearest even; a carry into the exponent is correct, up to
 * infinity. A NaN keeps its upper bits and is made quiet, so that it cannot become infinity.
 */
static inline uint16_t gd_f32_to_bf16(float value)
{
    uint32_t bits = gd_f32_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* A normal float16 has its exponent biased by 15 instead of 127. A subnormal one is its mantissa
 * times 2^-24. Infinity and NaN have all exponent bits set in both formats. */
static inline float gd_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000;
    uint32_t subnormal = gd_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude < 0x0400 ? subnormal : magnitude < 0x7c00 ? normal : special;
    return gd_f32_from_bits(sign | bits);
}

static inline uint16_t gd_f32_to_f16(float value)
{
    uint32_t bits = gd_f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    /* As in gd_f32_to_bf16, with the exponent's bias changed. */
    uint32_t normal = (magnitude - ((127 - 15) << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13;
    /* Near 0.5 float32 has steps of 2^-24, as subnormal float16 have: the sum rounds. */
    uint32_t subnormal = gd_f32_bits(gd_f32_from_bits(magnitude) + 0.5f) - 0x3f000000;
    uint32_t special = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x03ff) : 0x7c00;
    uint32_t half = magnitude < 0x38800000    ? subnormal /* below 2^-14 */
                    : magnitude >= 0x477ff000 ? special   /* from 65520 on, nearer to 2^16 */
                                              : normal;
    return (uint16_t)(sign | half);
}

/* To float32, rounded to odd: to the neighbour whose last bit is 1, unless the value is exact. As
 * the odd bit says "there is more", rounding the result to nearest in a format that is at least
 * two bits shorter gives what rounding the double at once would have given (Boldo & Melquiond
 * 2008, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd"). */
static inline float gd_f64_to_f32_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits = gd_f32_bits(nearest);
    double below = value < 0 ? -value : value, at = nearest < 0 ? -nearest : nearest;
    uint32_t odd = (bits & 1) ? bits : at > below ? bits - 1 : at < below ? bits + 1 : bits;
    return gd_f32_from_bits(odd);
}

static inline uint16_t gd_f64_to_bf16(double value)
{
    return gd_f32_to_bf16(gd_f64_to_f32_odd(value));
}

static inline uint16_t gd_f64_to_f16(double value)
{
    return gd_f32_to_f16(gd_f64_to_f32_odd(value));
}

/* Truncates and saturates; NaN becomes 0. */
static inline int32_t gd_f64_to_i32(double value)
{
    double low = value > -2147483648.0 ? value : -2147483648.0;
    double fits = low < 2147483647.0 ? low : 2147483647.0;
    return value == value ? (int32_t)fits : 0;
}

/* Converts n elements from `src` to `dst`, with strides in elements. */
typedef void gd_converter(void *dst, int64_t dst_stride, const void *src, int64_t src_stride,
                          int64_t n);

/* The loop for a pair of dtypes. */
gd_converter *gd_find_converter(gd_dtype to, gd_dtype from);

#endif
