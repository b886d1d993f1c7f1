/* random_cpu.c - random words into arrays of uniform and normal numbers of type REAL. */
#include "kernel.h"

#include "random/numbers.h"
#include "random/random.h"

void GD_REAL_NAME(gd_uniform_from_words)(void *out, const uint32_t *words, int64_t n,
                                         const gd_distribution *d)
{
    REAL *restrict y = out;
    const REAL low = (REAL)d->a, range = (REAL)(d->b - d->a);
    const REAL first = (REAL)d->first, last = (REAL)d->last;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gd_uniform_number(words + WORDS_EACH * i, low, range, first, last);
}

void GD_REAL_NAME(gd_normal_from_words)(void *out, const uint32_t *words, int64_t n,
                                        const gd_distribution *d)
{
    REAL *restrict y = out;
    const REAL mu = (REAL)d->a, sigma = (REAL)d->b;
    const int64_t pairs = n / 2 + n % 2;
#pragma omp simd
    for (int64_t j = 0; j < pairs; j++)
        gd_normal_pair(words + 2 * WORDS_EACH * j, mu, sigma, y + 2 * j);
}
