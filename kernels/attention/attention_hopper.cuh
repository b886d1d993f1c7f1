// attention_hopper.cuh - 16-bit attention on Hopper (FlashAttention-3: Shah et al. 2024,
// arXiv:2407.08608): the parts shared by its kernels.
//
// The arithmetic of scores, softmax and gradients is that of the kernels for any tensor core
// (attention_mma.cuh), on the same register layout. The difference is how the operands are loaded.
// A block is one to four warp groups of four warps, each with 64 rows of a result. The tiles of the
// other side pass through a ring of stages: one thread issues their TMA copies ahead, into a stage
// whose tile is no longer used (in the backward thread 0, in the forward one of a group that does
// nothing else). So the groups run independently, and the tensor core works for one while another,
// of the same block or not, computes exponentials.
#ifndef GD_ATTENTION_ATTENTION_HOPPER_CUH
#define GD_ATTENTION_ATTENTION_HOPPER_CUH

#include "attention/attention_mma.cuh"
#include "wgmma.cuh"

namespace attention_mma
{

constexpr int hopper_tile = 64; // rows of the other side

// A tile of ROWS rows and W columns, panel by panel.
template <class T, int ROWS, int W>
struct alignas(gd_wgmma::aligned) hopper_panels {
    static constexpr int bytes = ROWS * W * (int)sizeof(T);
    static constexpr int panels = W / gd_wgmma::panel;
    T at[panels][ROWS][gd_wgmma::panel];
};

// The warp group of this thread.
__device__ inline int hopper_group()
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / gd_wgmma::group, 0);
}

// The first of a task's queries, of `rows`. If they do not divide T, the incomplete task is that of
// the first queries, which see the fewest keys: it begins before 0, at a multiple of a tile.
__device__ inline int hopper_first(const head_view &view, const attention_task &task, int rows)
{
    const int end = (view.T + hopper_tile - 1) / hopper_tile;
    return end * hopper_tile - (int)(task.tile + 1) * rows;
}

// The first of this warp's 16 rows in the block.
__device__ inline int hopper_warp_row()
{
    return (int)threadIdx.x / 32 * 16;
}

// ---- The ring ---------------------------------------------------------------------------------

// Tile n of the other side is in stage n mod STAGES. A block of one group releases a tile before it
// waits for the next, so that all other stages can be on their way; where several groups share four
// stages, two of them, because the groups are at different tiles.
template <class Stage, int STAGES>
struct hopper_ring {
    static constexpr int stages = STAGES, ahead = STAGES == 4 ? 2 : STAGES - 1;
    Stage stage[stages];
    gd_async::barrier full[stages], empty[stages];

    __device__ void init(int groups)
    {
        for (int i = 0; i < stages; i++) {
            gd_async::barrier_init(full[i], 1);
            gd_async::barrier_init(empty[i], groups * gd_wgmma::group);
        }
    }
    // Issues the copies of tile n, as soon as all threads have released the tile that was in its
    // stage: copy(to, b) starts the copies that arrive at b, `bytes` in all. Called by one thread.
    template <class Copy>
    __device__ void issue(int n, int bytes, Copy copy)
    {
        const int i = n % stages;
        gd_async::barrier_wait(empty[i], n / stages % 2 ^ 1);
        gd_async::barrier_expect(full[i], bytes);
        copy(stage[i], full[i]);
    }
    __device__ Stage &wait(int n)
    {
        gd_async::barrier_wait(full[n % stages], n / stages % 2);
        return stage[n % stages];
    }
    // Tile n, after it has been waited for.
    __device__ const Stage &at(int n) const
    {
        return stage[n % stages];
    }
    // Releases tile n for this thread.
    __device__ void release(int n)
    {
        gd_async::barrier_arrive(empty[n % stages]);
    }
};

// A stage of the forward.
template <class T, int W>
struct key_stage {
    hopper_panels<T, hopper_tile, W> k, v;
};

// Starts the copy of the rows from `row` on.
template <class Panels>
__device__ inline void hopper_load(Panels &to, const CUtensorMap &map, gd_async::barrier &b,
                                   int head, int row, int batch)
{
#pragma unroll
    for (int i = 0; i < Panels::panels; i++)
        gd_wgmma::tma_load(to.at[i], &map, b, i * gd_wgmma::panel, head, row, batch);
}

// ---- Products ---------------------------------------------------------------------------------

// Starts score [64, 64] = left right^T: this group's rows of one tile with another tile.
template <class F, class T, int ROWS, int N, int W>
__device__ inline void hopper_scores(sums<1, N> &score, const hopper_panels<T, ROWS, W> &left,
                                     int row, const hopper_panels<T, N, W> &right)
{
    static_assert(N == 64, "a product has 64 columns");
    const gd_wgmma::descriptor a(left.at[0][row]), b(right.at[0]);
#pragma unroll
    for (int d = 0; d < W; d += 16)
        gd_wgmma::wgmma<false>(
            F(), score.at[0], a.at(d / 64 * (int)sizeof left.at[0] + d % 64 * (int)sizeof(T)),
            b.at(d / 64 * (int)sizeof right.at[0] + d % 64 * (int)sizeof(T)), d > 0);
}

// The weights, rounded, as A fragments of consecutive products.
template <int N>
struct rounded_tile {
    uint32_t at[N / 16][4];
};

template <class F, bool KEPT, int N>
__device__ inline void round_tile(rounded_tile<N> &rounded, const sums<1, N> &weight)
{
#pragma unroll
    for (int k = 0; k < N; k += 16) {
        const auto a = rounded_weights<F, KEPT>(weight, 0, k);
#pragma unroll
        for (int i = 0; i < 4; i++) rounded.at[k / 16][i] = a.at[i];
    }
}

// Starts sum [64, W] += weight right.
template <class F, class T, int N, int W>
__device__ inline void hopper_add_weighted(sums<1, W> &sum, const rounded_tile<N> &weight,
                                           const hopper_panels<T, N, W> &right)
{
    const gd_wgmma::descriptor b(right.at[0]);
#pragma unroll
    for (int k = 0; k < N; k += 16)
#pragma unroll
        for (int c = 0; c < W; c += 64)
            gd_wgmma::wgmma(
                F(), *(float(*)[8][4]) & sum.at[0][c / 8], weight.at[k / 16],
                b.at(c / 64 * (int)sizeof right.at[0] + k * (int)sizeof right.at[0][0]));
}

// Starts sum [64, W] += ds right, where a row of ds^T belongs to a row of `right`.
template <class F, class T, int N, int W>
__device__ inline void hopper_add_weighted(sums<1, W> &sum, const gd_wgmma::blocks &ds,
                                           const hopper_panels<T, N, W> &right)
{
    const gd_wgmma::descriptor b(right.at[0]);
#pragma unroll
    for (int k = 0; k < N; k += 16)
#pragma unroll
        for (int c = 0; c < W; c += 64)
            gd_wgmma::wgmma<true>(
                F(), *(float(*)[8][4]) & sum.at[0][c / 8], ds.descriptor(k),
                b.at(c / 64 * (int)sizeof right.at[0] + k * (int)sizeof right.at[0][0]), true);
}

// ---- Results ----------------------------------------------------------------------------------

// Starts storing factor * sum for this group's 64 rows, from row `first` of a head on. On the way
// they are in `place`, from its row `row` on, which no other warp's product reads any more. With
// `before`, a barrier in its first phase, they are added to what is there.
template <class F, class Panels, int W>
__device__ inline void hopper_store(const sums<1, W> &sum, float factor, Panels &place, int row,
                                    const CUtensorMap &map, int64_t columns, int h, int first,
                                    int b, gd_async::barrier *before = nullptr)
{
    const bool leader = threadIdx.x % gd_wgmma::group == 0;
    const int barrier = 1 + hopper_group();
    if (before) {
        gd_async::named_barrier_sync(barrier, gd_wgmma::group);
        if (leader) {
            const int panels = (int)(columns + gd_wgmma::panel - 1) / gd_wgmma::panel;
            gd_async::barrier_expect(*before, panels * 64 * (int)sizeof place.at[0][0]);
            for (int c = 0; c < panels; c++)
                gd_wgmma::tma_load(place.at[c][row], &map, *before, c * gd_wgmma::panel, h, first,
                                   b);
        }
        __syncwarp();
        gd_async::barrier_wait(*before, 0);
    }
#pragma unroll
    for (int c = 0; c < W / 8; c++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int r = row + hopper_warp_row() % 64 + row_of(0, i);
            auto *to = &place.at[c / 8][r][(c % 8 ^ r % 8) * 8 + lane_of_thread() % 4 * 2];
            float pair[] = {factor * sum.at[0][c][i], factor * sum.at[0][c][i + 1]};
            if (before) pair[0] += gd_load(to[0]), pair[1] += gd_load(to[1]);
            *(uint32_t *)to = gd_mma::round_pair<false>(F(), pair[0], pair[1]);
        }
    gd_async::fence_async();
    gd_async::named_barrier_sync(barrier, gd_wgmma::group);
    if (leader)
        for (int c = 0; c < columns; c += gd_wgmma::panel)
            gd_wgmma::tma_store(&map, place.at[c / gd_wgmma::panel][row], c, h, first, b);
}

// ---- Launching --------------------------------------------------------------------------------

// The tensor map for boxes of `box_rows` rows and 64 columns of a head of x
// [batches, rows, heads, columns]. False if TMA does not support the layout: it needs multiples of
// 16 bytes.
template <class T>
static bool hopper_map(CUtensorMap *map, const attention_heads<T> &x, int64_t batches, int64_t rows,
                       int64_t heads, int64_t columns, int box_rows)
{
    const auto encode = gd_wgmma::map_encoder();
    if (!encode) return false;
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)heads, (cuuint64_t)rows,
                               (cuuint64_t)batches};
    cuuint64_t bytes[] = {(cuuint64_t)x.head * sizeof(T), (cuuint64_t)x.row * sizeof(T),
                          (cuuint64_t)x.batch * sizeof(T)};
    for (int i = 0; i < 3; i++)
        if (size[i + 1] == 1) bytes[i] = 16; // the stride is not used
    if ((uintptr_t)x.data % 16 || bytes[0] % 16 || bytes[1] % 16 || bytes[2] % 16) return false;
    const cuuint32_t box[] = {gd_wgmma::panel, 1, (cuuint32_t)box_rows, 1}, step[] = {1, 1, 1, 1};
    return encode(map,
                  CU_TENSOR_MAP_DATA_TYPE_UINT16, // any 16-bit dtype
                  4, x.data, size, bytes, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace attention_mma

#endif
