/* vector.h - vectors of REALs, as wide as those of the target processor.
 *
 * GCC and clang let + - * / work lane by lane on these types and choose the instructions. For
 * plain loops over arrays `#pragma omp simd` is enough; the types are for kernels that must keep
 * particular values in registers.
 */
#ifndef GRADUS_VECTOR_H
#define GRADUS_VECTOR_H

#include "kernel.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define VECTOR_REGISTERS 32
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define VECTOR_REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 32
#else
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 16
#endif

enum { LANES = VECTOR_BYTES / (int)sizeof(REAL) };

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES)));

/* A vector anywhere in an array of REALs. */
typedef REAL vec_at __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

static inline vec vec_load(const REAL *p)
{
    return *(const vec_at *)p;
}

static inline void vec_store(REAL *p, vec v)
{
    *(vec_at *)p = v;
}

/* The first n lanes, n <= LANES, whose elements have this many bytes. (A memcpy of a varying size
 * is slow.) */
static inline void lanes_store(void *to, const void *lanes, int64_t n, size_t element)
{
    char *p = to;
    const char *from = lanes;
#pragma GCC unroll 8
    for (int count = LANES; count > 0; count /= 2) {
        if (!(n & count)) continue;
        memcpy(p, from, (size_t)count * element);
        p += (size_t)count * element, from += (size_t)count * element;
    }
}

/* x in every lane (x - 0 is x, for every x). */
static inline vec vec_all(REAL x)
{
    return x - (vec){0};
}

#ifdef GD_REAL_DOUBLE
typedef int64_t lane_number;
#else
typedef int32_t lane_number;
#endif
typedef lane_number lanes __attribute__((vector_size(VECTOR_BYTES)));

/* 0, 1, 2 ... */
static inline lanes lane_numbers(void)
{
    lanes lane;
    for (int i = 0; i < LANES; i++) lane[i] = (lane_number)i;
    return lane;
}

/* v with the lanes i and i ^ s exchanged. */
static inline vec vec_exchange(vec v, int s)
{
#if defined(__clang__)
    vec result;
    for (int i = 0; i < LANES; i++) result[i] = v[i ^ s];
    return result;
#else
    return __builtin_shuffle(v, lane_numbers() ^ s);
#endif
}

/* Lanes 0, 2, 4 ... of p, then of q. */
static inline vec vec_even(vec p, vec q)
{
#if defined(__clang__)
    vec result;
    for (int i = 0; i < LANES; i++) result[i] = 2 * i < LANES ? p[2 * i] : q[2 * i - LANES];
    return result;
#else
    return __builtin_shuffle(p, q, 2 * lane_numbers());
#endif
}

/* LANES elements, `step` apart: 1 or 2. */
static inline vec vec_load_step(const REAL *p, int64_t step)
{
    return step == 1 ? vec_load(p) : vec_even(vec_load(p), vec_load(p + LANES));
}

/* p where `choice` is -1, the result of a true comparison; q where it is 0. */
static inline vec vec_choose(lanes choice, vec p, vec q)
{
    return (vec)(((lanes)p & choice) | ((lanes)q & ~choice));
}

/* The larger in each lane; q where p is NaN. */
static inline vec vec_larger(vec p, vec q)
{
    return vec_choose(p > q, p, q);
}

/* The sum and the largest of all lanes, in a tree. */
static inline REAL vec_sum(vec v)
{
    for (int s = LANES / 2; s > 0; s /= 2) v += vec_exchange(v, s);
    return v[0];
}

static inline REAL vec_largest(vec v)
{
    for (int s = LANES / 2; s > 0; s /= 2) v = vec_larger(v, vec_exchange(v, s));
    return v[0];
}

/* The transpose of a square of LANES vectors: for s = 1, 2, 4 ... exchanges bit s of the row number
 * with bit s of the lane number. */
static inline void vec_transpose(vec square[LANES])
{
#if defined(__clang__)
    vec rows[LANES];
    memcpy(rows, square, sizeof rows);
    for (int i = 0; i < LANES; i++) {
        for (int j = 0; j < LANES; j++) square[i][j] = rows[j][i];
    }
#else
    lanes lane = lane_numbers();
    /* Unrolled, the square stays in registers, and the lane numbers are constants. */
#pragma GCC unroll 8
    for (int s = 1; s < LANES; s *= 2) {
        /* Lanes 0 .. LANES - 1 are p's, the following q's: where the lane number has bit s, the
         * first takes q's lane without it, the second its own of q. */
        lanes set = (lane & s) != 0; /* -1 where it is */
        lanes first = lane + (set & (LANES - s)), second = first + s;
#pragma GCC unroll 64
        for (int i = 0; i < LANES; i++) {
            if (i & s) continue;
            vec p = square[i], q = square[i + s];
            square[i] = __builtin_shuffle(p, q, first);
            square[i + s] = __builtin_shuffle(p, q, second);
        }
    }
#endif
}

#endif
