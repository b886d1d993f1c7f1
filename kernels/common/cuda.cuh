// cuda.cuh - what CUDA kernels share; the counterpart of kernel.h.
//
// NAME.cu defines what GD_KERNEL(NAME_forward) in NAME.c declares:
//
//     template <class T>
//     __global__ void neg_kernel(T *y, const T *x, int64_t n)
//     {
//         gd_in_turn(); // after the kernel before it has ended (launch.cuh)
//         ...
//     }
//
//     extern "C" gd_status neg_forward_cuda(const gd_call *call)
//     {
//         const int64_t n = gd_tensor_count(call->output[0]);
//         return gd_by_kernel_dtype(call, [&](auto zero) {
//             using T = decltype(zero);
//             return gd_launch(call, gd_grid_for(n), neg_kernel<T>, gd_ptr<T>(call->output[0]),
//                              gd_ptr<T>(call->input[0]), n);
//         });
//     }
//
// Types. All real tensors of a call are of one type T: float, double, __nv_bfloat16 or __half
// (call->kernel_dtype). gd_compute<T>, float or double, is the type of computations and sums:
// gd_load(x[i]) widens, gd_store<T>(value) rounds, once. Saves are gd_compute<T>.
//
// Bits. Results are the same in every run and on every GPU: no floating-point atomics, and the
// shape of every sum depends only on the sizes, never on the number of multiprocessors. So a sum is
// over the threads of one block, whose number is fixed, or over a number of pieces that depends on
// the sizes. (Matrix products use cuBLASLt: the same in every run, but maybe not on every GPU.)
//
// Sizes. gd_launch launches nothing for zero elements (to CUDA a grid of 0 blocks is an error).
// Indices are 64-bit: a tensor may have more than 2^31 elements. The first dimension of a grid can
// have 2^31 - 1 blocks, the others 65535; gd_grid_for() caps the number at many times what fills
// any GPU, and the kernel strides.
//
// Graphs. A step may be captured and replayed (gradus/graph.h): then the host code of an op runs
// once, and its kernels many times, with the same arguments. So it only queues work on
// gd_stream(call), in memory of the call, and does not wait, and random numbers come from
// gd_random_place_of(call) (random/philox.cuh).
//
// The library is linked as C: no exceptions, no static objects with constructors, no C++ runtime.
#ifndef GD_CUDA_CUH
#define GD_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "cuda/device_cuda.h"
#include "cuda/device_limits.h"
#include "gradus/autograd.h"
#include "launch.cuh"
#include "option.h"
#include "core/services.h"

// ---- Types ------------------------------------------------------------------------------------

template <class T>
struct gd_compute_type {
    using type = float;
};
template <>
struct gd_compute_type<double> {
    using type = double;
};
template <class T>
using gd_compute = typename gd_compute_type<T>::type;

__device__ inline float gd_load(float x)
{
    return x;
}
__device__ inline double gd_load(double x)
{
    return x;
}
__device__ inline float gd_load(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ inline float gd_load(__half x)
{
    return __half2float(x);
}

// Rounds to nearest even, once (a double not through a float).
template <class T>
__device__ inline T gd_store(double value)
{
    return (T)value;
}
template <class T>
__device__ inline T gd_store(float value)
{
    return (T)value;
}
template <>
__device__ inline __nv_bfloat16 gd_store<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half gd_store<__half>(float value)
{
    return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 gd_store<__nv_bfloat16>(double value)
{
    return __double2bfloat16(value);
}
template <>
__device__ inline __half gd_store<__half>(double value)
{
    return __double2half(value);
}

// ---- More digits than a float has, without FP64 -------------------------------------------------
//
// On a GeForce double runs at 1/64 of float. Where a float's 24 bits are not enough, two floats
// are: a number and what rounding took from it.

// A sum of many terms: what rounding takes from `sum` is added up in `rest` (Knuth's TwoSum).
template <class C>
struct gd_long_sum {
    C sum = 0, rest = 0;

    __device__ void add(C x)
    {
        const C next = sum + x, added = next - sum;
        rest += (sum - (next - added)) + (x - added);
        sum = next;
    }
    __device__ C value() const
    {
        return isfinite(rest) ? sum + rest : sum; // inf - inf, beside an infinite sum
    }
};

// x times a factor that is not rounded to float first: as accurate as a product in double, rounded
// once. Factors that are so small or large that their second part would be lost are multiplied in
// two steps.
template <class C>
struct gd_factor {
    C high, low, power;

    __host__ __device__ static gd_factor of(double factor)
    {
        const double size = fabs(factor);
        C power = 1;
        if (sizeof(C) == 4 && size < 0x1p-60) factor *= 0x1p56, power = (C)0x1p-56;
        if (sizeof(C) == 4 && size > 0x1p60) factor *= 0x1p-56, power = (C)0x1p56;
        const C high = (C)factor;
        return {high, (C)(factor - (double)high), power};
    }
    __device__ C times(C x) const
    {
        // No operation may be merged with one of the caller's.
        if constexpr (sizeof(C) == 8) return __dmul_rn(x, high);
        const float product = __fmul_rn(x, high), rest = __fmul_rn(x, low);
        return __fmul_rn(isfinite(product) ? __fmaf_rn(x, high, rest) : product, power);
    }
};

// Calls `body` with a value of the type that `dtype` names: body(float()), ...
template <class Body>
static inline gd_status gd_by_dtype(gd_dtype dtype, Body body)
{
    switch (dtype) {
    case GD_FLOAT64:
        return body(double());
    case GD_BFLOAT16:
        return body(__nv_bfloat16());
    case GD_FLOAT16:
        return body(__half());
    default:
        return body(float());
    }
}

template <class Body>
static inline gd_status gd_by_kernel_dtype(const gd_call *call, Body body)
{
    return gd_by_dtype(call->kernel_dtype, body);
}

// Defines name_cuda, as kernel.h's GD_KERNEL(name) declares it, by an expression with `call`, and
// in the second form also with T, the type of the call's real tensors:
//
//     GD_CUDA_KERNEL_OF_T(neg_forward, neg<T>(call, call->output[0], call->input[0]))
#define GD_CUDA_KERNEL(name, ...)                         \
    extern "C" gd_status name##_cuda(const gd_call *call) \
    {                                                     \
        return __VA_ARGS__;                               \
    }
#define GD_CUDA_KERNEL_OF_T(name, ...)                             \
    GD_CUDA_KERNEL(name, gd_by_kernel_dtype(call, [&](auto zero) { \
                       using T = decltype(zero);                   \
                       return __VA_ARGS__;                         \
                   }))

// Calls `body` with a value of the type of a gradient: T, or float where T has 16 bits and the
// record's dinput_float32 allows both.
template <class T, class Body>
static inline gd_status gd_by_gradient(const gd_tensor *gradient, Body body)
{
    if constexpr (sizeof(T) == 2) {
        if (gd_tensor_dtype(gradient) == GD_FLOAT32) return body(float());
    }
    return body(T());
}

// The data of a tensor that may be absent, as T.
template <class T>
static inline T *gd_ptr(const gd_tensor *t)
{
    return t ? (T *)gd_tensor_data(t) : nullptr;
}

// 2^x in one instruction: accurate to 2^-22; a denormal result becomes 0.
__device__ inline float gd_exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- The device -------------------------------------------------------------------------------

// An attribute of the current device; 0 if it does not say.
static inline int gd_cuda_attribute(cudaDeviceAttr attribute)
{
    int device = 0, value = 0;
    if (!cudaGetDevice(&device) && !cudaDeviceGetAttribute(&value, attribute, device)) return value;
    (void)cudaGetLastError();
    return 0;
}

// Whether it is a Hopper GPU, and code for compute capability 9.0a runs.
static inline bool gd_on_hopper()
{
    return gd_cuda_device_limits().wgmma;
}

// ---- Launching --------------------------------------------------------------------------------

static inline cudaStream_t gd_stream(const gd_call *call)
{
    return (cudaStream_t)gd_context_stream(call->context);
}

// An error of CUDA becomes the call's.
static inline gd_status gd_launched(const gd_call *call, cudaError_t error)
{
    if (error == cudaSuccess) return GD_OK;
    return gd_call_fail(call, GD_ERROR_DEVICE, "CUDA: %s (%d)", cudaGetErrorString(error),
                        (int)error);
}

// Launches kernel(args...) for a call, unless the grid has no blocks.
template <class... Parameters>
static inline gd_status gd_launch(const gd_call *call, const gd_grid &grid,
                                  void (*kernel)(Parameters...),
                                  const std::common_type_t<Parameters> &...args)
{
    return gd_launched(call, gd_launch_on(gd_stream(call), grid, kernel, args...));
}

// The same by launch(): in clusters of many blocks, or with much shared memory.
template <auto KERNEL, class... Arguments>
static inline gd_status gd_launch_large(const gd_call *call, const gd_async::Shape &shape,
                                        const Arguments &...args)
{
    return gd_launched(call, gd_async::launch<KERNEL>(shape, gd_stream(call), args...));
}

// The same for a service, which has no call.
template <class... Parameters>
static inline gd_status gd_launch(gd_context *ctx, const char *who, const gd_grid &grid,
                                  void (*kernel)(Parameters...),
                                  const std::common_type_t<Parameters> &...args)
{
    const cudaStream_t stream = (cudaStream_t)gd_context_stream(ctx);
    return gd_cuda_check(ctx, gd_launch_on(stream, grid, kernel, args...), who);
}

// The threads of a block, where nothing else is said.
constexpr int gd_threads = 256;

// for (int64_t i : all of [0, n) that are this thread's)
#define GD_EACH(i, n)                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

// The same of a warp, in blocks of gd_threads.
#define GD_EACH_WARP(i, n)                                                           \
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < (n); \
         i += (int64_t)gridDim.x * (gd_threads / 32))
static inline gd_grid gd_grid_of_warps(int64_t n)
{
    return gd_grid_for(n, gd_threads / 32);
}

// ---- Strided tensors --------------------------------------------------------------------------

// Walks K tensors of one shape in row-major order, each with its own strides (0 where it is
// broadcast). Created on the host; neighbouring dimensions that are packed in all K are merged, so
// a walk over contiguous tensors has one dimension.
template <int K>
struct gd_cuda_walk {
    int ndim;
    int64_t count;
    int64_t shape[GD_MAX_DIMS];
    int64_t stride[K][GD_MAX_DIMS]; // in elements

    // The offsets of element i in the K tensors.
    __device__ void at(int64_t i, int64_t *offset) const
    {
        for (int k = 0; k < K; k++) offset[k] = 0;
        if (count <= INT32_MAX) { // 32-bit division is several times faster
            unsigned rest = (unsigned)i;
            for (int d = ndim - 1; d > 0; d--) {
                const unsigned size = (unsigned)shape[d], next = rest / size;
                const unsigned index = rest - next * size;
                for (int k = 0; k < K; k++) offset[k] += index * stride[k][d];
                rest = next;
            }
            for (int k = 0; ndim && k < K; k++) offset[k] += rest * stride[k][0];
        } else {
            for (int d = ndim - 1; d >= 0; d--) {
                const int64_t next = i / shape[d], index = i - next * shape[d];
                for (int k = 0; k < K; k++) offset[k] += index * stride[k][d];
                i = next;
            }
        }
    }
};

// A walk over `shape`; each operand is a shape and strides that broadcast to it.
template <int K>
static inline gd_cuda_walk<K> gd_cuda_walk_over(int ndim, const int64_t *shape,
                                                const gd_layout (&operand)[K])
{
    gd_cuda_walk<K> walk = {};
    walk.count = 1;
    for (int d = 0; d < ndim; d++) walk.count *= shape[d];
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 1) continue;
        int64_t stride[K];
        for (int k = 0; k < K; k++) {
            const int own = d - (ndim - operand[k].ndim); // missing ones are in front
            stride[k] = own < 0 || operand[k].shape[own] == 1 ? 0 : operand[k].strides[own];
        }
        // The dimension before and this one merge if a step there is shape[d] steps here.
        const int last = walk.ndim - 1;
        bool merges = last >= 0;
        for (int k = 0; merges && k < K; k++) merges = walk.stride[k][last] == stride[k] * shape[d];
        const int to = merges ? last : walk.ndim++;
        walk.shape[to] = merges ? walk.shape[last] * shape[d] : shape[d];
        for (int k = 0; k < K; k++) walk.stride[k][to] = stride[k];
    }
    return walk;
}

// t for the services.
static inline gd_layout gd_cuda_layout(const gd_tensor *t)
{
    return {gd_tensor_data(t), gd_tensor_dtype(t), gd_tensor_ndim(t), gd_tensor_shape(t),
            gd_tensor_strides(t)};
}

// Fills a packed gradient, that of input i, with zeros, unless it is to be added to.
static inline void gd_begin_gradient(const gd_call *call, int i)
{
    const gd_tensor *dx = call->dinput[i];
    if (call->accumulate[i]) return;
    gd_fill_cuda(gd_tensor_data(dx), gd_tensor_dtype(dx), 0, gd_tensor_count(dx), call->context);
}

#endif
