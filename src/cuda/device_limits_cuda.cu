// device_limits_cuda.cu - reads the limits of device_limits.h.
#include "cuda/device_limits.h"

#include <cuda_runtime.h>
#include <limits.h>
#include <stdlib.h>

enum { KILOBYTE = 1024 };

// Not launched: it shows which code the driver chooses.
static __global__ void probe() {}

static int least(int a, int b)
{
    return a < b ? a : b;
}

// What follows from the compute capability and the code alone. CUDA has no attribute for the size
// of clusters beyond 8 blocks, which 9.x and 10.x allow.
static void set_features(gd_cuda_limits *l)
{
    const int major = l->capability / 10;
    const bool since_9 = l->code >= 90 && l->capability >= 90;
    l->cluster = 1;
    if (since_9) l->cluster = major == 9 || major == 10 ? 16 : 8;
    l->async_copies = l->code >= 80;
    l->bulk_copies = since_9;
    l->wgmma = l->capability == 90;
}

// What a multiprocessor has, up to a compute capability: KB of shared memory, threads, and KB from
// memory in a us.
static const struct {
    int capability, shared, threads, bytes;
} multiprocessors[] = {
    {79, 64, 1024, 9},        // 7.5
    {80, 164, 2048, 18},      // A100
    {86, 100, 1536, 9},       // RTX A6000
    {87, 164, 1536, 12},      // Orin
    {89, 100, 1536, 7},       // RTX 4090
    {109, 228, 2048, 53},     // H100 (25), H200 (36), B200
    {INT_MAX, 100, 1536, 10}, // RTX 5090
};

gd_cuda_limits gd_cuda_limits_of(int capability)
{
    int i = 0;
    while (capability > multiprocessors[i].capability) i++;
    gd_cuda_limits l = {capability, capability, 0, 0, 0, 64 * 1024, 0, 1, false, false, false};
    l.multiprocessor_shared = multiprocessors[i].shared * KILOBYTE;
    l.block_shared = l.multiprocessor_shared - (capability < 80 ? 0 : 1) * KILOBYTE;
    l.multiprocessor_threads = multiprocessors[i].threads;
    l.multiprocessor_bytes = multiprocessors[i].bytes * KILOBYTE;
    set_features(&l);
    return l;
}

static gd_cuda_limits lower(gd_cuda_limits l, const gd_cuda_limits &caps)
{
    l.capability = least(l.capability, caps.capability);
    l.code = least(l.code, caps.code);
    l.block_shared = least(l.block_shared, caps.block_shared);
    l.multiprocessor_shared = least(l.multiprocessor_shared, caps.multiprocessor_shared);
    l.multiprocessor_threads = least(l.multiprocessor_threads, caps.multiprocessor_threads);
    l.multiprocessor_registers = least(l.multiprocessor_registers, caps.multiprocessor_registers);
    l.multiprocessor_bytes = least(l.multiprocessor_bytes, caps.multiprocessor_bytes);
    l.cluster = least(l.cluster, caps.cluster);
    l.async_copies &= caps.async_copies;
    l.bulk_copies &= caps.bulk_copies;
    l.wgmma &= caps.wgmma;
    return l;
}

static gd_cuda_limits read_limits(int device)
{
    gd_cuda_limits l = {};
    cudaFuncAttributes code;
    const auto read = [&](cudaDeviceAttr attribute) {
        int value = 0;
        if (cudaDeviceGetAttribute(&value, attribute, device)) value = 0;
        return value;
    };
    l.capability =
        10 * read(cudaDevAttrComputeCapabilityMajor) + read(cudaDevAttrComputeCapabilityMinor);
    l.code = cudaFuncGetAttributes(&code, probe) ? 0 : code.ptxVersion;
    l.block_shared = read(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    l.multiprocessor_shared = read(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    l.multiprocessor_threads = read(cudaDevAttrMaxThreadsPerMultiProcessor);
    l.multiprocessor_registers = read(cudaDevAttrMaxRegistersPerMultiprocessor);
    // In each of its clock's cycles, counted in kHz, memory delivers twice its width,
    // counted in bits.
    const int each = read(cudaDevAttrMultiProcessorCount) * 8 * 1000;
    if (each > 0)
        l.multiprocessor_bytes = (int)(2LL * read(cudaDevAttrMemoryClockRate) *
                                       read(cudaDevAttrGlobalMemoryBusWidth) / each);
    set_features(&l);
    if (!read(cudaDevAttrClusterLaunch)) l.cluster = 1;
    (void)cudaGetLastError(); // or the next launch would return it
    const char *as = getenv("GRADUS_GPU_AS");
    return as && l.code ? lower(l, gd_cuda_limits_of((int)(10 * atof(as) + 0.5))) : l;
}

static gd_cuda_limits capped; // of tests
static bool have_caps;

void gd_cuda_cap_limits(const gd_cuda_limits *caps)
{
    have_caps = caps;
    if (caps) capped = *caps;
}

static gd_cuda_limits with_caps(const gd_cuda_limits &l)
{
    return have_caps ? lower(l, capped) : l;
}

gd_cuda_limits gd_cuda_device_limits(void)
{
    enum { DEVICES = 64, UNREAD = 0, WRITING, READY };
    static gd_cuda_limits known[DEVICES];
    static int state[DEVICES];
    int device = 0;
    if (cudaGetDevice(&device)) {
        (void)cudaGetLastError();
        return {};
    }
    if (device >= DEVICES) return with_caps(read_limits(device));
    if (__atomic_load_n(&state[device], __ATOMIC_ACQUIRE) == READY) return with_caps(known[device]);
    const gd_cuda_limits l = read_limits(device);
    int unread = UNREAD;
    if (__atomic_compare_exchange_n(&state[device], &unread, WRITING, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        known[device] = l;
        __atomic_store_n(&state[device], READY, __ATOMIC_RELEASE);
    }
    return with_caps(l);
}

int gd_cuda_plan_multiprocessors(const gd_cuda_limits *l)
{
    switch (l->capability) {
    case 75:
        return 72;
    case 80:
        return 108; // A100
    case 86:
        return 84; // RTX A6000, RTX 3090 Ti
    case 87:
        return 16; // Orin
    case 89:
        return 128; // RTX 4090
    case 100:
        return 148; // B200
    case 120:
        return 170; // RTX 5090
    case 121:
        return 48; // DGX Spark
    default:
        return 132; // H100, H200
    }
}
