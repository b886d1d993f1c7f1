/* philox.h - the words of the random stream, for kernels. random.h says how they are named.
 *
 * Philox4x32-10 is a bijection on 128-bit counters under a 64-bit key: ten rounds of two 32 x 32
 * bit products, whose halves are exchanged and mixed with the key. Here the counter is
 * {block, subsequence}, 64 bits each, and one call gives the four words of a block. */
#ifndef GRADUS_KERNELS_PHILOX_H
#define GRADUS_KERNELS_PHILOX_H

#include <stdint.h>

#include <Random123/philox.h>

/* words[4 * blocks] = the words of `blocks` blocks, beginning with `block`. Every block depends on
 * its number alone, so the compiler computes as many at once as the processor has lanes. */
static inline void gd_philox_blocks(uint64_t seed, uint64_t subsequence, uint64_t block,
                                    int64_t blocks, uint32_t *restrict words)
{
    const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const uint32_t subsequence_low = (uint32_t)subsequence;
    const uint32_t subsequence_high = (uint32_t)(subsequence >> 32);
#pragma omp simd
    for (int64_t i = 0; i < blocks; i++) {
        uint64_t number = block + (uint64_t)i;
        philox4x32_ctr_t counter = {
            {(uint32_t)number, (uint32_t)(number >> 32), subsequence_low, subsequence_high}};
        philox4x32_ctr_t out = philox4x32(counter, key);
        words[4 * i] = out.v[0];
        words[4 * i + 1] = out.v[1];
        words[4 * i + 2] = out.v[2];
        words[4 * i + 3] = out.v[3];
    }
}

#endif
