// launch.cuh - launching a kernel early, in clusters, or with more shared memory than the usual 48
// KB.
//
// Programmatic dependent launch. A kernel launched by launch() may start its blocks when all blocks
// of the kernel before it have said let_next_start or ended; it must wait_for_previous, in every
// thread, before it reads or writes global memory: then that kernel has ended and its writes are
// seen. Only prefetches to L2 may come earlier. Kernels of few blocks say let_next_start only after
// that: while multiprocessors are free, a row of kernels would start and wait at the same time, and
// delay the one that they wait for.
#ifndef GD_LAUNCH_CUH
#define GD_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GD_HOPPER 1
#else
#define GD_HOPPER 0
#endif

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

constexpr int MAX_SHARED = 232448; // dynamic shared memory of a block, bytes

struct Shape {
    int64_t blocks;
    int threads;
    int shared = 0;  // dynamic shared memory, bytes
    int cluster = 1; // blocks of a cluster
};

// Whether the driver chose code compiled for compute capability 9.0, which has bulk copies,
// transaction barriers, clusters and early launches; asked once per device.
template <auto KERNEL>
static bool runs_on_hopper()
{
    static int known[64]; // 0: not asked; 1: no; 2: yes. Racing threads write the same answer.
    int device = 0;
    if (cudaGetDevice(&device)) return false;
    if (device < 64 && known[device]) return known[device] == 2;
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, KERNEL)) return false;
    const bool yes = attributes.ptxVersion >= 90;
    if (device < 64) known[device] = yes ? 2 : 1;
    return yes;
}

// Allows, once per device, more than 48 KB of shared memory and clusters of more than 8 blocks, for
// kernels that need them: one with static shared memory could not have all of MAX_SHARED.
template <auto KERNEL>
static cudaError_t allow(const Shape &shape)
{
    static bool done[64];
    if (shape.shared <= 48 * 1024 && shape.cluster <= 8) return cudaSuccess;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error || (device < 64 && done[device])) return error;
    error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_SHARED);
    if (!error)
        error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (!error && device < 64) done[device] = true;
    return error;
}

// Launches KERNEL(args...) on the stream.
template <auto KERNEL, class... Arguments>
static cudaError_t launch(const Shape &shape, cudaStream_t stream, const Arguments &...args)
{
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = runs_on_hopper<KERNEL>();
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = (unsigned)shape.cluster;
    attribute[1].val.clusterDim.y = attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)shape.blocks);
    config.blockDim = dim3((unsigned)shape.threads);
    config.dynamicSmemBytes = (size_t)shape.shared;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = shape.cluster > 1 ? 2 : 1;
    const cudaError_t error = allow<KERNEL>(shape);
    return error ? error : cudaLaunchKernelEx(&config, KERNEL, args...);
}

} // namespace gd_async
#endif
