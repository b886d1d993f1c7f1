// random.cu - the random fills on a GPU: the words and the numbers of random.c, bit for bit.
//
// Word i of the stream depends on i alone. So each thread makes four words at a time, which are one
// block of Philox, and from them four numbers (two of double).
#include <math.h>
#include <string.h>

#include "cuda/device_cuda.h"
#include "pack.cuh"
#include "random/philox.cuh"

namespace single
{
#define REAL float
#define GD_MATH(function) function##f
#include "random/numbers.h"
#undef REAL
#undef GD_MATH
} // namespace single

namespace wide
{
#define REAL double
#define GD_MATH(function) function
#define GD_REAL_DOUBLE
#include "random/numbers.h"
#undef REAL
#undef GD_MATH
#undef GD_REAL_DOUBLE
} // namespace wide

// What four words make: four floats or two doubles. 16-bit types are rounded from float.
template <class R>
constexpr int numbers_each = 16 / (int)sizeof(R);

template <class R>
struct uniform {
    R low, range, first, last; // the outermost numbers of T in [low, low + range)

    __device__ void make(const uint32_t *words, float *out) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
            out[k] = single::gd_uniform_number(words + k, low, range, first, last);
    }
    __device__ void make(const uint32_t *words, double *out) const
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            out[k] = wide::gd_uniform_number(words + 2 * k, low, range, first, last);
    }
};

template <class R>
struct normal {
    R mean, stddev;

    __device__ void make(const uint32_t *words, float *out) const
    {
        single::gd_normal_pair(words, mean, stddev, out);
        single::gd_normal_pair(words + 2, mean, stddev, out + 2);
    }
    __device__ void make(const uint32_t *words, double *out) const
    {
        wide::gd_normal_pair(words, mean, stddev, out);
    }
};

template <class T, class Maker>
static __global__ void fill_kernel(T *dst, int64_t n, Maker maker, gd_random_place drawn)
{
    gd_in_turn();
    const gd_random_place place = drawn.here();
    using R = gd_compute<T>;
    constexpr int V = numbers_each<R>;
    GD_EACH(group, gd_packs(n, V))
    {
        const uint4 block = gd_philox_block(place.seed, 0, place.offset / 4 + (uint64_t)group);
        const uint32_t words[] = {block.x, block.y, block.z, block.w};
        R number[V];
        T rounded[V];
        maker.make(words, number);
#pragma unroll
        for (int k = 0; k < V; k++) rounded[k] = gd_store<T>(number[k]);
        gd_store_guarded(dst, rounded, group * V, n);
    }
}

static __global__ void integers_kernel(int32_t *dst, int64_t n, int64_t low, uint64_t range,
                                       gd_random_place drawn)
{
    gd_in_turn();
    const gd_random_place place = drawn.here();
    GD_EACH(group, gd_packs(n, 4))
    {
        const uint4 block = gd_philox_block(place.seed, 0, place.offset / 4 + (uint64_t)group);
        const uint32_t words[] = {block.x, block.y, block.z, block.w};
        int32_t number[4];
#pragma unroll
        for (int k = 0; k < 4; k++) number[k] = (int32_t)(low + (int64_t)(words[k] * range >> 32));
        gd_store_guarded(dst, number, group * 4, n);
    }
}

template <class T, class Maker>
static gd_status fill(void *dst, int64_t n, Maker maker, uint64_t seed, uint64_t offset,
                      gd_context *ctx)
{
    return gd_launch(ctx, "random", gd_grid_for(n, gd_threads * numbers_each<gd_compute<T>>),
                     fill_kernel<T, Maker>, (T *)dst, n, maker,
                     {seed, offset, gd_random_base(ctx)});
}

extern "C" void gd_uniform_cuda(void *dst, gd_dtype dtype, int64_t n, double low, double high,
                                uint64_t seed, uint64_t offset, gd_context *ctx)
{
    if (n == 0) return;
    double first, last;
    gd_numbers_within(dtype, low, high, &first, &last);
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        using R = gd_compute<T>;
        const uniform<R> maker = {(R)low, (R)(high - low), (R)first, (R)last};
        return fill<T>(dst, n, maker, seed, offset, ctx);
    });
}

extern "C" void gd_normal_cuda(void *dst, gd_dtype dtype, int64_t n, double mean, double stddev,
                               uint64_t seed, uint64_t offset, gd_context *ctx)
{
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        using R = gd_compute<T>;
        return fill<T>(dst, n, normal<R>{(R)mean, (R)stddev}, seed, offset, ctx);
    });
}

extern "C" void gd_integers_cuda(int32_t *dst, int64_t n, int64_t low, int64_t high, uint64_t seed,
                                 uint64_t offset, gd_context *ctx)
{
    gd_launch(ctx, "random", gd_grid_for(n, gd_threads * 4), integers_kernel, dst, n, low,
              (uint64_t)(high - low), {seed, offset, gd_random_base(ctx)});
}

static __global__ void advance_kernel(gd_random_state *state, uint64_t words)
{
    gd_in_turn();
    state->offset += words;
}

extern "C" void gd_advance_cuda(gd_random_state *state, uint64_t words, gd_context *ctx)
{
    gd_launch(ctx, "random", {1, 1}, advance_kernel, state, words);
}

// Every step of Fisher-Yates depends on the one before it: a thread of a GPU would wait for its far
// memory n times. So the host does it, in its caches, and sends the result.
extern "C" void gd_permutation_cuda(int32_t *dst, int64_t n, uint64_t seed, uint64_t offset,
                                    gd_context *ctx)
{
    if (n == 0) return;
    const size_t bytes = (size_t)n * sizeof *dst;
    int32_t *order = (int32_t *)gd_cuda_host_allocate(ctx, bytes, "random_permutation");
    if (!order) return;
    gd_permutation_cpu(order, n, seed, offset, ctx);
    gd_cuda_upload(ctx, dst, order, bytes);
    gd_cuda_host_release(ctx, order, bytes);
}
