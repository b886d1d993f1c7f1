// attention_mma.cuh - attention on tensor cores (FlashAttention-2: Dao 2023, arXiv:2307.08691): the
// parts shared by its three kernels.
//
// A warp computes 16 M rows of its results (rows of y, of dq, or of dk and dv) and keeps their sums
// in registers; a block is four or eight such warps. The rows of the other side (keys for y and dq,
// queries for dk and dv) pass through shared memory in tiles of N rows, double-buffered: while one
// is processed, the next is being copied. All work is two products, of the warp's rows with a tile:
//
//     scores_of    score [16 M, N] = left [16 M, W] right [N, W]^T
//     add_weighted     sum [16 M, W] += weight [16 M, N] right [N, W]
//
// F is the format of the operands (mma.cuh): 16 bits, TF32, or float32 as three products of TF32.
// Sums are float32. Scores never leave the registers; as operands of the second product they are
// rounded to the format in place.
//
// Columns past D or E are zero-filled up to W, so any width up to W is supported.
#ifndef GD_ATTENTION_ATTENTION_MMA_CUH
#define GD_ATTENTION_ATTENTION_MMA_CUH

#include "attention/dropout.cuh"
#include "attention/heads.cuh"
#include "mma.cuh"
#include "team.cuh"

namespace attention_mma
{

constexpr int most_columns = 256;

// The division of work on rows of W columns.
template <class F, int W>
struct division {
    static constexpr int bytes = W * (int)sizeof(typename F::stored); // of a row
    // M: two where the registers suffice. A fragment of the other side, once read from shared
    // memory, then serves two products.
    static constexpr int groups = W == 64 && !gd_mma::in_parts<F> ? 2 : 1;
    // Where shared memory has room for one block only, it has eight warps if possible.
    static constexpr int blocks = bytes < 512 ? 2 : 1; // per multiprocessor
    static constexpr int threads = bytes == 512 ? 256 : 128;
    static constexpr int rows = threads / 32 * 16 * groups; // of a result, per block
    // Rows of the other side in a tile: as many as registers and shared memory have room for.
    static constexpr int forward_tile = gd_mma::is_16_bit<F> || W == 32 ? 64 : 32;
    static constexpr int backward_tile = W == 32 ? 64 : bytes < 1024 ? 32 : 16;
};

// A row in shared memory is padded by 16 bytes, so that 8 rows map to all 32 banks without
// conflicts.
template <class T, int W>
struct alignas(16) tile_row {
    T at[W + 16 / sizeof(T)];
};

// Sums of 16 M rows and COLUMNS columns, as held by a warp: at[m][n][i] is the c[i] of mma.cuh,
// rows from 16 m on. So i / 2 selects one of a lane's two rows.
template <int M, int COLUMNS>
struct sums {
    float at[M][COLUMNS / 8][4];

    // f(at[m][n][i], m, n, i) for all of them.
    template <class Function>
    __device__ __forceinline__ void each(const Function &f)
    {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) f(at[m][n][i], m, n, i);
    }
};

// A head as the kernels see it. Positions are int here: int64_t takes twice the registers.
struct head_view {
    int T, S; // queries, keys
    bool causal;

    // The number of keys that query t sees; more than S for a t past the end.
    __device__ int seen_by(int t) const
    {
        const int end = t + 1 + (S - T);
        return !causal ? S : end > 0 ? end : 0;
    }
};

// The longest T and S that leave room for a tile past the end, and as many tasks.
constexpr int64_t most_positions = 1 << 30;

// Exponents are to base 2 here, so that a weight is one instruction: scores are multiplied by scale
// / ln 2, and lse is to base 2 (gd_exp2_approx).
constexpr double per_ln2 = 1.4426950408889634;

// ---- A lane's place ---------------------------------------------------------------------------

__device__ inline int lane_of_thread()
{
    return threadIdx.x % 32;
}

// The first row of this warp in its block.
template <class F, int W>
__device__ inline int row_of_warp()
{
    return threadIdx.x / 32 * 16 * division<F, W>::groups;
}

// Row and column of a score at[m][n][i] within the warp's.
__device__ inline int row_of(int m, int i)
{
    return 16 * m + 8 * (i / 2) + lane_of_thread() / 4;
}
__device__ inline int column_of(int n, int i)
{
    return 8 * n + lane_of_thread() % 4 * 2 + i % 2;
}

// Sets scores, or weights, to `value` where the query does not see the key. Row 0 is query t,
// column 0 is key s.
template <int M, int N>
__device__ inline void mask_unseen(sums<M, N> &score, const head_view &view, int t, int s,
                                   float value)
{
    if (s + N <= view.seen_by(t)) return; // what the first query sees, the others see too
    score.each([&](float &x, int m, int n, int i) {
        if (column_of(n, i) >= min(view.seen_by(t + row_of(m, i)), view.S) - s) x = value;
    });
}

// Combines v over the 4 lanes that share a row: gd_combine compiles to other code here.
template <class Combine>
__device__ inline float along_row(float v, Combine combine)
{
    v = combine(v, __shfl_xor_sync(0xffffffffu, v, 2));
    return combine(v, __shfl_xor_sync(0xffffffffu, v, 1));
}

// ---- Tiles ------------------------------------------------------------------------------------

// Starts the copy of the first rows and columns of `from` to tile [ROWS, W], zero-filled around
// them. Completed by copy_wait_all and a barrier.
template <int ROWS, class T, int W>
__device__ inline void load_tile(tile_row<T, W> *tile, attention_rows<T> from, int64_t columns)
{
    constexpr int PER = 16 / sizeof(T), PER_ROW = W / PER;
    const bool aligned =
        (uintptr_t)from.data % 16 == 0 && from.stride % PER == 0 && columns % PER == 0;
    if (aligned) {
#pragma unroll 8
        for (int i = threadIdx.x; i < ROWS * PER_ROW; i += blockDim.x) {
            const int r = i / PER_ROW, c = i % PER_ROW * PER;
            const bool inside = r < from.count && c < columns;
            gd_async::copy_16(gd_async::shared_address(&tile[r].at[c]),
                              from.data + (inside ? r * from.stride + c : 0), inside);
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * W; i += blockDim.x) {
            const int r = i / W, c = i % W;
            const bool inside = r < from.count && c < columns;
            tile[r].at[c] = inside ? from.data[r * from.stride + c] : gd_store<T>(0.0f);
        }
    }
}

// ---- Products ---------------------------------------------------------------------------------

// Columns of A, and rows of B, per instruction.
template <class T>
constexpr int terms_at_once = 32 / (int)sizeof(T);

// to(m, n) += sum of left(m, k) right(k) over k = 0, STEP, .. COUNT, for NS products side by side.
//
// A tensor core truncates what does not fit in its sum. Where float32 accuracy is wanted, sums are
// therefore short: the small products are summed separately from the large ones, and both sums are
// then added with rounding.
template <class F, int M, int NS, int COUNT, class To, class Left, class Right>
__device__ inline void add_products(To to, Left left, Right right)
{
    using gd_mma::tf32;
    float large[M][NS][4] = {}, small[M][NS][4] = {};
#pragma unroll
    for (int k = 0; k < COUNT; k += terms_at_once<typename F::stored>) {
        const gd_mma::fragment<F, 2 *NS> b = right(k);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const gd_mma::fragment<F, 4> a = left(m, k);
#pragma unroll
            for (int n = 0; n < NS; n++) {
                const int i = 2 * n;
                if constexpr (gd_mma::in_parts<F>) {
                    gd_mma::mma(tf32(), small[m][n], a.at, b.rest[i], b.rest[i + 1]);
                    gd_mma::mma(tf32(), small[m][n], a.rest, b.at[i], b.at[i + 1]);
                    gd_mma::mma(tf32(), large[m][n], a.at, b.at[i], b.at[i + 1]);
                } else {
                    gd_mma::mma(F(), to(m, n), a.at, b.at[i], b.at[i + 1]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; gd_mma::in_parts<F> && m < M; m++)
#pragma unroll
        for (int i = 0; i < 4 * NS; i++)
            to(m, i / 4)[i % 4] += large[m][i / 4][i % 4] + small[m][i / 4][i % 4];
}

// The A fragment of rows m and columns d of a tile.
template <class T, int W>
__device__ inline void load_left(uint32_t (&a)[4], const tile_row<T, W> *tile, int m, int d)
{
    const int lane = lane_of_thread();
    gd_mma::ldmatrix(a, &tile[m + lane % 16].at[d + lane / 16 * (16 / sizeof(T))]);
}

// The B fragments of NS products, from columns d of a tile's rows from n on: those are the columns
// of B.
template <class F, int NS, class T, int W>
__device__ inline gd_mma::fragment<F, 2 * NS> load_right(const tile_row<T, W> *tile, int n, int d)
{
    const int lane = lane_of_thread();
    uint32_t b[2 * NS];
#pragma unroll
    for (int i = 0; i < NS; i += 2) {
        uint32_t pair[4];
        gd_mma::ldmatrix(
            pair,
            &tile[n + 8 * i + lane / 16 * 8 + lane % 8].at[d + lane / 8 % 2 * (16 / sizeof(T))]);
#pragma unroll
        for (int v = 0; v < 4; v++) b[2 * i + v] = pair[v];
    }
    return gd_mma::fragment_of<F>(b);
}

// Products of a warp that are independent of each other. A tensor core's result can be added to
// tens of cycles later, and few warps share one: a warp should have eight sums at work.
template <class F, int M>
constexpr int products_at_once = gd_mma::in_parts<F> || M > 1 ? 4 : 8;

// Adds columns d to d + COUNT to score = left right^T, where left(a, m, d) loads the fragment of
// columns d of this warp's rows from 16 m on.
template <class F, int COUNT, class T, int W, int M, int N, class Left>
__device__ inline void add_scores(sums<M, N> &score, Left left, const tile_row<T, W> *right, int d)
{
    constexpr int most = products_at_once<F, M>, NS = N / 8 < most ? N / 8 : most;
#pragma unroll
    for (int n = 0; n < N; n += 8 * NS)
        add_products<F, M, NS, COUNT>(
            [&](int m, int i) -> float(&)[4] { return score.at[m][n / 8 + i]; },
            [&](int m, int k) {
                uint32_t a[4];
                left(a, m, d + k);
                return gd_mma::fragment_of<F>(a);
            },
            [&](int k) { return load_right<F, NS>(right, n, d + k); });
}

// Only of wider rows are blocks of zero columns left out: a branch for each block would keep the
// compiler from ordering products across it.
constexpr int most_unbranched = 128;

// score = left right^T.
template <class F, class T, int W, int M, int N, class Left>
__device__ inline void scores_of(sums<M, N> &score, Left left, const tile_row<T, W> *right,
                                 int columns)
{
    score = {};
#pragma unroll
    for (int d = 0; d < W; d += 32) {
        if (W > most_unbranched && d >= columns) break;
        add_scores<F, 32>(score, left, right, d);
    }
}

// The same of two pairs of tiles, by turns: sums of one while those of the other are on their way.
template <class F, class T, int W, int M, int N>
__device__ inline void two_scores(sums<M, N> (&score)[2], const tile_row<T, W> *const (&left)[2],
                                  const tile_row<T, W> *const (&right)[2], int columns)
{
    constexpr int STEP = gd_mma::in_parts<F> ? 32 : terms_at_once<T>;
    score[0] = score[1] = {};
#pragma unroll
    for (int d = 0; d < W; d += STEP) {
        if (W > most_unbranched && d % 32 == 0 && d >= columns) break;
#pragma unroll
        for (int i = 0; i < 2; i++)
            add_scores<F, STEP>(
                score[i], [&](uint32_t(&a)[4], int m, int k) { load_left(a, left[i], 16 * m, k); },
                right[i], d);
    }
}

// The A fragment of columns k of the weights, which have the C layout of mma.cuh. In 16 bits two
// adjacent C fragments, rounded, are an A fragment as they are. With TF32 a lane has columns 2 t
// and 2 t + 1 of a C, where A needs t and t + 4. But the order of the terms of a sum is free: they
// are taken as t and t + 4, and so are the rows of B. KEPT: negative weights become 0, which is how
// dropout marks what it drops.
template <class F, bool KEPT, int M, int N>
__device__ inline gd_mma::fragment<F, 4> rounded_weights(const sums<M, N> &weight, int m, int k)
{
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (gd_mma::is_16_bit<F>) {
            const float *c = weight.at[m][k / 8 + i / 2] + i % 2 * 2;
            a[i] = gd_mma::round_pair<KEPT>(F(), c[0], c[1]);
        } else {
            const float c = weight.at[m][k / 8][i % 2 * 2 + i / 2];
            a[i] = __float_as_uint(KEPT ? gd_mma::not_negative(c) : c);
        }
    }
    return gd_mma::fragment_of<F>(a);
}

// The B fragments of NS products, from rows k and columns c to c + 8 NS of a tile. With TF32 a lane
// loads its columns of four products at once: of each 32 columns, product j has columns 4 g + j for
// B's g. So a C of product j has columns 8 t + j and 8 t + 4 + j of them.
template <class F, int NS, class T, int W>
__device__ inline gd_mma::fragment<F, 2 * NS> load_right_transposed(const tile_row<T, W> *right,
                                                                    int k, int c)
{
    const int lane = lane_of_thread();
    uint32_t b[2 * NS];
#pragma unroll
    for (int first = 0; first < 2 * NS; first += 8, c += 32) {
        if constexpr (gd_mma::is_16_bit<F>) {
            uint32_t half[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++)
                gd_mma::ldmatrix_transposed(half[h],
                                            &right[k + lane % 16].at[c + 16 * h + lane / 16 * 8]);
#pragma unroll
            for (int i = 0; i < 8; i++) b[first + i] = half[i / 4][i % 4];
        } else {
            const auto *row = &right[k + lane % 4 * 2];
            const uint4 x = *(const uint4 *)&row[0].at[c + lane / 4 * 4];
            const uint4 y = *(const uint4 *)&row[1].at[c + lane / 4 * 4];
            b[first + 0] = x.x, b[first + 2] = x.y, b[first + 4] = x.z, b[first + 6] = x.w;
            b[first + 1] = y.x, b[first + 3] = y.y, b[first + 5] = y.z, b[first + 7] = y.w;
        }
    }
    return gd_mma::fragment_of<F>(b);
}

// sum += weight right, with the weights rounded to the format; KEPT: only the kept ones.
template <class F, bool KEPT, class T, int W, int M, int N>
__device__ inline void add_weighted(sums<M, W> &sum, const sums<M, N> &weight,
                                    const tile_row<T, W> *right, int columns)
{
    constexpr int NS = W % 64 ? 4 : products_at_once<F, M>;
#pragma unroll
    for (int c = 0; c < W; c += 8 * NS) {
        if (W > most_unbranched && c >= columns) break; // only zeros
        add_products<F, M, NS, N>(
            [&](int m, int i) -> float(&)[4] { return sum.at[m][c / 8 + i]; },
            [&](int m, int k) { return rounded_weights<F, KEPT>(weight, m, k); },
            [&](int k) { return load_right_transposed<F, NS>(right, k, c); });
    }
}

// ---- Results ----------------------------------------------------------------------------------

// The column of sum.at[m][n][i]. With TF32 it is the order of load_right_transposed.
template <class F>
__device__ inline int sum_column(int n, int i)
{
    const int t = lane_of_thread() % 4;
    return gd_mma::is_16_bit<F> ? 8 * n + 2 * t + i % 2 : n / 4 * 32 + 8 * t + i % 2 * 4 + n % 4;
}

// Rotates the warp's rows back (rope backward): angle -theta for the pair (c, c + W / 2). The rows
// begin at position `first` of `count`, and angles is [count, W / 2]. The members of a pair are in
// one lane, but for 32 columns with TF32 in lanes t and t + 2. Angles are loaded for two
// neighbouring columns at once: those of i and i + 1, or with TF32 of n and n + 1.
template <class F, int M, int W>
__device__ inline void rotate_back(sums<M, W> &sum, const float2 *angles, int first, int count)
{
    constexpr int by_i = gd_mma::is_16_bit<F>, by_n = !by_i;
    constexpr bool one_lane = W > 32 || by_i;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < (one_lane ? W / 16 : W / 8); n += 1 + by_n)
#pragma unroll
            for (int i = 0; i < 4; i += 1 + by_i) {
                const int row = first + row_of(m, i);
                const int column = sum_column<F>(n, i), pair = column % (W / 2);
                float4 two = {1, 0, 1, 0}; // cosine, sine, cosine, sine
                if (row < count) two = *(const float4 *)&angles[(int64_t)row * (W / 2) + pair];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float c = j ? two.z : two.x, s = j ? two.w : two.y;
                    float &a = sum.at[m][n + j * by_n][i + j * by_i];
                    if constexpr (one_lane) {
                        float &b = sum.at[m][n + j * by_n + W / 16][i + j * by_i];
                        const float turned = a * c + b * s;
                        b = b * c - a * s;
                        a = turned;
                    } else {
                        const float other = __shfl_xor_sync(0xffffffffu, a, 2);
                        a = a * c + (column == pair ? other : -other) * s;
                    }
                }
            }
}

// to = factor * sum, or +=, for the warp's rows from row 0 of `to` on, limited to `rows` and
// `columns`. A lane's numbers of a row are runs of 2 (16 bits) or 4 neighbours.
template <class F, class T, int M, int W>
__device__ inline void store_rows(T *to, int64_t stride, int64_t rows, int64_t columns,
                                  const sums<M, W> &sum, float factor, bool accumulate)
{
    constexpr int RUN = gd_mma::is_16_bit<F> ? 2 : 4;
    struct alignas(RUN * sizeof(T)) run {
        T at[RUN];
    };
    const bool aligned =
        (uintptr_t)to % sizeof(run) == 0 && stride % RUN == 0 && columns % RUN == 0;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
#pragma unroll
            for (int r = 0; r < W / 4 / RUN; r++) {
                const int row = row_of(m, i);
                const int column = sum_column<F>(RUN == 2 ? r : r / 2 * 4, RUN == 2 ? i : r % 2);
                if (row >= rows || column >= columns) continue;
                run value;
                T *x = to + row * stride + column;
                if (accumulate && aligned) value = *(const run *)x;
#pragma unroll
                for (int v = 0; v < RUN; v++) {
                    const bool inside = column + v < columns;
                    float all = factor * (RUN == 2 ? sum.at[m][r][i + v]
                                                   : sum.at[m][r / 2 * 4 + v][i + r % 2]);
                    if (accumulate && !aligned && inside) value.at[v] = x[v];
                    if (accumulate && inside) all += gd_load(value.at[v]);
                    value.at[v] = gd_store<T>(all);
                    if (!aligned && inside) x[v] = value.at[v];
                }
                if (aligned) *(run *)x = value;
            }
}

// ---- Launching --------------------------------------------------------------------------------

// Calls body(width) with a constant W that is at least D and E.
template <class Body>
static inline gd_status by_width(const attention_sizes &z, Body body)
{
    const int64_t widest = z.D > z.E ? z.D : z.E;
    if (widest <= 32) return body(std::integral_constant<int, 32>());
    if (widest <= 64) return body(std::integral_constant<int, 64>());
    if (widest <= 96) return body(std::integral_constant<int, 96>());
    if (widest <= 128) return body(std::integral_constant<int, 128>());
    return body(std::integral_constant<int, 256>());
}

} // namespace attention_mma

#endif
