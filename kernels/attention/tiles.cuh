// tiles.cuh - attention on CUDA without tensor cores (masks, biases, windows; float64, wide heads):
// the tiles in shared memory, and the two products that all passes are built from.
//
// A block computes SIDE rows of one result: rows of y, dq, dk or dv. It iterates over the other
// side (keys for y and dq, queries for dk and dv) in tiles of SIDE rows as well, and keeps only the
// SIDE x SIDE scores of the two tiles. The dimensions that can be wide, D and E, pass through
// shared memory in chunks of W columns:
//
//     add_scores    score [SIDE, SIDE] += left [SIDE, W] right [SIDE, W]^T     chunk after chunk
//     add_weighted  out [SIDE, W] += weights [SIDE, SIDE] right [SIDE, W]
//
// If a result has more than W columns, other blocks compute the rest and recompute the scores.
//
// The threads form a 16 x 16 square. Thread (ty, tx) has R x R scores in registers, rows ty * R + i
// and columns tx + 16 j; and of `out` the same rows and every 16th group of VEC columns. So 16
// lanes of one warp share a row, and sums along rows take a few shuffles.
//
// The keys are multiplied by the scale as they are loaded. Forward and backward then compute every
// score by the same sum over D, to the last bit, and exp(score - lse) is never more than 1.
#ifndef GD_ATTENTION_TILES_CUH
#define GD_ATTENTION_TILES_CUH

#include "attention/heads.cuh"
#include "team.cuh"

constexpr int attention_threads = 256;

// A is the compute type, float or double.
template <class A>
constexpr int attention_side = sizeof(A) == 8 ? 32 : 64;

// Numbers in 16 bytes. Rows in shared memory are padded by as many, so that 8 threads reading 16
// bytes of 8 rows each have no bank conflicts.
template <class A>
constexpr int attention_vec = 16 / (int)sizeof(A);

template <class A>
using attention_pack = gd_pack<A, attention_vec<A>>;

template <class A, int W>
struct attention_shared {
    A left[attention_side<A>][W + attention_vec<A>];
    A right[attention_side<A>][W + attention_vec<A>];
    A weights[attention_side<A>][attention_side<A> + attention_vec<A>];
};

// Calls body with the width of the pieces in which heads of D and E columns are taken: 128 columns
// pay where there are as many, and need 85 KB of shared memory; 7.5 has 64.
template <class T, class Body>
static inline gd_status attention_by_piece(const attention_sizes &z, Body body)
{
    using A = gd_compute<T>;
    if constexpr (sizeof(A) == 4) {
        const bool wide = sizeof(T) == 2 || z.D > 64 || z.E > 64;
        const bool fits =
            sizeof(attention_shared<A, 128>) <= (size_t)gd_cuda_device_limits().block_shared;
        if (wide && fits) return body(std::integral_constant<int, 128>());
    }
    return body(std::integral_constant<int, 64>());
}

// A thread's place in the square.
__device__ inline int attention_tx()
{
    return threadIdx.x % 16;
}
__device__ inline int attention_ty()
{
    return threadIdx.x / 16;
}

// ---- Tiles ------------------------------------------------------------------------------------

// tile [SIDE, W] = factor * the first rows and columns of `from`, zero-filled around them.
template <class A, int W, class T>
__device__ inline void attention_load(A (*tile)[W + attention_vec<A>], attention_rows<T> from,
                                      int64_t columns, A factor)
{
    constexpr int VEC = attention_vec<A>, PER_ROW = W / VEC, COUNT = attention_side<A> * PER_ROW;
    using neighbours = gd_pack<T, VEC>;
    const bool aligned = (uintptr_t)from.data % sizeof(neighbours) == 0 && from.stride % VEC == 0;
#pragma unroll
    for (int i = threadIdx.x; i < COUNT; i += attention_threads) {
        const int r = i / PER_ROW, c = i % PER_ROW * VEC;
        const T *x = from.data + r * from.stride + c;
        neighbours some = {};
        if (r < from.count && c + VEC <= columns && aligned) {
            some = *(const neighbours *)x;
        } else if (r < from.count) {
            for (int v = 0; v < VEC; v++)
                if (c + v < columns) some[v] = x[v];
        }
        attention_pack<A> pack;
        for (int v = 0; v < VEC; v++) pack[v] = factor * gd_load(some[v]);
        *(attention_pack<A> *)&tile[r][c] = pack;
    }
}

// score[i][j] += sum over the first `columns` of left[row i] * right[column j], in order.
template <class A, int W>
__device__ inline void
attention_add_scores(A (&score)[attention_side<A> / 16][attention_side<A> / 16],
                     const attention_shared<A, W> &shared, int columns)
{
    constexpr int R = attention_side<A> / 16, VEC = attention_vec<A>;
    const int tx = attention_tx(), row = attention_ty() * R;
#pragma unroll 2
    for (int d = 0; d < columns; d += VEC) {
        attention_pack<A> left[R], right[R];
#pragma unroll
        for (int i = 0; i < R; i++) left[i] = *(const attention_pack<A> *)&shared.left[row + i][d];
#pragma unroll
        for (int j = 0; j < R; j++)
            right[j] = *(const attention_pack<A> *)&shared.right[tx + 16 * j][d];
#pragma unroll
        for (int v = 0; v < VEC; v++)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) score[i][j] += left[i][v] * right[j][v];
    }
}

// score = left right^T over all `columns` of both, chunk after chunk. keep_left: they fit in one
// chunk, and shared.left already holds left.
template <class A, int W, class T>
__device__ inline void attention_scores(A (&score)[attention_side<A> / 16][attention_side<A> / 16],
                                        attention_shared<A, W> &shared, attention_rows<T> left,
                                        A left_factor, attention_rows<T> right, A right_factor,
                                        int64_t columns, bool keep_left)
{
    constexpr int R = attention_side<A> / 16;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < R; j++) score[i][j] = 0;
    for (int64_t d = 0; d == 0 || d < columns; d += W) {
        const int64_t rest = columns - d;
        __syncthreads(); // all threads are done with the previous tiles
        if (!keep_left) attention_load<A, W>(shared.left, left, rest, left_factor);
        attention_load<A, W>(shared.right, right, rest, right_factor);
        __syncthreads();
        attention_add_scores(score, shared, (int)(rest < W ? rest : W));
        left.data += W;
        right.data += W;
    }
}

// out [SIDE, W] += weights right, where `weight` is this thread's part of the weights, and `from`
// the rows that they weight.
template <class A, int W, class T>
__device__ inline void
attention_add_weighted(A (&out)[attention_side<A> / 16][W / 16],
                       const A (&weight)[attention_side<A> / 16][attention_side<A> / 16],
                       attention_shared<A, W> &shared, attention_rows<T> from, int64_t columns,
                       A factor)
{
    constexpr int R = attention_side<A> / 16, VEC = attention_vec<A>, GROUPS = W / 16 / VEC;
    const int tx = attention_tx(), row = attention_ty() * R;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) shared.weights[row + i][tx + 16 * j] = weight[i][j];
    __syncthreads(); // all threads are done with shared.right
    attention_load<A, W>(shared.right, from, columns, factor);
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < attention_side<A>; k += VEC) {
        attention_pack<A> weights[R];
#pragma unroll
        for (int i = 0; i < R; i++)
            weights[i] = *(const attention_pack<A> *)&shared.weights[row + i][k];
#pragma unroll
        for (int v = 0; v < VEC; v++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                const attention_pack<A> value =
                    *(const attention_pack<A> *)&shared.right[k + v][(tx + 16 * g) * VEC];
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int c = 0; c < VEC; c++) out[i][g * VEC + c] += weights[i][v] * value[c];
            }
    }
}

// The column of this thread's out[i][c].
template <class A>
__device__ inline int attention_column(int c)
{
    constexpr int VEC = attention_vec<A>;
    return (attention_tx() + 16 * (c / VEC)) * VEC + c % VEC;
}

#endif
