// column_sum.cuh - sums over the rows of an array [M, N]: the gradient of an operand that all rows
// share.
//
// A block has 32 columns and a piece of the rows. Its 8 warps take the piece's rows in turn (a warp
// reads 32 neighbours of one row), and their 8 sums are added in order. The pieces' sums, at most
// 256 rows of them, are then summed by the same kernel as one piece. Pieces and turns, and so the
// order of every sum, depend only on M.
#ifndef GD_COLUMN_SUM_CUH
#define GD_COLUMN_SUM_CUH

#include "cuda.cuh"

enum { GD_SUM_COLUMNS = 32, GD_SUM_WARPS = 8 };

struct gd_row_pieces {
    int64_t rows, count; // rows in each; at least one piece, if only of nothing
};

static inline gd_row_pieces gd_row_pieces_of(int64_t M)
{
    const int64_t least = 64, most = 256;
    gd_row_pieces pieces = {gd_cuda_divide_up(M, most), 1};
    if (pieces.rows < least) pieces.rows = least;
    if (M > 0) pieces.count = gd_cuda_divide_up(M, pieces.rows);
    return pieces;
}

// S sums at once: value.add(row, column, sum) adds the terms at that place to sum[0 ... S - 1], and
// store(piece, column, sum) stores the sums.
template <int S, class C, class Value, class Store>
__global__ static void gd_sum_columns(int64_t M, int64_t N, int64_t piece_rows, Value value,
                                      Store store)
{
    __shared__ C shared[S][GD_SUM_WARPS][GD_SUM_COLUMNS];
    const int lane = threadIdx.x, warp = threadIdx.y;
    const int64_t column = (int64_t)blockIdx.x * GD_SUM_COLUMNS + lane, piece = blockIdx.y;
    const int64_t end = piece_rows < M - piece * piece_rows ? (piece + 1) * piece_rows : M;
    C sum[S] = {};
    if (column < N) {
#pragma unroll 4
        for (int64_t row = piece * piece_rows + warp; row < end; row += GD_SUM_WARPS) {
            value.add(row, column, sum);
        }
    }
    for (int s = 0; s < S; s++) shared[s][warp][lane] = sum[s];
    __syncthreads();
    if (warp > 0 || column >= N) return;
    for (int s = 0; s < S; s++) {
        for (int w = 1; w < GD_SUM_WARPS; w++) sum[s] += shared[s][w][lane];
    }
    store(piece, column, sum);
}

// The pieces' sums: partial [S, pieces, N].
template <int S, class C>
struct gd_store_partial {
    C *partial;
    int64_t pieces, N;

    __device__ void operator()(int64_t piece, int64_t column, const C *sum) const
    {
        for (int s = 0; s < S; s++) partial[(s * pieces + piece) * N + column] = sum[s];
    }
};

template <class C>
struct gd_add_partial {
    const C *partial; // [pieces, N]
    int64_t N;

    __device__ void add(int64_t row, int64_t column, C *sum) const
    {
        sum[0] += partial[row * N + column];
    }
};

template <class T>
struct gd_store_sum {
    T *out; // [N]
    bool accumulate;

    __device__ void operator()(int64_t, int64_t column, const gd_compute<T> *sum) const
    {
        out[column] = gd_store<T>(accumulate ? gd_load(out[column]) + sum[0] : sum[0]);
    }
};

// out[s] [N] (+)= the sums over M rows, for those of the S that are not NULL.
template <int S, class T, class Value>
static inline gd_status gd_column_sums(const gd_call *call, T *const *out, const bool *accumulate,
                                       int64_t M, int64_t N, Value value)
{
    using C = gd_compute<T>;
    if (N == 0) return GD_OK;
    const gd_row_pieces pieces = gd_row_pieces_of(M);
    const dim3 threads(GD_SUM_COLUMNS, GD_SUM_WARPS);
    const dim3 blocks((unsigned)gd_cuda_divide_up(N, GD_SUM_COLUMNS), (unsigned)pieces.count);
    C *partial = (C *)gd_call_scratch(call, (size_t)(S * pieces.count * N) * sizeof(C));
    if (!partial) return gd_error_status(call->context);
    gd_sum_columns<S, C><<<blocks, threads, 0, gd_stream(call)>>>(
        M, N, pieces.rows, value, gd_store_partial<S, C>{partial, pieces.count, N});
    if (gd_launched(call)) return gd_error_status(call->context);
    for (int s = 0; s < S; s++) {
        if (!out[s]) continue;
        gd_sum_columns<1, C><<<blocks.x, threads, 0, gd_stream(call)>>>(
            pieces.count, N, pieces.count, gd_add_partial<C>{partial + s * pieces.count * N, N},
            gd_store_sum<T>{out[s], accumulate[s]});
        if (gd_launched(call)) return gd_error_status(call->context);
    }
    return GD_OK;
}

#endif
