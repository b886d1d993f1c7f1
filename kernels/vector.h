/* vector.h - vectors of REALs, as wide as the processor that we compile for has them.
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

/* x in every lane (x - 0 is x, for every x). */
static inline vec vec_all(REAL x)
{
    return x - (vec){0};
}

#endif
