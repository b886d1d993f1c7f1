// launch.cuh - a call's kernels on their way to the stream: written down one after the other, then
// run together.
#ifndef GD_RMS_NORM_LAUNCH_CUH
#define GD_RMS_NORM_LAUNCH_CUH

#include <cuda_runtime.h>
#include <string.h>

#include "rms_norm/plan.cuh"

namespace gd_rms
{

// kernel<<<blocks, threads, shared>>>(arguments), in clusters of `cluster` blocks where that is
// more than 1; `early`: see async.cuh.
struct Launch {
    const void *kernel;
    dim3 blocks, threads;
    size_t shared;
    int cluster;
    bool early;
    void *argument[8]; // into storage
    alignas(8) unsigned char storage[192];
};

// What a call launches, in this order.
constexpr int MOST_LAUNCHES = 5; // dbias and dweight, each partial sums and their sum, and dx
struct Launches {
    int count = 0;
    Launch launch[MOST_LAUNCHES];

    Launches() = default;
    Launches(const Launches &) = delete; // arguments are pointed to
};

// Lets the kernel have so much dynamic shared memory, and clusters so large, on this device.
cudaError_t allow(const void *kernel, size_t shared, int cluster);

// Adds kernel(args...) to the launches.
template <class... Parameters, class... Arguments>
static cudaError_t add_launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                              size_t shared, int cluster, bool early, Launches *to,
                              const Arguments &...args)
{
    static_assert(sizeof...(Parameters) <= sizeof Launch::argument / sizeof(void *));
    static_assert((0 + ... + ((sizeof(Parameters) + 7) / 8 * 8)) <= sizeof Launch::storage);
    if (to->count == MOST_LAUNCHES) return cudaErrorInvalidValue;
    const cudaError_t error = allow((const void *)kernel, shared, cluster);
    if (error) return error;
    Launch *const l = &to->launch[to->count++];
    l->kernel = (const void *)kernel;
    l->blocks = blocks, l->threads = threads, l->shared = shared;
    l->cluster = cluster, l->early = early && have_hopper();
    size_t i = 0, used = 0;
    auto add = [&](auto value) { // of the parameter's type
        l->argument[i++] = memcpy(l->storage + used, &value, sizeof value);
        used += (sizeof value + 7) / 8 * 8;
    };
    (add(static_cast<Parameters>(args)), ...);
    return cudaSuccess;
}

// Puts the launches on the stream: several as one graph, which takes less of the host's time, or
// one by one, so that an early first one may overlap with what the stream runs before (launch.cu).
cudaError_t run(const Launches &launches, bool overlap, cudaStream_t stream);

} // namespace gd_rms
#endif
