// launch.cuh - launches with more than a grid: kernels that may start before the one in front of
// them has ended, and blocks in clusters.
//
// A kernel of a few microseconds costs about as much again between its predecessor's last block and
// its own first load. A kernel that is launched early has its blocks in place by then, and what it
// needs from its parameters in L2. It must call wait_for_previous (async.cuh), in every thread,
// before it reads or writes global memory.
#ifndef GD_LAUNCH_CUH
#define GD_LAUNCH_CUH

#include "cuda.cuh"
#include "rms_norm/plan.cuh"

struct gd_launch_shape {
    int64_t blocks;
    int threads, cluster; // cluster > 1 only where gd_have_hopper()
    size_t shared;
};

// Whether the code that runs here is compute capability 9.0's or later, GD_HOPPER of async.cuh.
static inline bool gd_have_hopper()
{
    return gd_rms::have_hopper();
}

template <class... Parameters, class... Arguments>
static inline gd_status gd_launch_early(const gd_call *call, void (*kernel)(Parameters...),
                                        gd_launch_shape shape, Arguments... arguments)
{
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = (unsigned)shape.cluster;
    attribute[1].val.clusterDim.y = attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)shape.blocks);
    config.blockDim = dim3((unsigned)shape.threads);
    config.dynamicSmemBytes = shape.shared;
    config.stream = gd_stream(call);
    config.attrs = attribute;
    config.numAttrs = !gd_have_hopper() ? 0 : shape.cluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...);
    return gd_launched(call);
}

#endif
