// cuda_timing.cuh - how the CUDA benchmark times, and what it measures itself against.
//
// A time is the median over replays of a CUDA graph that holds many launches, each on the next of
// several sets of buffers, which together are far larger than L2. A ceiling is the best of several
// kernels that only move: as many bytes in, as many out, at the same size in the same run.
#ifndef GRADUS_CUDA_TIMING_CUH
#define GRADUS_CUDA_TIMING_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "gradus/tensor.h"

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

static __device__ inline uint32_t bits_of(float x, gd_dtype dtype)
{
    if (dtype == GD_FLOAT32) return __float_as_uint(x);
    return dtype == GD_FLOAT16 ? __half_as_ushort(__float2half(x)) : __float_as_uint(x) >> 16;
}

// Fills p with normal numbers.
static __global__ void fill_numbers(uint32_t *p, size_t words, gd_dtype dtype, uint32_t seed)
{
    const uint32_t key = mixed(seed);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words;
         i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t h = mixed(((uint32_t)i ^ key) * 2654435761u);
        const uint32_t high = bits_of(normal_of(h), dtype);
        p[i] = dtype == GD_FLOAT32 ? high : high << 16 | bits_of(normal_of(mixed(h + key)), dtype);
    }
}

// Sets of buffers, used in turn: together more than L2 holds, so that each finds its bytes in DRAM.
struct Rotation {
    std::vector<size_t> sizes; // of the buffers of a set, in bytes; 0: there is none
    std::vector<char *> memory;
    int sets;

    // Filled with normal numbers.
    Rotation(const std::vector<size_t> &bytes, const std::vector<gd_dtype> &dtypes, int most)
        : sizes(bytes)
    {
        double all = 0;
        for (size_t size : sizes) all += (double)size;
        sets = (int)std::min((double)most, std::max(2.0, ceil(400e6 / all)));
        for (int i = 0; i < sets; i++)
            for (size_t b = 0; b < sizes.size(); b++) {
                char *p = nullptr;
                if (sizes[b]) {
                    must(cudaMalloc(&p, sizes[b] + 256), "cudaMalloc");
                    fill_numbers<<<1024, 256>>>((uint32_t *)p, sizes[b] / 4, dtypes[b],
                                                (uint32_t)memory.size() + 1);
                }
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
        return memory[(size_t)(set % sets) * sizes.size() + (size_t)buffer];
    }
};

// Seconds of one launch(set, stream), the median of so many replays. NAN where it does not run.
static double seconds_of(int sets, double guess_bytes, int replays,
                         const std::function<bool(int, cudaStream_t)> &launch)
{
    // A graph of about a millisecond, but of whole rounds of the sets.
    const double guess = guess_bytes / 4e12 + 2e-6;
    const int rounds = (int)std::max(1.0, std::min(20.0, ceil(1e-3 / guess / sets)));
    const int launches = rounds * sets, warm = 2;
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
    for (int i = 0; i < replays + warm; i++) {
        cudaEventRecord(begin, stream);
        must(cudaGraphLaunch(exec, stream), "replay");
        cudaEventRecord(end, stream);
        must(cudaStreamSynchronize(stream), "replay");
        float ms;
        cudaEventElapsedTime(&ms, begin, end);
        if (i >= warm) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    cudaEventDestroy(begin), cudaEventDestroy(end);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return times[times.size() / 2] * 1e-3 / launches;
}

// ---- Ceilings -----------------------------------------------------------------------------------

template <int INPUTS, int OUTPUTS>
struct Streams {
    const uint4 *in[INPUTS];
    uint4 *out[OUTPUTS];
};

// Every output is the exclusive or of all inputs; U vectors of 16 bytes of each a thread at once.
template <int INPUTS, int OUTPUTS, int U, bool HINTS>
static __global__ void __launch_bounds__(512)
    move_kernel(const __grid_constant__ Streams<INPUTS, OUTPUTS> s, size_t n)
{
    const size_t base = blockIdx.x * ((size_t)blockDim.x * U) + threadIdx.x;
    uint4 v[U][INPUTS];
#pragma unroll
    for (int u = 0; u < U; u++) {
        const size_t i = base + (size_t)u * blockDim.x;
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            v[u][k] = make_uint4(0, 0, 0, 0);
            if (i < n) v[u][k] = HINTS ? __ldcs(s.in[k] + i) : s.in[k][i];
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        const size_t i = base + (size_t)u * blockDim.x;
        uint4 w = v[u][0];
#pragma unroll
        for (int k = 1; k < INPUTS; k++)
            w.x ^= v[u][k].x, w.y ^= v[u][k].y, w.z ^= v[u][k].z, w.w ^= v[u][k].w;
        if (i >= n) continue;
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) {
            if (HINTS)
                __stcs(s.out[k] + i, w);
            else
                s.out[k][i] = w;
        }
    }
}

// What moves in one call: buffers of a rotation.
struct Traffic {
    std::vector<int> in, out;

    double bytes(const Rotation &r) const
    {
        double sum = 0;
        for (int b : in) sum += (double)r.sizes[(size_t)b];
        for (int b : out) sum += (double)r.sizes[(size_t)b];
        return sum;
    }
};

template <int INPUTS, int OUTPUTS, int U, bool HINTS>
static double move_seconds(const Rotation &r, const std::vector<Streams<INPUTS, OUTPUTS>> &sets,
                           size_t n, int threads)
{
    const size_t blocks = (n + (size_t)threads * U - 1) / ((size_t)threads * U);
    const double bytes = 16.0 * (double)n * (INPUTS + OUTPUTS);
    return seconds_of(r.sets, bytes, 5, [&](int set, cudaStream_t stream) {
        move_kernel<INPUTS, OUTPUTS, U, HINTS>
            <<<(unsigned)blocks, threads, 0, stream>>>(sets[(size_t)(set % r.sets)], n);
        return cudaGetLastError() == cudaSuccess;
    });
}

// A buffer as streams of `bytes` bytes each.
template <class Pointer>
static Pointer *split(Pointer *to, char *buffer, size_t size, size_t bytes)
{
    for (size_t at = 0; at + bytes <= size; at += bytes) *to++ = (Pointer)(buffer + at);
    return to;
}

// The shortest time in which any of several kernels moves INPUTS streams in and OUTPUTS out, all as
// long as the smallest buffer: a float32 tensor beside 16-bit ones counts as two streams.
template <int INPUTS, int OUTPUTS>
static double ceiling_of(const Rotation &r, const Traffic &t, size_t bytes)
{
    std::vector<Streams<INPUTS, OUTPUTS>> sets((size_t)r.sets);
    for (int i = 0; i < r.sets; i++) {
        const uint4 **in = sets[(size_t)i].in;
        uint4 **out = sets[(size_t)i].out;
        for (int b : t.in) in = split(in, r.get(i, b), r.sizes[(size_t)b], bytes);
        for (int b : t.out) out = split(out, r.get(i, b), r.sizes[(size_t)b], bytes);
    }
    const size_t n = bytes / 16;
    double best = INFINITY;
    for (int threads : {256, 512}) {
        best = fmin(best, move_seconds<INPUTS, OUTPUTS, 1, false>(r, sets, n, threads));
        best = fmin(best, move_seconds<INPUTS, OUTPUTS, 1, true>(r, sets, n, threads));
        best = fmin(best, move_seconds<INPUTS, OUTPUTS, 2, true>(r, sets, n, threads));
        best = fmin(best, move_seconds<INPUTS, OUTPUTS, 4, false>(r, sets, n, threads));
        best = fmin(best, move_seconds<INPUTS, OUTPUTS, 4, true>(r, sets, n, threads));
    }
    return best;
}

// The ceiling of a call: the time of its traffic alone.
static double ceiling_seconds(const Rotation &r, const Traffic &t)
{
    size_t bytes = SIZE_MAX, inputs = 0, outputs = 0;
    for (int b : t.in) bytes = std::min(bytes, r.sizes[(size_t)b]);
    for (int b : t.out) bytes = std::min(bytes, r.sizes[(size_t)b]);
    for (int b : t.in) inputs += r.sizes[(size_t)b] / bytes;
    for (int b : t.out) outputs += r.sizes[(size_t)b] / bytes;
    switch (inputs * 10 + outputs) {
    case 11:
        return ceiling_of<1, 1>(r, t, bytes); // rms_norm, forward
    case 21:
        return ceiling_of<2, 1>(r, t, bytes); // backward; forward float32 to 16 bits
    case 22:
        return ceiling_of<2, 2>(r, t, bytes); // add_rms_norm, forward
    case 31:
        return ceiling_of<3, 1>(r, t, bytes); // backward
    case 32:
        return ceiling_of<3, 2>(r, t, bytes); // rms_norm, backward, 16-bit dy to float32 dx
    case 33:
        return ceiling_of<3, 3>(r, t, bytes); // add_rms_norm, float32 stream, 16-bit branch
    case 53:
        return ceiling_of<5, 3>(r, t, bytes);
    default:
        return NAN;
    }
}

#endif
