// row_team.cuh - for kernels that work on rows: a team of threads for each row.
//
// A short row has its own warp, eight of them in a block; a longer one has a whole block. Either
// way thread `rank` of `size` takes the packs rank, rank + size, ... of the row, so neighbours read
// neighbouring memory, and sums over the row are one tree of shuffles (gd_warp_reduce) or of these
// and a walk over the warps in order (gd_block_reduce). The length of the row decides which team is
// used, and so the shape of a sum.
//
// A pack is the data of one load: 16 bytes if all rows begin at a multiple of that, else one
// element.
#ifndef GD_ROW_TEAM_CUH
#define GD_ROW_TEAM_CUH

#include "cuda.cuh"

template <class T, int V>
struct alignas(V * sizeof(T)) gd_pack {
    T element[V];
};

template <class T, int V>
__device__ inline gd_pack<T, V> gd_load_pack(const T *row, int64_t pack)
{
    return ((const gd_pack<T, V> *)row)[pack];
}

template <class T, int V>
__device__ inline void gd_store_pack(T *row, int64_t pack, const gd_pack<T, V> &value)
{
    ((gd_pack<T, V> *)row)[pack] = value;
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
    __device__ V reduce(V v, V *shared, Combine combine) const
    {
        if constexpr (BLOCK) {
            return gd_block_reduce(v, shared, combine);
        } else {
            return gd_warp_reduce(v, combine);
        }
    }
};

// How to launch a kernel on rows of length n. The kernel is declared with
// __launch_bounds__(gd_team_most(BLOCK)), or it might use more registers than are available for so
// many threads.
constexpr int gd_team_most(bool block)
{
    return block ? 1024 : 256;
}

struct gd_team_launch {
    bool block;
    unsigned blocks, threads;
};

// A lane of a warp has up to 32 elements of its row, a thread of 256 up to 64; still longer rows
// have 1024 threads.
static inline gd_team_launch gd_team_for(int64_t rows, int64_t n)
{
    gd_team_launch launch;
    launch.block = n > 1024;
    launch.threads = n > 16384 ? 1024 : 256;
    launch.blocks = gd_blocks(rows, launch.block ? 1 : launch.threads / 32);
    return launch;
}

// Whether contiguous rows of n T's can be read in packs of 16 bytes. NULL is fine.
template <class T>
static inline bool gd_rows_pack(int64_t n, const void *a, const void *b = nullptr,
                                const void *c = nullptr, const void *d = nullptr)
{
    const uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    return n % (int64_t)(16 / sizeof(T)) == 0 && bits % 16 == 0;
}

template <bool B>
struct gd_flag {
    static constexpr bool value = B;
};
template <int I>
struct gd_number {
    static constexpr int value = I;
};

// Calls body(gd_number<elements of a pack>(), gd_flag<a block per row>()).
template <class T, class Body>
static inline void gd_by_team(bool packed, bool block, Body body)
{
    constexpr int V = 16 / sizeof(T);
    if (packed && block) body(gd_number<V>(), gd_flag<true>());
    if (packed && !block) body(gd_number<V>(), gd_flag<false>());
    if (!packed && block) body(gd_number<1>(), gd_flag<true>());
    if (!packed && !block) body(gd_number<1>(), gd_flag<false>());
}

// exp(x - y), x a difference of numbers of type T. Of 16 bits approximately, in fewer instructions:
// the relative error, about 2^-22 + 2^-24 (|x| + |y|), is far below their rounding.
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
            x[v] = gd_load(pack.element[v]);
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
        max = team.reduce(own, shared, gd_larger());
        sum = team.reduce(sum * exp(own - max), shared, gd_plus());
    }
};

#endif
