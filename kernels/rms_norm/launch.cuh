// launch.cuh - puts a kernel on a stream: with dynamic shared memory, as clusters, behind another.
#ifndef GD_RMS_NORM_LAUNCH_CUH
#define GD_RMS_NORM_LAUNCH_CUH

#include <cuda_runtime.h>

#include "rms_norm/cuda.cuh"

namespace gd_rms
{

// kernel<<<blocks, threads, shared, stream>>>(args...), in clusters of `cluster` blocks where that
// is more than 1. More than 48 KB of shared memory, and clusters of more than 8, must be asked for.
template <class... Parameters, class... Arguments>
static cudaError_t launch_with(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                               size_t shared, int cluster, bool early, cudaStream_t stream,
                               const Arguments &...args)
{
    cudaError_t error = cudaSuccess;
    if (shared > 48 * 1024)
        error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (!error && cluster > 8)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error) return error;

    cudaLaunchAttribute attribute[2];
    int attributes = 0;
    if (cluster > 1) {
        attribute[attributes].id = cudaLaunchAttributeClusterDimension;
        attribute[attributes].val.clusterDim.x = (unsigned)cluster;
        attribute[attributes].val.clusterDim.y = 1;
        attribute[attributes].val.clusterDim.z = 1;
        attributes++;
    }
    if (early && have_hopper()) {
        attribute[attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[attributes].val.programmaticStreamSerializationAllowed = 1;
        attributes++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = (unsigned)attributes;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

template <class Kernel, class Argument>
static cudaError_t launch(Kernel kernel, const Argument &a, unsigned blocks, int threads,
                          size_t shared, int cluster, cudaStream_t stream)
{
    return launch_with(kernel, dim3(blocks), dim3((unsigned)threads), shared, cluster, false,
                       stream, a);
}

} // namespace gd_rms
#endif
