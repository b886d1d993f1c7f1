// copy.cu - dst = src for any strides and any pair of dtypes, on a GPU.
//
// If both sides are packed, a thread converts 16 bytes at a time. If the rows are, or src has them in
// reverse (flip) or repeats its elements (expand), accesses coalesce: neighbouring threads take
// neighbouring elements, 16 bytes at a time if only bytes move. If the two sides run along other
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

// What a thread writes: the number that it has read; the sum of that and what is there; or a unit of
// 16 bytes of elements, made of as many in reverse or of fewer, each several times.
struct added {
};
template <class Element, class To, class From>
__device__ inline To made_of(From x, [[maybe_unused]] const To *old)
{
    if constexpr (std::is_void<Element>::value) {
        return gd_convert<To>(x);
    } else if constexpr (std::is_same<Element, added>::value) {
        return gd_store<To>(gd_load(*old) + gd_load(x));
    } else {
        constexpr int N = sizeof(To) / sizeof(Element), M = sizeof(From) / sizeof(Element);
        Element from[M], to[N];
        memcpy(from, &x, sizeof from);
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = from[M == N ? M - 1 - i : i * M / N];
        To unit;
        memcpy(&unit, to, sizeof unit);
        return unit;
    }
}

// A walk of at most four dimensions over fewer than 2^31 elements, which divides by products: n / size
// is n factor / 2^shift for every n below 2^31, where 2^(shift - 31) is at least the size.
struct quick_walk {
    static constexpr int DIMS = 4;
    int64_t count;
    unsigned size[DIMS], factor[DIMS];
    int shift[DIMS];
    int64_t stride[2][DIMS];

    static bool fits(const gd_cuda_walk<2> &walk)
    {
        return walk.ndim <= DIMS && walk.count <= INT32_MAX;
    }
    explicit quick_walk(const gd_cuda_walk<2> &walk) : count(walk.count)
    {
        for (int d = DIMS - 1, own = walk.ndim - 1; d >= 0; d--, own--) {
            size[d] = own < 0 ? 1 : (unsigned)walk.shape[own];
            for (shift[d] = 31; (uint64_t)1 << (shift[d] - 31) < size[d];) shift[d]++;
            factor[d] = (unsigned)((((uint64_t)1 << shift[d]) + size[d] - 1) / size[d]);
            for (int k = 0; k < 2; k++) stride[k][d] = own < 0 ? 0 : walk.stride[k][own];
        }
    }
    __device__ void at(int64_t i, int64_t *offset) const
    {
        unsigned rest = (unsigned)i;
        offset[DST] = offset[SRC] = 0;
#pragma unroll
        for (int d = DIMS - 1; d >= 0; d--) {
            const unsigned next = (unsigned)((uint64_t)rest * factor[d] >> shift[d]);
            for (int k = 0; k < 2; k++) offset[k] += (rest - next * size[d]) * stride[k][d];
            rest = next;
        }
    }
};

// A thread has AHEAD elements, as far apart as a block has threads: all are read before the first
// is written.
template <class Element, int AHEAD, class To, class From, class Walk>
static __global__ void __launch_bounds__(gd_threads)
    strided_kernel(To *dst, const From *src, Walk walk)
{
    gd_in_turn();
    constexpr int tile = AHEAD * gd_threads;
    for (int64_t first = (int64_t)blockIdx.x * tile + threadIdx.x; first < walk.count;
         first += (int64_t)gridDim.x * tile) {
        From from[AHEAD];
        int64_t at[AHEAD][2];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            walk.at(min(first + a * gd_threads, walk.count - 1), at[a]);
            from[a] = src[at[a][SRC]];
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (first + a * gd_threads < walk.count)
                dst[at[a][DST]] = made_of<Element, To>(from[a], dst + at[a][DST]);
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

// Small copies have as many threads as elements.
template <class Element, class To, class From>
static void copy_in_turn(void *dst, const void *src, const gd_cuda_walk<2> &walk, gd_context *ctx)
{
    if (walk.count >= 1 << 20 && quick_walk::fits(walk))
        gd_launch(ctx, "copy", gd_grid_for(walk.count, 4 * gd_threads),
                  strided_kernel<Element, 4, To, From, quick_walk>, (To *)dst, (const From *)src,
                  quick_walk(walk));
    else
        gd_launch(ctx, "copy", gd_grid_for(walk.count),
                  strided_kernel<Element, 1, To, From, gd_cuda_walk<2>>, (To *)dst,
                  (const From *)src, walk);
}

template <class To, class From>
static void copy_strided(void *dst, const void *src, const gd_cuda_walk<2> &walk, gd_context *ctx)
{
    const int across = transposed_dimension(walk);
    if (across < 0) {
        copy_in_turn<void, To, From>(dst, src, walk, ctx);
    } else {
        const transposition t = transposition_of(walk, across);
        const int64_t tiles = t.outer.count * t.tiles_down * t.tiles_along;
        gd_launch(ctx, "copy", gd_grid_for(tiles, 1, {tile_side, tile_step}),
                  transpose_kernel<To, From>, (To *)dst, (const From *)src, t);
    }
}

// ---- Between equal dtypes only bytes move -----------------------------------------------------

// Combines neighbours into units of so many bytes, if all rows of both sides can be moved so.
static bool in_units(gd_cuda_walk<2> *walk, const void *const (&data)[2], int64_t size,
                     const int64_t (&unit)[2])
{
    const int last = walk->ndim - 1;
    bool fits = walk->shape[last] * size % unit[DST] == 0;
    for (int k = 0; k < 2; k++) {
        fits = fits && (uintptr_t)data[k] % (uintptr_t)unit[k] == 0;
        for (int d = 0; d < last; d++) fits = fits && walk->stride[k][d] * size % unit[k] == 0;
    }
    if (!fits) return false;
    walk->shape[last] = walk->shape[last] * size / unit[DST];
    walk->count = walk->count * size / unit[DST];
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < last; d++) walk->stride[k][d] = walk->stride[k][d] * size / unit[k];
    return true;
}

// Rows that src has in reverse, or each element of several times, in units of 16 bytes; false:
// these are none, or they are not aligned.
static bool move_spread(void *dst, const void *src, gd_cuda_walk<2> walk, int64_t size,
                        gd_context *ctx)
{
    int last = walk.ndim - 1;
    if (last < 0 || walk.stride[DST][last] != 1) return false;
    const int64_t step = walk.stride[SRC][last], times = walk.shape[last], n = 16 / size;
    int64_t unit[2] = {16, 16};
    if (step == -1) {
        src = (const char *)src - (16 - size);
    } else if (step == 0 && times % n == 0) {
        unit[SRC] = size;
    } else if (step == 0 && n % times == 0 && last > 0 && walk.stride[SRC][last - 1] == 1 &&
               walk.stride[DST][last - 1] == times) {
        unit[SRC] = 16 / times;
        last = --walk.ndim - 1;
        walk.shape[last] *= times, walk.stride[DST][last] = 1;
    } else {
        return false;
    }
    if (!in_units(&walk, {dst, src}, size, unit)) return false;
    gd_by_unit(size, [&](auto element) {
        gd_by_unit(unit[SRC], [&](auto from) {
            using Element = decltype(element);
            using From = decltype(from);
            if constexpr (sizeof(Element) < 16 && sizeof(From) >= sizeof(Element))
                copy_in_turn<Element, uint4, From>(dst, src, walk, ctx);
        });
    });
    return true;
}

static void move_strided(const gd_layout &dst, const gd_layout &src, gd_cuda_walk<2> walk,
                         gd_context *ctx)
{
    const int64_t size = (int64_t)gd_dtype_size(dst.dtype);
    if (move_spread(dst.data, src.data, walk, size, ctx)) return;
    int64_t unit = runs_along_rows(walk) ? 16 : size;
    while (unit > size && !in_units(&walk, {dst.data, src.data}, size, {unit, unit})) unit /= 2;
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

extern "C" void gd_add_cuda(gd_layout dst, gd_layout src, gd_context *ctx)
{
    const gd_cuda_walk<2> walk = walk_along(dst, src);
    gd_by_dtype(dst.dtype, [&](auto zero) {
        using T = decltype(zero);
        copy_in_turn<added, T, T>(dst.data, src.data, walk, ctx);
        return GD_OK;
    });
}
