/* random_cpu.c - random words into uniform and normal numbers of type REAL.
 *
 * The same words shall give the same bits on every machine, so nothing here is left to a library's
 * log or sin, nor to the compiler's choice of fusing a product with a sum: it is additions,
 * products, one division, one square root and explicit fused multiply-adds, each of which IEEE 754
 * defines to the last bit. */
#include "kernel.h"

#include "random/random.h"

#define FMA GD_MATH(fma)

/* BITS is an unsigned integer as wide as REAL; wide() makes one of WORDS_EACH words. */
#ifdef GD_REAL_DOUBLE
typedef uint64_t BITS;
typedef int64_t SIGNED_BITS;
#define WIDTH 64
#define WORDS_EACH 2
#define MANTISSA 52
#define UNIFORM_BITS 53 /* of a number in [0, 1), so that each is exact */
#define NORMAL_BITS 53  /* of the two uniform numbers behind a pair of normal ones */
#define LOG_TERMS 11
#define TRIG_TERMS 9
static inline BITS wide(const uint32_t *words)
{
    return (BITS)words[1] << 32 | words[0];
}
#else
typedef uint32_t BITS;
typedef int32_t SIGNED_BITS;
#define WIDTH 32
#define WORDS_EACH 1
#define MANTISSA 23
#define UNIFORM_BITS 24
#define NORMAL_BITS 32
#define LOG_TERMS 5
#define TRIG_TERMS 6
static inline BITS wide(const uint32_t *words)
{
    return words[0];
}
#endif

#define PI 3.141592653589793238462643
#define LN2 0.693147180559945309417232
#define EXPONENT_BIAS ((1 << (WIDTH - MANTISSA - 2)) - 1)

void GD_REAL_NAME(gd_uniform_from_words)(void *out, const uint32_t *words, int64_t n, double low,
                                         double high)
{
    REAL *restrict y = out;
    const REAL a = (REAL)low, range = (REAL)(high - low);
    const REAL unit = 1 / (REAL)((BITS)1 << UNIFORM_BITS);
    /* Rounding may carry a + range * u up to `high` itself, which is not in [low, high). */
    const REAL last = GD_MATH(nextafter)((REAL)high, (REAL)low);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL u = (REAL)(wide(words + WORDS_EACH * i) >> (WIDTH - UNIFORM_BITS)) * unit;
        REAL value = FMA(range, u, a);
        y[i] = value < last ? value : last;
    }
}

/* log u for a normal number u > 0. With u = 2^e m and m in [sqrt(1/2), sqrt(2)),
 *   log u = e ln 2 + log m,  log m = 2 artanh s = 2 s (1 + s^2/3 + s^4/5 + ...),  s = (m-1)/(m+1),
 * where s^2 < 0.03, so that LOG_TERMS terms reach the precision of REAL. */
static inline REAL logarithm(REAL u)
{
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
#pragma GCC unroll 16
    for (int k = LOG_TERMS - 1; k >= 0; k--) series = FMA(series, s2, (REAL)1 / (REAL)(2 * k + 1));
    return FMA((REAL)e, (REAL)LN2, 2 * s * series);
}

/* Sine and cosine of (r + 1/2) / 2^NORMAL_BITS turns. The integer says exactly which quarter turn
 * q is nearest and what angle x in [-pi/4, pi/4] is left, for which Taylor's series are nested:
 *   sin x = x (1 - x^2/(2*3) (1 - x^2/(4*5) (1 - ...)))
 *   cos x = 1 - x^2/(1*2) (1 - x^2/(3*4) (1 - ...)) */
static inline void sine_cosine(BITS r, REAL *sine, REAL *cosine)
{
    const REAL unit = (REAL)(PI / 2 / (WIDTH == 64 ? 0x1p64 : 0x1p32));
    const REAL half = (REAL)(PI / (NORMAL_BITS == 53 ? 0x1p53 : 0x1p32));
    const int q = (int)((r >> (NORMAL_BITS - 2)) + ((r >> (NORMAL_BITS - 3)) & 1));
    REAL x = FMA((REAL)(SIGNED_BITS)(r << (WIDTH - NORMAL_BITS + 2)), unit, half);

    REAL minus_x2 = -(x * x), s = 1, c = 1;
#pragma GCC unroll 16
    for (int k = TRIG_TERMS - 1; k >= 1; k--) {
        s = FMA(minus_x2 * ((REAL)1 / (REAL)(2 * k * (2 * k + 1))), s, 1);
        c = FMA(minus_x2 * ((REAL)1 / (REAL)(2 * k * (2 * k - 1))), c, 1);
    }
    s *= x;
    REAL odd = q & 1 ? c : s, even = q & 1 ? s : c;
    *sine = q & 2 ? -odd : odd;
    *cosine = (q + 1) & 2 ? -even : even;
}

/* Box & Muller 1958: for u, v uniform in (0, 1), sqrt(-2 log u) (sin 2 pi v, cos 2 pi v) are two
 * independent normal numbers. */
void GD_REAL_NAME(gd_normal_from_words)(void *out, const uint32_t *words, int64_t n, double mean,
                                        double stddev)
{
    REAL *restrict y = out;
    const REAL unit = (REAL)1 / (REAL)((BITS)1 << (NORMAL_BITS - 1)) / 2;
    const REAL mu = (REAL)mean, sigma = (REAL)stddev;
    const int64_t pairs = n / 2 + n % 2;
#pragma omp simd
    for (int64_t j = 0; j < pairs; j++) {
        const uint32_t *pair = words + 2 * WORDS_EACH * j;
        REAL u = FMA((REAL)(wide(pair) >> (WIDTH - NORMAL_BITS)), unit, unit / 2);
        REAL sine, cosine;
        sine_cosine(wide(pair + WORDS_EACH) >> (WIDTH - NORMAL_BITS), &sine, &cosine);
        REAL radius = sigma * GD_MATH(sqrt)(-2 * logarithm(u));
        y[2 * j] = FMA(radius, sine, mu);
        y[2 * j + 1] = FMA(radius, cosine, mu);
    }
}
