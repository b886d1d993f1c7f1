// sample_token.cu - the CUDA kernels of sample_token. The logits are divided into pieces of 1024, one
// for each block of the first kernel, which leaves its largest logit and the sum of its weights
// relative to that. The second kernel, one block, finds the piece in which the sum of all weights
// passes the drawn part of it, and then the logit in the piece. Weights and sums are double, so
// that what is drawn is, but for ties within rounding, what the CPU draws.
#include "async.cuh"
#include "cuda/device_cuda.h"
#include "decode/sample_token.h"
#include "launch.cuh"
#include "team.cuh"
#include "random/philox.cuh"

constexpr int warps = gd_threads / 32, each = 4, piece_size = gd_threads * each;

struct piece {
    double largest, sum; // largest: NaN if a logit is not finite
};

struct draw_pass {
    int64_t V, pieces, capacity;
    piece *piece_of; // [pieces]
    int32_t *next, *ids, *id;
    int64_t *fault; // or NULL
    double temperature;
    gd_random_place drawn;
};

__device__ inline double weight_of(double logit, double largest, double temperature)
{
    if (temperature < DRAW_STEP_COLDEST) return logit == largest;
    return exp((logit - largest) * (1 / temperature));
}

// The logits of thread `threadIdx.x` in a piece, of which `count` exist.
template <class T>
__device__ inline int load_some(double (&value)[each], const T *logits, int64_t piece, int64_t V)
{
    const int64_t first = piece * piece_size + (int64_t)threadIdx.x * each;
    T raw[each];
    gd_load_guarded(raw, logits, first, V);
#pragma unroll
    for (int i = 0; i < each; i++) value[i] = (double)gd_load(raw[i]);
    return (int)(first + each <= V ? each : first < V ? V - first : 0);
}

template <class T>
static __global__ void __launch_bounds__(gd_threads)
    piece_kernel(const __grid_constant__ draw_pass d, const T *logits)
{
    __shared__ double shared[32];
    double value[each], largest = -INFINITY, sum = 0;
    bool finite = true;
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    const int count = load_some(value, logits, blockIdx.x, d.V);
    for (int i = 0; i < count; i++) {
        finite = finite && isfinite(value[i]);
        largest = value[i] > largest ? value[i] : largest;
    }
    finite = __syncthreads_and(finite);
    largest = gd_combine(largest, shared, gd_larger());
    for (int i = 0; i < count; i++) sum += weight_of(value[i], largest, d.temperature);
    sum = gd_sum(sum, shared);
    if (threadIdx.x == 0) d.piece_of[blockIdx.x] = {finite ? largest : (double)NAN, sum};
}

// The sum of v over the threads before this one, and in *all over all.
__device__ inline double sum_before(double v, double *shared, double *all)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = v, before = 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < warps; w++) {
        if (w == warp) before = *all;
        *all += shared[w];
    }
    sum = __shfl_up_sync(0xffffffffu, sum, 1);
    return before + (lane ? sum : 0);
}

// Finds the item that was drawn: each thread has items 0 ... count - 1, which are in the order of the
// threads, and it is the last one with a weight whose predecessors' weights add up to at most `part` of the
// sum of all, or to `rest`, if that is not negative. Returns its thread, in which *item is the item and
// *rest what is left.
template <class Weight>
__device__ inline int find(int64_t count, Weight weight, double part, double *shared,
                           int *last_thread, int64_t *item, double *rest)
{
    double own = 0, all;
    for (int64_t i = 0; i < count; i++) own += weight(i);
    if (threadIdx.x == 0) *last_thread = 0;
    const double before = sum_before(own, shared, &all), goal = *rest < 0 ? part * all : *rest;
    if (own > 0 && before <= goal) atomicMax(last_thread, (int)threadIdx.x);
    __syncthreads();
    const int found = *last_thread;
    double left = goal - before;
    for (int64_t i = 0; (int)threadIdx.x == found && i < count; i++) {
        const double w = weight(i);
        if (!(w > 0) || left < 0) continue;
        *item = i, *rest = left;
        left -= w;
    }
    __syncthreads();
    return found;
}

template <class T>
static __global__ void __launch_bounds__(gd_threads)
    find_kernel(const __grid_constant__ draw_pass d, const T *logits)
{
    __shared__ double shared[32], shared_rest;
    __shared__ int64_t shared_piece;
    __shared__ int last_thread;
    const double t = d.temperature;
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    const int64_t position = d.next[1];
    double largest = -INFINITY, value[each];
    for (int64_t p = threadIdx.x; p < d.pieces; p += gd_threads)
        largest = gd_larger()(d.piece_of[p].largest, largest);
    const gd_random_place place = d.drawn.here();
    const double u = gd_philox_block(place.seed, 0, place.offset / 4).x / 4294967296.0;
    largest = gd_combine(largest, shared, gd_larger());
    const bool placed = position >= 0 && position < d.capacity;
    if (!placed || isnan(largest)) {
        if (threadIdx.x > 0) return;
        if (!placed && d.fault) *d.fault = 1;
        if (placed) d.ids[position] = -1;
        *d.id = -1;
        return;
    }

    // Each thread has neighbouring pieces.
    const int64_t per = gd_ceil_div(d.pieces, gd_threads), first = threadIdx.x * per;
    const int64_t end = first + per < d.pieces ? first + per : d.pieces;
    const auto of_piece = [&](int64_t i) {
        const piece at = d.piece_of[first + i];
        return at.sum * weight_of(at.largest, largest, t);
    };
    int64_t item = 0;
    double rest = t < DRAW_STEP_COLDEST ? 0 : -1;
    int found = find(end - first, of_piece, u, shared, &last_thread, &item, &rest);
    if ((int)threadIdx.x == found) shared_piece = first + item, shared_rest = rest;
    __syncthreads();

    const int64_t at = shared_piece;
    rest = shared_rest;
    const int count = load_some(value, logits, at, d.V);
    const auto of_logit = [&](int64_t i) { return weight_of(value[i], largest, t); };
    found = find(count, of_logit, u, shared, &last_thread, &item, &rest);
    if ((int)threadIdx.x != found) return;
    const int32_t id = (int32_t)(at * piece_size + (int64_t)threadIdx.x * each + item);
    *d.id = d.ids[position] = d.next[0] = id;
    d.next[1] = (int32_t)position + 1;
}

extern "C" gd_status sample_token_forward_cuda(const gd_call *call)
{
    draw_pass d = {};
    d.V = gd_tensor_count(call->input[0]);
    d.pieces = gd_ceil_div(d.V, piece_size);
    d.capacity = gd_tensor_count(call->input[2]);
    d.piece_of = (piece *)gd_call_scratch(call, (size_t)d.pieces * sizeof *d.piece_of);
    if (!d.piece_of) return gd_error_status(call->context);
    d.next = gd_ptr<int32_t>(call->input[1]);
    d.ids = gd_ptr<int32_t>(call->input[2]);
    d.id = gd_ptr<int32_t>(call->output[0]);
    d.fault = gd_cuda_fault_word(call, d.capacity);
    d.temperature = ((const sample_token_args *)call->args)->temperature;
    d.drawn = gd_random_place_of(call);
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const T *logits = gd_ptr<T>(call->input[0]);
        const gd_status status =
            gd_launch(call, {(unsigned)d.pieces, gd_threads}, piece_kernel<T>, d, logits);
        return status ? status : gd_launch(call, {1, gd_threads}, find_kernel<T>, d, logits);
    });
}
