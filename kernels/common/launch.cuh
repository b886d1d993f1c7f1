// launch.cuh - launching kernels: by gd_launch_on (gd_launch of cuda.cuh for a call), or by
// launch() with more shared memory than the usual 48 KB, or in clusters of more than the
// usual 8 blocks.
//
// Programmatic dependent launch. A kernel may start its blocks when all blocks of the kernel before
// it have said let_next_start or ended; it must wait_for_previous, in every thread, before it reads
// or writes global memory: then that kernel has ended and its writes are seen. Only prefetches to
// L2 may come earlier. Most kernels begin with gd_in_turn, which does both. (Kernels of few blocks
// say let_next_start only after the wait: while multiprocessors are free, a row of kernels would
// start and wait at the same time, and delay the one that they wait for.) Small steps, whose
// kernels take a few microseconds, are 3 to 12% faster for it. tests/rules/rooms.sh looks for
// kernels that do not wait.
#ifndef GD_LAUNCH_CUH
#define GD_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

#include "cuda/device_limits.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GD_HOPPER 1
#else
#define GD_HOPPER 0
#endif

// Launch bounds: the threads of a block, and how many blocks run at a time; fewer where a
// multiprocessor does not have the threads (CUDA C++ Programming Guide, table of compute
// capabilities), because there the compiler warns and drops the bound.
#define GD_LAUNCH_BOUNDS(...) \
    __launch_bounds__(gd_bound_threads(__VA_ARGS__), gd_bound_blocks(__VA_ARGS__))
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GD_MULTIPROCESSOR_THREADS 1024
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && \
    (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1100)
#define GD_MULTIPROCESSOR_THREADS 1536
#else
#define GD_MULTIPROCESSOR_THREADS 2048
#endif
constexpr int gd_bound_threads(int threads, int blocks)
{
    return (void)blocks, threads;
}
constexpr int gd_bound_blocks(int threads, int blocks)
{
    return blocks * threads <= GD_MULTIPROCESSOR_THREADS ? blocks
                                                         : GD_MULTIPROCESSOR_THREADS / threads;
}

// n / unit, rounded up.
__host__ __device__ static inline int64_t gd_ceil_div(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

// The blocks of a kernel (none, where nothing else is said), and the threads and the bytes of
// dynamic shared memory of each.
struct gd_grid {
    dim3 blocks = dim3(0), threads = dim3(0);
    size_t shared = 0;
    int cluster = 1; // blocks of a cluster
};

// The grid of a kernel that strides over n elements, of which a block takes `per_block` at a time.
static inline gd_grid gd_grid_for(int64_t n, int64_t per_block = 256, dim3 threads = 256)
{
    const int64_t blocks = gd_ceil_div(n, per_block), most = 65536;
    return {(unsigned)(blocks < most ? blocks : most), threads};
}

// Launches kernel(args...) on the stream, unless there are no blocks.
template <class... Parameters>
static inline cudaError_t gd_launch_on(cudaStream_t stream, const gd_grid &grid,
                                       void (*kernel)(Parameters...),
                                       const std::common_type_t<Parameters> &...args)
{
    if (grid.blocks.x == 0 || grid.blocks.y == 0) return cudaSuccess;
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = gd_cuda_device_limits().bulk_copies;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = (unsigned)grid.cluster;
    attribute[1].val.clusterDim.y = attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = grid.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

namespace gd_async
{

__device__ inline void let_next_start()
{
#if GD_HOPPER
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous()
{
#if GD_HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct Shape {
    int64_t blocks;
    int threads;
    int shared = 0;  // dynamic shared memory, bytes
    int cluster = 1; // blocks of a cluster
};

// Allows, once per device, as much shared memory as there is and clusters of more than 8 blocks,
// for kernels that need them: with static shared memory, of up to 16 KB, those of more than 32 KB.
template <auto KERNEL>
static cudaError_t allow(const Shape &shape)
{
    static bool done[64];
    if (shape.shared <= 32 * 1024 && shape.cluster <= 8) return cudaSuccess;
    int device = 0, most = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error || (device < 64 && done[device])) return error;
    cudaFuncAttributes own;
    error = cudaFuncGetAttributes(&own, KERNEL);
    if (!error)
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (!error)
        error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     most - (int)own.sharedSizeBytes);
    if (!error && cudaFuncSetAttribute(KERNEL, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
        (void)cudaGetLastError(); // there are no clusters, or none of more than 8
    if (!error && device < 64) done[device] = true;
    return error;
}

// Launches KERNEL(args...) on the stream.
template <auto KERNEL, class... Arguments>
static cudaError_t launch(const Shape &shape, cudaStream_t stream, const Arguments &...args)
{
    const cudaError_t error = allow<KERNEL>(shape);
    const gd_grid grid = {dim3((unsigned)shape.blocks), dim3((unsigned)shape.threads),
                          (size_t)shape.shared, shape.cluster};
    return error ? error : gd_launch_on(stream, grid, KERNEL, args...);
}

} // namespace gd_async

// The first statement of a kernel that has nothing to do before its turn.
__device__ inline void gd_in_turn()
{
    gd_async::wait_for_previous();
    gd_async::let_next_start();
}

#endif
