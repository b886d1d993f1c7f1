/* random.h - shared by the files of this folder: the services of random.c (src/core/services.h)
 * divide an array into pieces, compute each piece's words, and pass both to a function of
 * random_cpu.c, which exists for float and for double. */
#ifndef GRADUS_KERNELS_RANDOM_H
#define GRADUS_KERNELS_RANDOM_H

#include <stdint.h>

typedef struct gd_distribution {
    double a, b;        /* low and high, or mean and standard deviation */
    double first, last; /* uniform: the outermost numbers of the dtype in [low, high) */
} gd_distribution;

/* y[i] = low + (high - low) u_i, in [first, last]; n elements from n words (float) or
 * 2n (double) */
void gd_uniform_from_words_f32(void *y, const uint32_t *words, int64_t n, const gd_distribution *d);
void gd_uniform_from_words_f64(void *y, const uint32_t *words, int64_t n, const gd_distribution *d);

/* y[i] = mean + stddev * z_i; y has room for n rounded up to an even number, as do the words */
void gd_normal_from_words_f32(void *y, const uint32_t *words, int64_t n, const gd_distribution *d);
void gd_normal_from_words_f64(void *y, const uint32_t *words, int64_t n, const gd_distribution *d);

#endif
