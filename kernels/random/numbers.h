/* numbers.h - one random word, or two, into a uniform number of type REAL; two or four into a pair
 * of normal ones.
 *
 * The same words must give the same bits on every machine and every device, so this uses neither a
 * library's log or sin, nor products and sums that a compiler may fuse: only additions, products,
 * one division, one square root and explicit fused multiply-adds, each of which IEEE 754 defines to
 * the last bit.
 *
 * The including file defines REAL, GD_MATH and, for double, GD_REAL_DOUBLE (kernel.h); random.cu
 * does so twice, in a namespace for each type, so there is no include guard. */

#ifdef __CUDACC__
#define GD_NUMBERS __device__ static inline
#else
#define GD_NUMBERS static inline
#endif

/* BITS is an unsigned integer as wide as REAL; gd_wide() makes one of WORDS_EACH words. */
#ifdef GD_REAL_DOUBLE
typedef uint64_t BITS;
typedef int64_t SIGNED_BITS;
enum {
    WIDTH = 64,
    WORDS_EACH = 2,
    MANTISSA = 52,
    UNIFORM_BITS = 53, /* of a number in [0, 1), so that each is exact */
    NORMAL_BITS = 53,  /* of the two uniform numbers behind a pair of normal ones */
    LOG_TERMS = 11,
    TRIG_TERMS = 9
};
GD_NUMBERS BITS gd_wide(const uint32_t *words)
{
    return (BITS)words[1] << 32 | words[0];
}
#else
typedef uint32_t BITS;
typedef int32_t SIGNED_BITS;
enum {
    WIDTH = 32,
    WORDS_EACH = 1,
    MANTISSA = 23,
    UNIFORM_BITS = 24,
    NORMAL_BITS = 32,
    LOG_TERMS = 5,
    TRIG_TERMS = 6
};
GD_NUMBERS BITS gd_wide(const uint32_t *words)
{
    return words[0];
}
#endif

/* low + range * u for u in [0, 1) from one number's words. Rounding, later to 16 bits too, may
 * carry it out of the interval: then it is the first or last number of the tensor's dtype that
 * is inside. */
GD_NUMBERS REAL gd_uniform_number(const uint32_t *words, REAL low, REAL range, REAL first,
                                  REAL last)
{
    const REAL unit = 1 / (REAL)((BITS)1 << UNIFORM_BITS);
    const REAL u = (REAL)(gd_wide(words) >> (WIDTH - UNIFORM_BITS)) * unit;
    const REAL value = GD_MATH(fma)(range, u, low);
    return value < first ? first : value < last ? value : last;
}

/* log u for a normal number u > 0. With u = 2^e m and m in [sqrt(1/2), sqrt(2)),
 *   log u = e ln 2 + log m,  log m = 2 artanh s = 2 s (1 + s^2/3 + s^4/5 + ...),  s = (m-1)/(m+1),
 * where s^2 < 0.03, so that LOG_TERMS terms reach the precision of REAL. */
GD_NUMBERS REAL gd_logarithm(REAL u)
{
    const REAL ln2 = (REAL)0.693147180559945309417232;
    const REAL sqrt_half = (REAL)0.707106781186547524400844;
    BITS bits, base;
    memcpy(&bits, &u, sizeof bits);
    memcpy(&base, &sqrt_half, sizeof base);

    /* The exponent of u / sqrt(1/2), by the order in which floating-point numbers are coded. */
    SIGNED_BITS e = (SIGNED_BITS)(bits - base) >> MANTISSA;
    bits -= (BITS)e << MANTISSA;
    REAL m;
    memcpy(&m, &bits, sizeof m);

    REAL s = (m - 1) / (m + 1), s2 = s * s, series = 0;
#ifndef __CUDACC__
#pragma GCC unroll 16
#endif
    for (int k = LOG_TERMS - 1; k >= 0; k--)
        series = GD_MATH(fma)(series, s2, (REAL)1 / (REAL)(2 * k + 1));
    return GD_MATH(fma)((REAL)e, ln2, 2 * s * series);
}

/* Sine and cosine of (r + 1/2) / 2^NORMAL_BITS turns. The integer says exactly which quarter turn
 * q is nearest and what angle x in [-pi/4, pi/4] is left, for which Taylor's series are nested:
 *   sin x = x (1 - x^2/(2*3) (1 - x^2/(4*5) (1 - ...)))
 *   cos x = 1 - x^2/(1*2) (1 - x^2/(3*4) (1 - ...)) */
GD_NUMBERS void gd_sine_cosine(BITS r, REAL *sine, REAL *cosine)
{
    const double pi = 3.141592653589793238462643;
    const REAL unit = (REAL)(pi / 2 / (WIDTH == 64 ? 0x1p64 : 0x1p32));
    const REAL half = (REAL)(pi / (NORMAL_BITS == 53 ? 0x1p53 : 0x1p32));
    const int q = (int)((r >> (NORMAL_BITS - 2)) + ((r >> (NORMAL_BITS - 3)) & 1));
    REAL x = GD_MATH(fma)((REAL)(SIGNED_BITS)(r << (WIDTH - NORMAL_BITS + 2)), unit, half);

    REAL minus_x2 = -(x * x), s = 1, c = 1;
#ifndef __CUDACC__
#pragma GCC unroll 16
#endif
    for (int k = TRIG_TERMS - 1; k >= 1; k--) {
        s = GD_MATH(fma)(minus_x2 * ((REAL)1 / (REAL)(2 * k * (2 * k + 1))), s, (REAL)1);
        c = GD_MATH(fma)(minus_x2 * ((REAL)1 / (REAL)(2 * k * (2 * k - 1))), c, (REAL)1);
    }
    s *= x;
    REAL odd = q & 1 ? c : s, even = q & 1 ? s : c;
    *sine = q & 2 ? -odd : odd;
    *cosine = (q + 1) & 2 ? -even : even;
}

/* Box & Muller 1958: for u, v uniform in (0, 1), sqrt(-2 log u) (sin 2 pi v, cos 2 pi v) are two
 * independent normal numbers. */
GD_NUMBERS void gd_normal_pair(const uint32_t *words, REAL mean, REAL stddev, REAL *pair)
{
    const REAL unit = (REAL)1 / (REAL)((BITS)1 << (NORMAL_BITS - 1)) / 2;
    REAL u = GD_MATH(fma)((REAL)(gd_wide(words) >> (WIDTH - NORMAL_BITS)), unit, unit / 2);
    REAL sine, cosine;
    gd_sine_cosine(gd_wide(words + WORDS_EACH) >> (WIDTH - NORMAL_BITS), &sine, &cosine);
    REAL radius = stddev * GD_MATH(sqrt)(-2 * gd_logarithm(u));
    pair[0] = GD_MATH(fma)(radius, sine, mean);
    pair[1] = GD_MATH(fma)(radius, cosine, mean);
}
