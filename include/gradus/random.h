/* random.h - counter-based random numbers: the same seed gives the same bits everywhere.
 *
 * Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a key
 * and a counter into four random 32-bit words, with no state in between; so any word of the stream
 * can be computed by any thread, on any device, in any order. We name a word as cuRAND's Philox
 * generator does:
 *
 *     word(seed, subsequence, offset) = philox(key = seed, counter = {offset / 4, subsequence})
 *                                       [offset mod 4]
 *
 * with both halves of the counter 64 bits wide, so that curand_init(seed, subsequence, offset)
 * followed by curand() gives the same word.
 *
 * A context holds (seed, subsequence 0, offset). Each random op or fill takes the next words of the
 * stream, rounded up to a multiple of four, and advances the offset. Restoring these two numbers
 * repeats everything that follows.
 */
#ifndef GRADUS_RANDOM_H
#define GRADUS_RANDOM_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_random_state {
    uint64_t seed;
    uint64_t offset; /* in words */
} gd_random_state;

GD_API gd_random_state gd_random_get(const gd_context *ctx);
GD_API void gd_random_set(gd_context *ctx, gd_random_state state);

/* Takes `count` words of the context's stream (rounded up to a multiple of 4) and returns the
 * offset of the first. */
GD_API uint64_t gd_random_take(gd_context *ctx, uint64_t count);

/* Words `offset` to `offset + count - 1` of a stream, on the host. */
GD_API void gd_philox(uint64_t seed, uint64_t subsequence, uint64_t offset, int64_t count,
                      uint32_t *words);

/* Fills t from the context's stream. Element i uses word i (words 2i and 2i+1 for GD_FLOAT64).
 *
 *   uniform   low + (high - low) * u, u in [0, 1) with 24 random bits (53 for GD_FLOAT64); what t's
 *             dtype rounds out of [low, high) is the first or last number of that dtype inside (if
 *             there is none, low rounded)
 *   normal    Box-Muller on words (2j, 2j+1) for elements 2j and 2j+1, sine first, as cuRAND
 *             (for GD_FLOAT64 on pairs of 53-bit uniforms)
 *   integers  GD_INT32: low + floor(word * (high - low) / 2^32), high - low at most 2^32; the
 *             bias is below (high - low) / 2^32
 *   permutation  GD_INT32 of shape [n]: 0 .. n-1 in random order (Fisher-Yates on words 2i, 2i+1)
 */
GD_API gd_status gd_random_uniform(gd_tensor *t, double low, double high);
GD_API gd_status gd_random_normal(gd_tensor *t, double mean, double stddev);
GD_API gd_status gd_random_integers(gd_tensor *t, int64_t low, int64_t high);
GD_API gd_status gd_random_permutation(gd_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
