// copy.cu - dst = src for any strides and any pair of dtypes, on a GPU.
//
// If both sides are packed, a thread converts 16 bytes at a time. If the rows are, accesses
// coalesce: neighbouring threads take neighbouring elements. If the two sides run along different
// dimensions, one of them would be accessed across its lines; then a tile is read in src's order
// into shared memory and written from it in dst's.
#include "copy/convert.cuh"
#include "cuda/device_cuda.h"
#include "pack.cuh"

enum { DST, SRC };

// ---- The kernels ------------------------------------------------------------------------------

template <class To, class From>
static __global__ void convert_kernel(To *dst, const From *src, int64_t n)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<To, From>;
    GD_EACH(pack, gd_packs(n, V))
    {
        From from[V];
        To to[V];
        gd_load_guarded(from, src, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = gd_convert<To>(from[v]);
        gd_store_guarded(dst, to, pack * V, n);
    }
}

template <class To, class From>
static __global__ void strided_kernel(To *dst, const From *src, gd_cuda_walk<2> walk)
{
    gd_in_turn();
    GD_EACH(i, walk.count)
    {
        int64_t at[2];
        walk.at(i, at);
        dst[at[DST]] = gd_convert<To>(src[at[SRC]]);
    }
}

// Side of a tile, and rows of it that a block of 32 x 8 threads takes at once.
constexpr int tile_side = 32, tile_step = 8;

// Rows run along dst, columns along src, at each place of an outer walk over the other dimensions.
struct transposition {
    gd_cuda_walk<2> outer;
    int64_t rows, dst_row; // how many, and the step in dst from one to the next
    int64_t cols, src_col;
    int64_t tiles_down, tiles_along;
};

template <class To, class From>
static __global__ void transpose_kernel(To *dst, const From *src, transposition t)
{
    gd_in_turn();
    // One more column than needed: going down a column then visits all banks.
    __shared__ To tile[tile_side][tile_side + 1];
    const int64_t tiles_each = t.tiles_down * t.tiles_along, tiles = t.outer.count * tiles_each;
    const int x = threadIdx.x;
    for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
        int64_t at[2];
        t.outer.at(number / tiles_each, at);
        const int64_t first_row = number % tiles_each / t.tiles_along * tile_side;
        const int64_t first_col = number % t.tiles_along * tile_side;
        for (int y = threadIdx.y; y < tile_side; y += tile_step) {
            const int64_t row = first_row + x, col = first_col + y;
            if (row < t.rows && col < t.cols)
                tile[y][x] = gd_convert<To>(src[at[SRC] + row + col * t.src_col]);
        }
        __syncthreads();
        for (int y = threadIdx.y; y < tile_side; y += tile_step) {
            const int64_t row = first_row + y, col = first_col + x;
            if (row < t.rows && col < t.cols) dst[at[DST] + row * t.dst_row + col] = tile[x][y];
        }
        __syncthreads();
    }
}

// ---- Choosing one -----------------------------------------------------------------------------

// A walk in the order of dst's memory, whatever the order of its dimensions.
static gd_cuda_walk<2> walk_along(const gd_layout &dst, const gd_layout &src)
{
    int64_t shape[GD_MAX_DIMS], to[GD_MAX_DIMS], from[GD_MAX_DIMS];
    for (int d = 0; d < dst.ndim; d++) {
        int place = d;
        for (; place > 0 && to[place - 1] < dst.strides[d]; place--) {
            shape[place] = shape[place - 1];
            to[place] = to[place - 1];
            from[place] = from[place - 1];
        }
        shape[place] = dst.shape[d];
        to[place] = dst.strides[d];
        from[place] = src.strides[d];
    }
    return gd_cuda_walk_over<2>(
        dst.ndim, shape,
        {{dst.data, dst.dtype, dst.ndim, shape, to}, {src.data, src.dtype, dst.ndim, shape, from}});
}

static bool runs_along_rows(const gd_cuda_walk<2> &walk)
{
    const int last = walk.ndim - 1;
    return last < 0 || (walk.stride[DST][last] == 1 && walk.stride[SRC][last] == 1);
}

// The dimension along which src is packed where dst is packed along another, and both are long
// enough for tiles; else -1.
static int transposed_dimension(const gd_cuda_walk<2> &walk)
{
    const int last = walk.ndim - 1, enough = 8;
    if (last < 1 || walk.stride[DST][last] != 1 || walk.shape[last] < enough) return -1;
    for (int d = 0; d < last; d++)
        if (walk.stride[SRC][d] == 1 && walk.shape[d] >= enough) return d;
    return -1;
}

static transposition transposition_of(const gd_cuda_walk<2> &walk, int across)
{
    const int last = walk.ndim - 1;
    transposition t = {};
    t.rows = walk.shape[across], t.dst_row = walk.stride[DST][across];
    t.cols = walk.shape[last], t.src_col = walk.stride[SRC][last];
    t.tiles_down = gd_ceil_div(t.rows, tile_side);
    t.tiles_along = gd_ceil_div(t.cols, tile_side);
    t.outer.count = walk.count / (t.rows * t.cols);
    for (int d = 0; d < last; d++) {
        if (d == across) continue;
        const int to = t.outer.ndim++;
        t.outer.shape[to] = walk.shape[d];
        for (int k = 0; k < 2; k++) t.outer.stride[k][to] = walk.stride[k][d];
    }
    return t;
}

template <class To, class From>
static void copy_strided(void *dst, const void *src, const gd_cuda_walk<2> &walk, gd_context *ctx)
{
    const int across = transposed_dimension(walk);
    if (across < 0) {
        gd_launch(ctx, "copy", gd_grid_for(walk.count), strided_kernel<To, From>, (To *)dst,
                  (const From *)src, walk);
    } else {
        const transposition t = transposition_of(walk, across);
        const int64_t tiles = t.outer.count * t.tiles_down * t.tiles_along;
        gd_launch(ctx, "copy", gd_grid_for(tiles, 1, {tile_side, tile_step}),
                  transpose_kernel<To, From>, (To *)dst, (const From *)src, t);
    }
}

// ---- Between equal dtypes only bytes move -----------------------------------------------------

// Whether all rows of the walk can be moved in units of so many bytes.
static bool divides(const gd_cuda_walk<2> &walk, const void *const (&data)[2], int64_t size,
                    int64_t unit)
{
    const int last = walk.ndim - 1;
    bool fits = walk.shape[last] * size % unit == 0;
    for (int k = 0; k < 2; k++) {
        fits = fits && (uintptr_t)data[k] % (uintptr_t)unit == 0;
        for (int d = 0; d < last; d++) fits = fits && walk.stride[k][d] * size % unit == 0;
    }
    return fits;
}

// Combines as many neighbours as possible, up to 16 bytes; returns the bytes of such a unit.
static int64_t widen(gd_cuda_walk<2> *walk, const void *const (&data)[2], int64_t size)
{
    if (!runs_along_rows(*walk)) return size;
    int64_t unit = 16;
    while (unit > size && !divides(*walk, data, size, unit)) unit /= 2;
    const int64_t together = unit / size;
    const int last = walk->ndim - 1;
    walk->shape[last] /= together;
    walk->count /= together;
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < last; d++) walk->stride[k][d] /= together;
    return unit;
}

static void move_strided(const gd_layout &dst, const gd_layout &src, gd_cuda_walk<2> walk,
                         gd_context *ctx)
{
    const int64_t unit = widen(&walk, {dst.data, src.data}, (int64_t)gd_dtype_size(dst.dtype));
    gd_by_unit(unit, [&](auto zero) {
        using Unit = decltype(zero);
        copy_strided<Unit, Unit>(dst.data, src.data, walk, ctx);
    });
}

extern "C" void gd_copy_cuda(gd_layout dst, gd_layout src, gd_context *ctx)
{
    const cudaStream_t stream = (cudaStream_t)gd_context_stream(ctx);
    const gd_cuda_walk<2> walk = walk_along(dst, src);
    if (walk.count == 0) return;
    const bool packed = walk.ndim <= 1 && runs_along_rows(walk);
    if (dst.dtype == src.dtype && packed) {
        const size_t bytes = (size_t)walk.count * gd_dtype_size(dst.dtype);
        gd_cuda_check(ctx,
                      cudaMemcpyAsync(dst.data, src.data, bytes, cudaMemcpyDeviceToDevice, stream),
                      "copy");
        return;
    }
    if (dst.dtype == src.dtype) {
        move_strided(dst, src, walk, ctx);
    } else {
        gd_by_any_dtype(dst.dtype, [&](auto to) {
            gd_by_any_dtype(src.dtype, [&](auto from) {
                using To = decltype(to);
                using From = decltype(from);
                if constexpr (!std::is_same<To, From>::value) {
                    if (packed)
                        gd_launch(ctx, "copy",
                                  gd_grid_for(walk.count, gd_threads * gd_pack_size<To, From>),
                                  convert_kernel<To, From>, (To *)dst.data, (const From *)src.data,
                                  walk.count);
                    else
                        copy_strided<To, From>(dst.data, src.data, walk, ctx);
                }
            });
        });
    }
}
