// packed.cu - the core's arithmetic on packed arrays on a GPU: accumulate, fill, sum of squares,
// scale, and what rows touch. The results are those of packed.c, except for the order of the sum.
#include "copy/convert.cuh"
#include "cuda/device_cuda.h"
#include "team.cuh"
#include "touched.cuh"

// ---- Accumulate -------------------------------------------------------------------------------

template <class To, class From>
static __global__ void accumulate_kernel(To *dst, const From *src, int64_t n)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<To, From>;
    GD_EACH(pack, gd_packs(n, V))
    {
        To to[V];
        From from[V];
        gd_load_guarded(to, dst, pack * V, n);
        gd_load_guarded(from, src, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = gd_store<To>(gd_load(to[v]) + gd_load(from[v]));
        gd_store_guarded(dst, to, pack * V, n);
    }
}

extern "C" void gd_accumulate_cuda(void *dst, gd_dtype dst_dtype, const void *src,
                                   gd_dtype src_dtype, int64_t n, gd_context *ctx)
{
    gd_by_dtype(dst_dtype, [&](auto to) {
        return gd_by_dtype(src_dtype, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            return gd_launch(ctx, "accumulate", gd_grid_for(n, gd_threads * gd_pack_size<To, From>),
                             accumulate_kernel<To, From>, (To *)dst, (const From *)src, n);
        });
    });
}

// ---- Fill -------------------------------------------------------------------------------------

template <class T>
static __global__ void fill_kernel(T *dst, T value, int64_t n)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    T same[V];
#pragma unroll
    for (int v = 0; v < V; v++) same[v] = value;
    GD_EACH(pack, gd_packs(n, V)) gd_store_guarded(dst, same, pack * V, n);
}

extern "C" void gd_fill_cuda(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx)
{
    gd_by_any_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        gd_launch(ctx, "fill", gd_grid_for(n, gd_threads * gd_pack_size<T>), fill_kernel<T>,
                  (T *)dst, gd_host_convert<T>(value), n);
    });
}

// ---- Sum of squares ---------------------------------------------------------------------------

// The squares of a thread's packs in double: for those whose sum a float cannot hold.
template <class T>
static __device__ __noinline__ double wide_squares(const T *x, int64_t n)
{
    constexpr int V = gd_pack_size<T>;
    double sum = 0;
    GD_EACH(pack, gd_packs(n, V))
    {
        T value[V];
        gd_load_guarded(value, x, pack * V, n);
        for (int v = 0; v < V; v++) sum += (double)gd_load(value[v]) * (double)gd_load(value[v]);
    }
    return sum;
}

// The same, in double for double alone: otherwise as two floats, unless the sum overflows, or
// squares vanish that count. Zeros change none of these, and are left out where they are known.
template <class T, bool SPARSE>
__device__ inline double thread_squares(const T *x, int64_t n, const uint8_t *touched)
{
    if constexpr (sizeof(T) == 8) return wide_squares(x, n);
    constexpr int V = gd_pack_size<T>;
    gd_long_sum<float> sum;
    float largest = 0;
    GD_EACH(pack, gd_packs(n, V))
    {
        if constexpr (SPARSE)
            if (!touched[pack / gd_granule_packs]) continue;
        T value[V];
        gd_load_guarded(value, x, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float number = gd_load(value[v]), square = __fmul_rn(number, number);
            sum.add(square);
            sum.rest += fmaf(number, number, -square); // what rounding took from the square
            largest = fmaxf(largest, fabsf(number));
        }
    }
    const bool holds = isfinite(sum.sum) && (largest == 0 || largest > 0x1p-48f);
    return holds ? (double)sum.sum + (double)sum.rest : wide_squares(x, n);
}

// part[block] = the squares of every gridDim-th run of the array, one run a block. Any block may be
// the last to finish, but every one adds the parts in the same order.
template <class T, bool SPARSE>
static __global__ void __launch_bounds__(gd_threads)
    sum_squares_kernel(double *sum, double *part, unsigned *done, const T *x, int64_t n,
                       const uint8_t *touched)
{
    gd_in_turn();
    __shared__ double shared[32];
    __shared__ bool last;
    double own = gd_sum(thread_squares<T, SPARSE>(x, n, touched), shared);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = own;
        __threadfence(); // the part, before the count that says it is there
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    own = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += gd_threads) own += __ldcg(part + i);
    own = gd_sum(own, shared);
    if (threadIdx.x == 0) *sum = own, *done = 0;
}

// The number of pieces depends only on n, never on the GPU. The sum of no elements is 0, too.
extern "C" void gd_sum_squares_cuda(double *sum, const void *x, gd_dtype dtype, int64_t n,
                                    const uint8_t *touched, gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    const int64_t pieces = gd_ceil_div(n > 0 ? n : 1, gd_threads * 16), most = GD_CUDA_SUMS;
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        auto *kernel = sum_squares_kernel<T, false>;
        if constexpr (std::is_same<T, float>::value) // as gradients of parameters are
            if (touched) kernel = sum_squares_kernel<T, true>;
        return gd_launch(ctx, "sum of squares",
                         {(unsigned)(pieces < most ? pieces : most), gd_threads}, kernel, sum,
                         cuda->sums, cuda->sums_done, (const T *)x, n, touched);
    });
}

// ---- Scale ------------------------------------------------------------------------------------

template <class T, bool SPARSE>
static __global__ void scale_kernel(T *x, gd_factor<gd_compute<T>> factor, int64_t n,
                                    const uint8_t *touched)
{
    gd_in_turn();
    constexpr int V = gd_pack_size<T>;
    GD_EACH(pack, gd_packs(n, V))
    {
        if constexpr (SPARSE)
            if (!touched[pack / gd_granule_packs]) continue;
        T value[V];
        gd_load_guarded(value, x, pack * V, n);
#pragma unroll
        for (int v = 0; v < V; v++) value[v] = gd_store<T>(factor.times(gd_load(value[v])));
        gd_store_guarded(x, value, pack * V, n);
    }
}

extern "C" void gd_scale_cuda(void *x, gd_dtype dtype, double factor, int64_t n,
                              const uint8_t *touched, gd_context *ctx)
{
    gd_by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        auto *kernel = scale_kernel<T, false>;
        if constexpr (std::is_same<T, float>::value)
            if (touched) kernel = scale_kernel<T, true>;
        return gd_launch(ctx, "scale", gd_grid_for(n, gd_threads * gd_pack_size<T>), kernel, (T *)x,
                         gd_factor<gd_compute<T>>::of(factor), n, touched);
    });
}

// ---- Rows ---------------------------------------------------------------------------------------

static __global__ void touch_rows_kernel(uint8_t *touched, const int32_t *ids, int64_t n,
                                         int64_t rows, int64_t row_bytes)
{
    gd_in_turn();
    GD_EACH(i, n)
    {
        const int64_t id = ids[i], end = gd_ceil_div((id + 1) * row_bytes, GD_GRANULE);
        if (id < 0 || id >= rows) continue;
        for (int64_t g = id * row_bytes / GD_GRANULE; g < end; g++) touched[g] = 1;
    }
}

extern "C" void gd_touch_rows_cuda(uint8_t *touched, const int32_t *ids, int64_t n, int64_t rows,
                                   int64_t row_bytes, gd_context *ctx)
{
    gd_launch(ctx, "touch", gd_grid_for(n), touch_rows_kernel, touched, ids, n, rows, row_bytes);
}

static __global__ void clear_kernel(char *x, int64_t bytes, uint8_t *touched)
{
    gd_in_turn();
    constexpr int V = 16;
    gd_each_touched_pack<V>(touched, bytes, [&](int64_t first) {
        const char zeros[V] = {};
        gd_store_guarded(x, zeros, first, bytes);
        if (first % GD_GRANULE == 0) touched[first / GD_GRANULE] = 0; // all lanes have read it
    });
}

extern "C" void gd_clear_touched_cuda(void *x, int64_t bytes, uint8_t *touched, gd_context *ctx)
{
    gd_launch(ctx, "clear", gd_grid_of_granules(bytes, 16), clear_kernel, (char *)x, bytes,
              touched);
}
