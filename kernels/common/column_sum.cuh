// column_sum.cuh - sums over the rows of an array [M, N]: the gradient of an operand that all rows
// share.
//
// Two kernels. In the first (gd_sum_columns) a block has 32 columns and a piece of the rows. Its 8
// warps take the piece's rows in turn (a warp reads 32 neighbours of one row), and their 8 sums are
// added in order: at most 256 rows of partial sums. The second (gd_sum_partials) adds these, and
// those that the kernels of rms_norm write. Few rows are one piece, whose sums need no second
// kernel. Pieces and turns, and so the order of every sum, depend only on M.
#ifndef GD_COLUMN_SUM_CUH
#define GD_COLUMN_SUM_CUH

#include "launch.cuh"
#include "pack.cuh"

// Where a sum is stored, rounded once, or to what it is added.
struct gd_sum_place {
    void *data; // [N], or NULL: it is not wanted
    gd_dtype dtype;
    bool accumulate;
};

// ---- Partial sums -------------------------------------------------------------------------------

enum { GD_SUM_COLUMNS = 32, GD_SUM_WARPS = 8, GD_SUM_FEW_ROWS = 256 };

struct gd_row_pieces {
    int64_t rows, count; // rows in each; at least one piece, if only of nothing
};

static inline gd_row_pieces gd_row_pieces_of(int64_t M)
{
    const int64_t least = M <= GD_SUM_FEW_ROWS ? GD_SUM_FEW_ROWS : 64, most = 256;
    gd_row_pieces pieces = {gd_ceil_div(M, most), 1};
    if (pieces.rows < least) pieces.rows = least;
    if (M > 0) pieces.count = gd_ceil_div(M, pieces.rows);
    return pieces;
}

// The places of S sums.
template <int S>
struct gd_sum_places {
    gd_sum_place of[S];
};

// S sums at once: value.add(row, column, sum) adds the terms at that place to sum[0 ... S - 1].
// partial [S, pieces, N], or NULL if there is one piece
template <int S, class C, class Value>
__global__ static void GD_LAUNCH_BOUNDS(GD_SUM_COLUMNS *GD_SUM_WARPS, 4)
    gd_sum_columns(int64_t M, int64_t N, int64_t piece_rows, Value value, C *partial,
                   gd_sum_places<S> out)
{
    gd_in_turn();
    __shared__ C shared[S][GD_SUM_WARPS][GD_SUM_COLUMNS];
    const int lane = threadIdx.x, warp = threadIdx.y;
    const int64_t column = (int64_t)blockIdx.x * GD_SUM_COLUMNS + lane, piece = blockIdx.y;
    const int64_t end = piece_rows < M - piece * piece_rows ? (piece + 1) * piece_rows : M;
    C sum[S] = {};
    if (column < N) {
#pragma unroll 8
        for (int64_t row = piece * piece_rows + warp; row < end; row += GD_SUM_WARPS) {
            value.add(row, column, sum);
        }
    }
    for (int s = 0; s < S; s++) shared[s][warp][lane] = sum[s];
    __syncthreads();
    if (warp > 0 || column >= N) return;
    for (int s = 0; s < S; s++) {
        for (int w = 1; w < GD_SUM_WARPS; w++) sum[s] += shared[s][w][lane];
        if (partial)
            partial[(s * gridDim.y + piece) * N + column] = sum[s];
        else if (out.of[s].data)
            gd_put(out.of[s].data, out.of[s].dtype, column, out.of[s].accumulate, sum[s]);
    }
}

// ---- Their sum ----------------------------------------------------------------------------------

// The sums of a block's lanes * V columns from those of its warps' threads: thread t has the V
// columns of pack t mod lanes, lanes <= MOST.
template <int MOST, class C, int V>
__device__ inline void gd_finish_sums(gd_pack<C, V> &sum, int lanes, int warps,
                                      const gd_sum_place &out, int64_t N)
{
    __shared__ gd_pack<C, V> sums[16][MOST]; // of warps
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int apart = lanes; apart < 32; apart *= 2)
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += __shfl_xor_sync(~0u, sum[v], apart);
    if (lane < lanes) sums[warp][lane] = sum;
    __syncthreads();
    const int64_t column = (int64_t)blockIdx.x * lanes * V + threadIdx.x;
    if ((int)threadIdx.x >= lanes * V || column >= N) return;
    C all = 0;
    for (int w = 0; w < warps; w++) all += sums[w][threadIdx.x / V][threadIdx.x % V];
    gd_put(out.data, out.dtype, column, out.accumulate, all);
}

// The partial sums [P, N] were written just before and are in L2, so latency dominates; it is paid
// only once if all loads of a thread are in flight together. A block has `lanes` threads side by
// side, V columns each, and Y = 256 / lanes rows of threads. Row y takes partial rows y, y + Y,
// ..., GD_SUM_AT_ONCE of them at a time; then the Y sums are added.
enum { GD_SUM_AT_ONCE = 9 };

template <class C, int V>
__global__ static void GD_LAUNCH_BOUNDS(256, 4)
    gd_partials_kernel(gd_sum_place out, const C *partial, int64_t P, int64_t N, int lanes)
{
    using Pack = gd_pack<C, V>;
    const int lane = (int)threadIdx.x % lanes, row = (int)threadIdx.x / lanes, rows = 256 / lanes;
    const int64_t pack = (int64_t)blockIdx.x * lanes + lane, packs = N / V, step = rows * packs;
    const Pack *next = (const Pack *)partial + row * packs + pack;
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    Pack total = {};
#pragma unroll 1
    for (int64_t p = row; pack < packs && p < P; p += GD_SUM_AT_ONCE * rows) {
        Pack part[GD_SUM_AT_ONCE];
#pragma unroll
        for (int k = 0; k < GD_SUM_AT_ONCE; k++) {
            part[k] = {};
            if (p + k * rows < P) part[k] = next[k * step];
        }
#pragma unroll
        for (int k = 0; k < GD_SUM_AT_ONCE; k++)
#pragma unroll
            for (int v = 0; v < V; v++) total[v] += part[k][v];
        next += GD_SUM_AT_ONCE * step;
    }
    gd_finish_sums<32>(total, lanes, 256 / 32, out, N);
}

// `lanes` is the largest count that leaves a thread GD_SUM_AT_ONCE loads or fewer: with fewer
// blocks, those of the next kernel can start sooner.
template <class C>
static inline cudaError_t gd_sum_partials(const gd_sum_place &out, const C *partial, int64_t P,
                                          int64_t N, cudaStream_t stream)
{
    constexpr int V = 16 / sizeof(C);
    int lanes = 32;
    while (lanes > 8 && P > 256 / lanes * GD_SUM_AT_ONCE) lanes /= 2;
    const bool packed = N % V == 0;
    const gd_grid grid = {(unsigned)gd_ceil_div(N, lanes * (packed ? V : 1)), 256};
    if (packed)
        return gd_launch_on(stream, grid, gd_partials_kernel<C, V>, out, partial, P, N, lanes);
    return gd_launch_on(stream, grid, gd_partials_kernel<C, 1>, out, partial, P, N, lanes);
}

// ---- Both ---------------------------------------------------------------------------------------

// The sum of the rows of x [M, N].
template <class T>
struct gd_row_terms {
    const T *x;
    int64_t N;

    __device__ void add(int64_t row, int64_t column, gd_compute<T> *sum) const
    {
        sum[0] += gd_load(x[row * N + column]);
    }
};

// out[s] [N] (+)= the sums over M rows, for those of the S that are not NULL.
template <int S, class C, class Value>
static inline gd_status gd_column_sums(const gd_call *call, gd_tensor *const *out,
                                       const bool *accumulate, int64_t M, int64_t N, Value value)
{
    gd_sum_places<S> places = {};
    bool wanted = false;
    for (int s = 0; s < S; s++) {
        if (!out[s]) continue;
        places.of[s] = {gd_tensor_data(out[s]), gd_tensor_dtype(out[s]), accumulate[s]};
        wanted = true;
    }
    if (!wanted || N == 0) return GD_OK;
    const gd_row_pieces pieces = gd_row_pieces_of(M);
    const int64_t size = pieces.count * N;
    C *partial = nullptr;
    if (pieces.count > 1 && !(partial = (C *)gd_call_scratch(call, (size_t)(S * size) * sizeof(C))))
        return gd_error_status(call->context);
    const gd_grid grid = {{(unsigned)gd_ceil_div(N, GD_SUM_COLUMNS), (unsigned)pieces.count},
                          {GD_SUM_COLUMNS, GD_SUM_WARPS}};
    gd_status status = gd_launch(call, grid, gd_sum_columns<S, C, Value>, M, N, pieces.rows, value,
                                 partial, places);
    for (int s = 0; partial && s < S && !status; s++)
        if (places.of[s].data)
            status = gd_launched(call, gd_sum_partials(places.of[s], partial + s * size,
                                                       pieces.count, N, gd_stream(call)));
    return status;
}

#endif
