// cuda_timing.cuh - how the CUDA benchmark times, and what it measures itself against.
//
// A time is the median over replays of a CUDA graph that holds many launches, each on the next of
// several sets of buffers, which together are far larger than L2. A ceiling is the best of several
// kernels that only move: as many bytes in, as many out, at the same size in the same run.
#ifndef GRADUS_CUDA_TIMING_CUH
#define GRADUS_CUDA_TIMING_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <vector>

static void must(cudaError_t error, const char *what)
{
    if (!error) return;
    fprintf(stderr, "gradus-bench: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static __device__ inline uint32_t mixed(uint32_t h)
{
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u;
    return h ^ h >> 16;
}

// Four bytes of random bits to a number of mean 0 and deviation 1, nearly normal.
static __device__ inline float normal_of(uint32_t h)
{
    const int sum = (int)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24));
    return (float)(sum - 510) / 147.8f;
}

// Fills p with normal numbers of 4 or 2 bytes, float or bfloat16.
static __global__ void fill_numbers(uint32_t *p, size_t words, int size, uint32_t seed)
{
    const uint32_t key = mixed(seed);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words;
         i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t h = mixed(((uint32_t)i ^ key) * 2654435761u);
        const uint32_t high = __float_as_uint(normal_of(h));
        const uint32_t low = __float_as_uint(normal_of(mixed(h + key)));
        p[i] = size == 4 ? high : (high & 0xffff0000u) | low >> 16;
    }
}

// Sets of `count` buffers of `bytes` each, used in turn.
struct Rotation {
    std::vector<char *> memory;
    int count, sets;

    Rotation(int buffers, size_t bytes, int element_size) : count(buffers)
    {
        const double one = (double)bytes * buffers;
        sets = (int)std::min(64.0, std::max(2.0, ceil(400e6 / one)));
        for (int i = 0; i < sets * count; i++) {
            char *p;
            must(cudaMalloc(&p, bytes + 256), "cudaMalloc");
            fill_numbers<<<1024, 256>>>((uint32_t *)p, bytes / 4, element_size, (uint32_t)i + 1);
            memory.push_back(p);
        }
        must(cudaDeviceSynchronize(), "filling the buffers");
    }
    Rotation(const Rotation &) = delete;
    ~Rotation()
    {
        for (char *p : memory) cudaFree(p);
    }
    char *get(int set, int buffer) const
    {
        return memory[(size_t)(set % sets * count + buffer)];
    }
};

// Seconds of one launch(set, stream). NAN where it does not run.
static double seconds_of(int sets, double guess_bytes,
                         const std::function<bool(int, cudaStream_t)> &launch)
{
    // A graph of about a millisecond, but of whole rounds of the sets.
    const double guess = guess_bytes / 4e12 + 2e-6;
    const int rounds = (int)std::max(1.0, std::min(20.0, ceil(1e-3 / guess / sets)));
    const int launches = rounds * sets, replays = 9;
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (!launch(0, stream) || cudaStreamSynchronize(stream)) {
        (void)cudaGetLastError();
        cudaStreamDestroy(stream);
        return NAN;
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < launches; i++) launch(i, stream);
    must(cudaStreamEndCapture(stream, &graph), "end of capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < replays + 2; i++) {
        cudaEventRecord(begin, stream);
        must(cudaGraphLaunch(exec, stream), "replay");
        cudaEventRecord(end, stream);
        must(cudaStreamSynchronize(stream), "replay");
        float ms;
        cudaEventElapsedTime(&ms, begin, end);
        if (i >= 2) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    cudaEventDestroy(begin), cudaEventDestroy(end);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return times[times.size() / 2] * 1e-3 / launches;
}

// ---- Ceilings -----------------------------------------------------------------------------------

// out = a (INPUTS 1) or a ^ b (INPUTS 2), U vectors of 16 bytes a thread at once.
template <int INPUTS, int U, bool HINTS>
static __global__ void __launch_bounds__(1024)
    move_kernel(uint4 *out, const uint4 *a, const uint4 *b, size_t n)
{
    const size_t span = (size_t)blockDim.x * U;
    for (size_t base = blockIdx.x * span + threadIdx.x; base < n; base += gridDim.x * span) {
        uint4 va[U], vb[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const size_t i = base + (size_t)u * blockDim.x;
            va[u] = vb[u] = make_uint4(0, 0, 0, 0);
            if (i < n) {
                va[u] = HINTS ? __ldcs(a + i) : a[i];
                if (INPUTS == 2) vb[u] = HINTS ? __ldcs(b + i) : b[i];
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            const size_t i = base + (size_t)u * blockDim.x;
            const uint4 v = make_uint4(va[u].x ^ vb[u].x, va[u].y ^ vb[u].y, va[u].z ^ vb[u].z,
                                       va[u].w ^ vb[u].w);
            if (i >= n) continue;
            if (HINTS)
                __stcs(out + i, v);
            else
                out[i] = v;
        }
    }
}

template <int INPUTS, int U, bool HINTS>
static double move_seconds(const Rotation &r, size_t bytes, int threads)
{
    const size_t n = bytes / 16, blocks = (n + (size_t)threads * U - 1) / ((size_t)threads * U);
    return seconds_of(r.sets, (INPUTS + 1.0) * (double)bytes, [&](int set, cudaStream_t stream) {
        move_kernel<INPUTS, U, HINTS><<<(unsigned)blocks, threads, 0, stream>>>(
            (uint4 *)r.get(set, 2), (const uint4 *)r.get(set, 0),
            (const uint4 *)r.get(set, INPUTS - 1), n);
        return cudaGetLastError() == cudaSuccess;
    });
}

// The shortest time to read INPUTS arrays of so many bytes and write one. The rotation has the
// arrays read first, the array written after them.
template <int INPUTS>
static double ceiling_seconds(const Rotation &r, size_t bytes)
{
    double best = INFINITY;
    for (int threads : {256, 512}) {
        best = std::min(best, move_seconds<INPUTS, 1, false>(r, bytes, threads));
        best = std::min(best, move_seconds<INPUTS, 1, true>(r, bytes, threads));
        best = std::min(best, move_seconds<INPUTS, 2, true>(r, bytes, threads));
        best = std::min(best, move_seconds<INPUTS, 4, false>(r, bytes, threads));
        best = std::min(best, move_seconds<INPUTS, 4, true>(r, bytes, threads));
    }
    return best;
}

#endif
