// team.cuh - threads that work together: lanes of a warp, or a block, and their sums.
//
// gd_team is for kernels that work on rows. A short row has its own warp, eight of them in a block;
// a longer one has a whole block. Either way thread `rank` of `size` takes the packs rank, rank +
// size, ... of the row, so neighbours read neighbouring memory, and sums over the row are one tree
// of shuffles, or of these and a walk over the warps in order. The length of the row decides which
// team is used, and so the shape of a sum.
#ifndef GD_TEAM_CUH
#define GD_TEAM_CUH

#include "pack.cuh"

// ---- Sums over threads ------------------------------------------------------------------------

struct gd_plus {
    template <class V>
    __device__ V operator()(V a, V b) const
    {
        return a + b;
    }
};

// The larger; NaN if one is.
struct gd_larger {
    template <class V>
    __device__ V operator()(V a, V b) const
    {
        return a > b || a != a ? a : b;
    }
};

// Combines v of `lanes` neighbouring lanes, a power of two, in a fixed tree; each of them gets
// the same bits.
template <class V, class Combine>
__device__ inline V gd_combine(V v, unsigned lanes, Combine combine)
{
    for (unsigned step = lanes / 2; step > 0; step /= 2)
        v = combine(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

// The same of all lanes of a warp.
template <class V, class Combine>
__device__ inline V gd_combine(V v, Combine combine)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) v = combine(v, __shfl_xor_sync(0xffffffffu, v, lane));
    return v;
}

// Combines v of all threads of the block (a multiple of 32, at most 1024); all threads get the
// result. `shared` has room for 32 V; it may be used again at once.
template <class V, class Combine>
__device__ inline V gd_combine(V v, V *shared, Combine combine)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    v = gd_combine(v, combine);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    V all = shared[0];
    for (int w = 1; w < warps; w++) all = combine(all, shared[w]);
    __syncthreads();
    return all;
}

// The sum of v, of a warp, of some lanes or of the block.
template <class V>
__device__ inline V gd_sum(V v)
{
    return gd_combine(v, gd_plus());
}
template <class V>
__device__ inline V gd_sum(V v, unsigned lanes)
{
    return gd_combine(v, lanes, gd_plus());
}
template <class V>
__device__ inline V gd_sum(V v, V *shared)
{
    return gd_combine(v, shared, gd_plus());
}

// The sum of v over the lanes up to this one.
template <class V>
__device__ inline V gd_sum_up_to(V v)
{
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
        const V before = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) v += before;
    }
    return v;
}

// ---- Teams ------------------------------------------------------------------------------------

template <bool BLOCK>
struct gd_team {
    int rank, size;
    int64_t row, step; // for (row = team.row; row < rows; row += team.step)

    __device__ gd_team()
    {
        size = BLOCK ? blockDim.x : 32;
        rank = threadIdx.x % size;
        const int teams = blockDim.x / size;
        row = (int64_t)blockIdx.x * teams + threadIdx.x / size;
        step = (int64_t)gridDim.x * teams;
    }

    // v of all threads of the team combined, for all of them. `shared` has room for 32 V.
    template <class V, class Combine>
    __device__ V combine(V v, V *shared, Combine combine) const
    {
        if constexpr (BLOCK)
            return gd_combine(v, shared, combine);
        else
            return gd_combine(v, combine);
    }
    template <class V>
    __device__ V sum(V v, V *shared) const
    {
        return combine(v, shared, gd_plus());
    }
};

// A kernel on rows is declared with __launch_bounds__(gd_team_most(BLOCK)), or it might use more
// registers than are available for so many threads.
constexpr int gd_team_most(bool block)
{
    return block ? 1024 : 256;
}

// Whether contiguous rows of n T's can be read in packs of 16 bytes. NULL is fine.
template <class T>
static inline bool gd_rows_pack(int64_t n, const void *a, const void *b = nullptr,
                                const void *c = nullptr, const void *d = nullptr)
{
    const uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    return n % (int64_t)(16 / sizeof(T)) == 0 && bits % 16 == 0;
}

template <int I>
using gd_number = std::integral_constant<int, I>;
template <bool B>
using gd_flag = std::bool_constant<B>;

// Calls body(grid, gd_number<elements of a pack>(), gd_flag<a block per row>()) for rows of n
// elements: a lane of a warp has up to 32 of its row, a thread of 256 up to 64; still longer rows
// have blocks of 1024 threads, or of `most`.
template <class T, class Body>
static inline gd_status gd_by_team(int64_t rows, int64_t n, bool packed, Body body,
                                   unsigned most = 1024)
{
    constexpr gd_number<16 / sizeof(T)> pack = {};
    constexpr gd_number<1> one = {};
    constexpr gd_flag<true> block = {};
    constexpr gd_flag<false> warp = {};
    if (n > 1024) {
        const gd_grid grid = gd_grid_for(rows, 1, n > 16384 ? most : 256);
        return packed ? body(grid, pack, block) : body(grid, one, block);
    }
    const gd_grid grid = gd_grid_for(rows, 256 / 32);
    return packed ? body(grid, pack, warp) : body(grid, one, warp);
}

// exp(x - y), x a difference of numbers of type T. If T has 16 bits, it is approximate, in fewer
// instructions: the relative error, about 2^-22 + 2^-24 (|x| + |y|), is far below their rounding.
template <class T, class C>
__device__ inline C gd_exp_of(C x, C y)
{
    constexpr float per_ln2 = 1.44269504f;
    if constexpr (sizeof(T) == 2)
        return gd_exp2_approx(fmaf(x, per_ln2, -y * per_ln2));
    else
        return exp(x - y);
}

// ---- The maximum of a row, and the sum of its exponentials, in one pass -------------------------

// m = max x_i and s = sum exp(x_i - m), updated for each x_i (Milakov & Gimelshein 2018,
// arXiv:1805.02867): when a larger one comes, what was summed relative to the old maximum is
// rescaled by exp(old - new). A NaN is never the maximum, but makes the sum NaN, and so does +inf.
template <class C>
struct gd_sum_exp {
    C max, sum;

    __device__ gd_sum_exp() : max(-(C)INFINITY), sum(0) {}

    __device__ void add(C x)
    {
        if (x > max) {
            sum = sum * exp(max - x) + exp(x - x);
            max = x;
        } else if (x != -(C)INFINITY) { // -inf adds 0, also before there is a maximum
            sum += exp(x - max);
        }
    }

    // All of a pack: one rescaling, if any.
    template <class T, int V>
    __device__ void add(const gd_pack<T, V> &pack)
    {
        C x[V], largest = max;
#pragma unroll
        for (int v = 0; v < V; v++) {
            x[v] = gd_load(pack[v]);
            largest = fmax(x[v], largest);
        }
        const C zero = largest == -(C)INFINITY ? 0 : largest; // nothing but -inf, and maybe NaN
        if (largest > max) {
            sum *= exp(max - largest);
            max = largest;
        }
#pragma unroll
        for (int v = 0; v < V; v++) sum += gd_exp_of<T>(x[v] - zero, (C)0);
    }

    // Combines the parts of a team's threads. If all are -inf, the sum is NaN.
    template <class Team>
    __device__ void reduce(const Team &team, C *shared)
    {
        const C own = max;
        max = team.combine(own, shared, gd_larger());
        sum = team.sum(sum * exp(own - max), shared);
    }
};

#endif
