// philox.cuh - the words of the random stream in kernels; philox.h on a GPU. random.h says how they
// are named.
#ifndef GD_PHILOX_CUH
#define GD_PHILOX_CUH

#include <curand_philox4x32_x.h>
#include <stdint.h>

#include "gradus/autograd.h"
#include "gradus/random.h"

// Words 4 block to 4 block + 3 of stream (seed, subsequence): cuRAND's Philox4x32-10, as
// curand_init(seed, subsequence, 4 * block, &state) and curand4(&state) would give them.
__device__ inline uint4 gd_philox_block(uint64_t seed, uint64_t subsequence, uint64_t block)
{
    const uint4 counter = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)subsequence,
                           (uint32_t)(subsequence >> 32)};
    const uint2 key = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return curand_Philox4x32_10(counter, key);
}

// A place in a random stream, at the start of a block (gd_random_take). In a graph that is replayed
// the arguments of a kernel stay, so there it reads where the run begins, and `offset` counts from
// there (gd_call.random_base).
struct gd_random_place {
    uint64_t seed, offset;
    const gd_random_state *base;

    __device__ gd_random_place here() const
    {
        if (!base) return *this;
        return {base->seed, base->offset + offset, nullptr};
    }
};

static inline gd_random_place gd_random_place_of(const gd_call *call)
{
    return {call->seed, call->random_offset, call->random_base};
}

#endif
