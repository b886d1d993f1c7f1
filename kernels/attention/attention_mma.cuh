// attention_mma.cuh - attention in 16 bits on tensor cores (FlashAttention-2: Dao 2023,
// arXiv:2307.08691): what its three kernels share.
//
// A warp computes 16 M rows of its results (rows of y, of dq, or of dk and dv) and keeps their sums
// in registers; a block is four such warps. The rows of the other side (keys for y and dq, queries
// for dk and dv) pass through shared memory in tiles of N, two tiles at a time: while one is worked
// on, the next is on its way. All work is two products, of the warp's rows with a tile:
//
//     attention_mma_scores    score [16 M, N] = left [16 M, W] right [N, W]^T
//     attention_mma_weigh     sum [16 M, W] += weight [16 M, N] right [N, W]
//
// The products take 16 bits and sum in float32. Scores are float32 and never leave the registers;
// as weights of the second product they are rounded to 16 bits, where they are (mma.cuh).
//
// Columns past D or E are zeros up to W, so any width up to W will do.
#ifndef GD_ATTENTION_ATTENTION_MMA_CUH
#define GD_ATTENTION_ATTENTION_MMA_CUH

#include "attention/heads.cuh"
#include "attention/mma.cuh"

// Whether the two below take this call, forward and backward.
bool attention_mma_takes(const gd_call *call, const attention_sizes *z);

gd_status attention_forward_mma(const gd_call *call);
gd_status attention_backward_mma(const gd_call *call);

constexpr int attention_mma_threads = 128, attention_mma_most_columns = 128;

// M for a width of W: two where the registers hold them. Then a fragment of the other side, once
// read from shared memory, serves two products.
template <int W>
constexpr int attention_mma_groups = W == 64 ? 2 : 1;

// Rows of a result that a block has.
template <int W>
constexpr int attention_mma_rows = attention_mma_threads / 32 * 16 * attention_mma_groups<W>;

// A row in shared memory, longer by 16 bytes, so that 8 of them meet all 32 banks.
template <class T, int W>
struct alignas(16) attention_mma_row {
    T at[W + 8];
};

// Sums of 16 M rows and COLUMNS columns, as a warp holds them: sum[m][n][i] is the c[i] of mma.cuh,
// rows from 16 m and columns from 8 n on. So i / 2 is one of a lane's two rows.
template <int M, int COLUMNS>
struct attention_mma_sums {
    float at[M][COLUMNS / 8][4];
};

// A head as its kernels see it. Positions are int here: int64_t takes twice the registers.
struct attention_mma_view {
    int T, S; // queries, keys
    bool causal;

    // How many keys query t sees; more than S for a t past the end.
    __device__ int seen_by(int t) const
    {
        const int end = t + 1 + (S - T);
        return !causal ? S : end > 0 ? end : 0;
    }
};

// The longest T, S, B and H that leave room for a tile past the end.
constexpr int64_t attention_mma_most = 1 << 30;

// ---- A lane's place ---------------------------------------------------------------------------

__device__ inline int attention_mma_lane()
{
    return threadIdx.x % 32;
}

// The first row of this warp in its block.
template <int W>
__device__ inline int attention_mma_warp_row()
{
    return threadIdx.x / 32 * 16 * attention_mma_groups<W>;
}

// Row and column of sum[m][n][i] in the warp's.
__device__ inline int attention_mma_row_of(int m, int i)
{
    return 16 * m + 8 * (i / 2) + attention_mma_lane() / 4;
}
__device__ inline int attention_mma_column_of(int n, int i)
{
    return 8 * n + attention_mma_lane() % 4 * 2 + i % 2;
}

// Combines v over the 4 lanes that share a row.
template <class Combine>
__device__ inline float attention_mma_along_row(float v, Combine combine)
{
    v = combine(v, __shfl_xor_sync(0xffffffffu, v, 2));
    return combine(v, __shfl_xor_sync(0xffffffffu, v, 1));
}

// ---- Tiles ------------------------------------------------------------------------------------

// Starts to copy the first rows and columns of `from` to tile [ROWS, W], with zeros around them. To
// be waited for with copies_wait and a barrier.
template <int ROWS, class T, int W>
__device__ inline void attention_mma_load(attention_mma_row<T, W> *tile, attention_rows<T> from,
                                          int64_t columns)
{
    constexpr int PER_ROW = W / 8;
    const bool aligned = (uintptr_t)from.data % 16 == 0 && from.stride % 8 == 0 && columns % 8 == 0;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * PER_ROW; i += attention_mma_threads) {
        const int r = i / PER_ROW, c = i % PER_ROW * 8;
        const T *x = from.data + r * from.stride + c;
        if (aligned) {
            const bool inside = r < from.count && c < columns;
            gd_mma::copy_16(&tile[r].at[c], inside ? x : from.data, inside);
        } else {
            for (int v = 0; v < 8; v++)
                tile[r].at[c + v] = r < from.count && c + v < columns ? x[v] : gd_store<T>(0.0f);
        }
    }
}

// The A of rows 16 m and columns d of a tile.
template <int M, class T, int W>
__device__ inline void attention_mma_left(uint32_t (&a)[M][4], const attention_mma_row<T, W> *tile,
                                          int d)
{
    const int lane = attention_mma_lane();
#pragma unroll
    for (int m = 0; m < M; m++)
        gd_mma::load_matrices(a[m], &tile[16 * m + lane % 16].at[d + lane / 16 * 8]);
}

// score += a right[:, d .. d + 16]^T
template <class T, int W, int M, int N>
__device__ inline void attention_mma_scores_step(attention_mma_sums<M, N> &score,
                                                 const uint32_t (&a)[M][4],
                                                 const attention_mma_row<T, W> *right, int d)
{
    const int lane = attention_mma_lane();
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b[4];
        gd_mma::load_matrices(b,
                              &right[16 * n + lane / 16 * 8 + lane % 8].at[d + lane / 8 % 2 * 8]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            gd_mma::multiply_add<T>(score.at[m][2 * n], a[m], b[0], b[1]);
            gd_mma::multiply_add<T>(score.at[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

// score = left right^T, where `left` is this warp's rows of a tile.
template <class T, int W, int M, int N>
__device__ inline void attention_mma_scores(attention_mma_sums<M, N> &score,
                                            const attention_mma_row<T, W> *left,
                                            const attention_mma_row<T, W> *right)
{
    score = {};
#pragma unroll
    for (int d = 0; d < W; d += 16) {
        uint32_t a[M][4];
        attention_mma_left(a, left, d);
        attention_mma_scores_step(score, a, right, d);
    }
}

// sum += weight right, the weights rounded to T.
template <class T, int W, int M, int N>
__device__ inline void attention_mma_weigh(attention_mma_sums<M, W> &sum,
                                           const attention_mma_sums<M, N> &weight,
                                           const attention_mma_row<T, W> *right)
{
    const int lane = attention_mma_lane();
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *c = weight.at[m][2 * k + i / 2] + i % 2 * 2;
                a[m][i] = gd_mma::round_pair<T>(c[0], c[1]);
            }
#pragma unroll
        for (int n = 0; n < W / 16; n++) {
            uint32_t b[4];
            gd_mma::load_matrices_transposed(b,
                                             &right[16 * k + lane % 16].at[16 * n + lane / 16 * 8]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                gd_mma::multiply_add<T>(sum.at[m][2 * n], a[m], b[0], b[1]);
                gd_mma::multiply_add<T>(sum.at[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// ---- Results ----------------------------------------------------------------------------------

// to = factor * sum, or += : the warp's rows from row 0 of `to` on, as far as there are `rows` and
// `columns`.
template <class T, int M, int W>
__device__ inline void attention_mma_store(T *to, int64_t stride, int64_t rows, int64_t columns,
                                           const attention_mma_sums<M, W> &sum, float factor,
                                           bool accumulate)
{
    struct alignas(2 * sizeof(T)) pair {
        T at[2];
    };
    const bool aligned = (uintptr_t)to % sizeof(pair) == 0 && stride % 2 == 0 && columns % 2 == 0;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
#pragma unroll
            for (int n = 0; n < W / 8; n++) {
                const int row = attention_mma_row_of(m, i), column = attention_mma_column_of(n, 0);
                if (row >= rows || column >= columns) continue;
                T *x = to + row * stride + column;
                const bool both = column + 1 < columns;
                float first = factor * sum.at[m][n][i], second = factor * sum.at[m][n][i + 1];
                if (accumulate) {
                    first += gd_load(x[0]);
                    if (both) second += gd_load(x[1]);
                }
                if (aligned) {
                    *(pair *)x = {{gd_store<T>(first), gd_store<T>(second)}};
                } else {
                    x[0] = gd_store<T>(first);
                    if (both) x[1] = gd_store<T>(second);
                }
            }
}

// ---- Launching --------------------------------------------------------------------------------

static inline attention_tasks attention_mma_tasks(int64_t B, int64_t heads, int64_t rows, int side)
{
    return attention_tasks_of(B, heads, rows, side, 1, 1);
}

// Calls body(type, width): the type of storage, and a constant W that D and E fit into.
template <int W>
struct attention_mma_width {
    static constexpr int value = W;
};

template <class T, class Body>
static inline gd_status attention_mma_by_width(const attention_sizes &z, Body body)
{
    const int64_t widest = z.D > z.E ? z.D : z.E;
    if (widest <= 32) return body(T(), attention_mma_width<32>());
    if (widest <= 64) return body(T(), attention_mma_width<64>());
    return body(T(), attention_mma_width<128>());
}

template <class Body>
static inline gd_status attention_mma_by_type(const gd_call *call, const attention_sizes &z,
                                              Body body)
{
    if (call->storage == GD_BFLOAT16) return attention_mma_by_width<__nv_bfloat16>(z, body);
    return attention_mma_by_width<__half>(z, body);
}

#endif
