// packed.cu - the core's arithmetic on packed arrays on a GPU: accumulate, fill, sum of squares,
// scale. The results are those of packed.c, except for the order of the sum.
#include "copy/convert.cuh"
#include "device_cuda.h"
#include "pack.cuh"

constexpr int threads = 256;

static cudaStream_t stream_of(const gd_context *ctx)
{
    return (cudaStream_t)gd_context_stream(ctx);
}

// Blocks for n elements, V of which each thread takes at a time.
static unsigned blocks_for(int64_t n, int V)
{
    return gd_blocks(n, (int64_t)threads * V);
}

// ---- Accumulate -------------------------------------------------------------------------------

template <class To, class From>
static __global__ void accumulate_kernel(To *dst, const From *src, int64_t n)
{
    constexpr int V = gd_pack_size<To, From>;
    GD_EACH(pack, gd_packs(n, V))
    {
        To to[V];
        From from[V];
        gd_pack_load(to, dst, pack * V, n);
        gd_pack_load(from, src, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = gd_store<To>(gd_load(to[v]) + gd_load(from[v]));
        gd_pack_store(dst, to, pack * V, n);
    }
}

extern "C" void gd_accumulate_cuda(void *dst, gd_dtype dst_dtype, const void *src,
                                   gd_dtype src_dtype, int64_t n, gd_context *ctx)
{
    if (n == 0) return;
    gd_by_dtype(dst_dtype, [&](auto to) {
        return gd_by_dtype(src_dtype, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            accumulate_kernel<<<blocks_for(n, gd_pack_size<To, From>), threads, 0,
                                stream_of(ctx)>>>((To *)dst, (const From *)src, n);
            return gd_service_launched(ctx, "accumulate");
        });
    });
}

// ---- Fill -------------------------------------------------------------------------------------

template <class T>
static __global__ void fill_kernel(T *dst, double value, int64_t n)
{
    constexpr int V = gd_pack_size<T>;
    T same[V];
#pragma unroll
    for (int v = 0; v < V; v++) same[v] = gd_convert<T>(value);
    GD_EACH(pack, gd_packs(n, V)) gd_pack_store(dst, same, pack * V, n);
}

extern "C" void gd_fill_cuda(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx)
{
    if (n == 0) return;
    gd_by_any_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        fill_kernel<<<blocks_for(n, gd_pack_size<T>), threads, 0, stream_of(ctx)>>>((T *)dst, value,
                                                                                    n);
    });
    gd_service_launched(ctx, "fill");
}

// ---- Sum of squares ---------------------------------------------------------------------------

// part[block] = the squares of every gridDim-th run of the array, one run a block. Any block may be
// the last to finish, but every one adds the parts in the same order.
template <class T>
static __global__ void __launch_bounds__(threads)
    sum_squares_kernel(double *sum, double *part, unsigned *done, const T *x, int64_t n)
{
    constexpr int V = gd_pack_size<T>;
    __shared__ double shared[32];
    __shared__ bool last;
    double own = 0;
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        gd_pack_load(value, x, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const double wide = gd_load(value[v]);
            own += wide * wide;
        }
    }
    own = gd_block_reduce(own, shared, gd_plus());
    if (threadIdx.x == 0) {
        part[blockIdx.x] = own;
        __threadfence(); // the part, before the count that says it is there
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    own = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += threads) own += __ldcg(part + i);
    own = gd_block_reduce(own, shared, gd_plus());
    if (threadIdx.x == 0) *sum = own, *done = 0;
}

// The number of pieces depends only on n, never on the GPU. The sum of no elements is 0, too.
extern "C" void gd_sum_squares_cuda(double *sum, const void *x, gd_dtype dtype, int64_t n,
                                    gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    unsigned pieces = n > 0 ? blocks_for(n, 16) : 1;
    if (pieces > GD_CUDA_SUMS) pieces = GD_CUDA_SUMS;
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        sum_squares_kernel<<<pieces, threads, 0, cuda->stream>>>(sum, cuda->sums, cuda->sums_done,
                                                                 (const T *)x, n);
        return gd_service_launched(ctx, "sum of squares");
    });
}

// ---- Scale ------------------------------------------------------------------------------------

// The product in double: the factor is not rounded to float first.
template <class T>
static __global__ void scale_kernel(T *x, double factor, int64_t n)
{
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        gd_pack_load(value, x, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) value[v] = gd_store<T>((double)gd_load(value[v]) * factor);
        gd_pack_store(x, value, pack * V, n);
    }
}

extern "C" void gd_scale_cuda(void *x, gd_dtype dtype, double factor, int64_t n, gd_context *ctx)
{
    if (n == 0) return;
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        scale_kernel<<<blocks_for(n, gd_pack_size<T>), threads, 0, stream_of(ctx)>>>((T *)x, factor,
                                                                                     n);
        return gd_service_launched(ctx, "scale");
    });
}
