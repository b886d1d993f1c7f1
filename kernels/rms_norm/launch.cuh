// launch.cuh - puts a kernel on a stream: with dynamic shared memory, as clusters, behind another.
#ifndef GD_RMS_NORM_LAUNCH_CUH
#define GD_RMS_NORM_LAUNCH_CUH

#include <cuda_runtime.h>

#include "rms_norm/plan.cuh"

namespace gd_rms
{

// What a kernel has been allowed on a device: dynamic shared memory, clusters of more than 8.
struct Allowed {
    uint64_t key; // the kernel's address and the device; 0: nobody's yet
    size_t shared;
    bool wide;
};

// Finds its entry, or the free one where it belongs; NULL in a full table.
static inline Allowed *find_allowed(Allowed (&table)[256], uint64_t key)
{
    for (unsigned i = 0, at = (unsigned)(key >> 12); i < 256; i++) {
        Allowed *const entry = &table[(at + i) % 256];
        const uint64_t found = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (found == key || found == 0) return entry;
    }
    return nullptr;
}

// More than 48 KB of shared memory, and clusters of more than 8, must be asked for. That takes half
// a microsecond of the host's time, so it is done once, and again only where more is wanted.
static inline cudaError_t allow(const void *kernel, size_t shared, int cluster)
{
    static Allowed table[256];
    static char lock; // held by who writes to the table
    if (shared <= 48 * 1024 && cluster <= 8) return cudaSuccess;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error) return error;
    const uint64_t key = (uint64_t)(uintptr_t)kernel << 8 | (unsigned)device % 256;
    Allowed *entry = find_allowed(table, key);
    if (entry && entry->key == key && __atomic_load_n(&entry->shared, __ATOMIC_ACQUIRE) >= shared &&
        (cluster <= 8 || entry->wide))
        return cudaSuccess;

    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {
    }
    entry = find_allowed(table, key);
    const bool known = entry && entry->key == key;
    const size_t most = known && entry->shared > shared ? entry->shared : shared;
    const bool wide = cluster > 8 || (known && entry->wide);
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
    if (!error && wide)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (!error && entry) {
        entry->wide = wide;
        __atomic_store_n(&entry->shared, most, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    }
    __atomic_clear(&lock, __ATOMIC_RELEASE);
    return error;
}

// kernel<<<blocks, threads, shared, stream>>>(args...), in clusters of `cluster` blocks where that
// is more than 1.
template <class... Parameters, class... Arguments>
static cudaError_t launch_with(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                               size_t shared, int cluster, bool early, cudaStream_t stream,
                               const Arguments &...args)
{
    const cudaError_t error = allow((const void *)kernel, shared, cluster);
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
