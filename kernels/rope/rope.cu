// rope.cu - the CUDA kernel of rope and rope_qkv: one rotation, by the angle or by its negative.
//
// A thread has 16 bytes of each half of one head, at one position, and goes through batches with
// them: so it needs the angles of its pairs once, and computes them itself. It needs no table, and
// writes one only for rope_attention, whose backward reads it.
#include "pack.cuh"
#include "rope/angle.cuh"
#include "rope/formula.h"
#include "rope/rope.h"

constexpr int rates_most = 1024;
constexpr int blocks_each = 3;                    // on a multiprocessor
constexpr int blocks_at_once = blocks_each * 132; // on an H200

struct rope_rates {
    double log2_base;
    int64_t position; // of the first row
    float way;        // 1 or -1
    float2 *angles;   // [T, D / 2], gets cosines and sines; or NULL
};

// The members of V pairs of one head; `from` is the place of the first.
template <bool INTERLEAVED, class T, int V>
__device__ inline void load_pairs(T (&a)[V], T (&b)[V], const T *from, int64_t pairs)
{
    const gd_raw<T, V> raw[2] = {gd_raw<T, V>::load(from),
                                 gd_raw<T, V>::load(from + (INTERLEAVED ? V : pairs))};
    if constexpr (!INTERLEAVED) {
        memcpy(a, &raw[0], sizeof raw[0]), memcpy(b, &raw[1], sizeof raw[1]);
    } else {
        T both[2 * V];
        memcpy(both, raw, sizeof raw);
#pragma unroll
        for (int v = 0; v < V; v++) a[v] = both[2 * v], b[v] = both[2 * v + 1];
    }
}

template <bool INTERLEAVED, class T, int V>
__device__ inline void store_pairs(T *to, const T (&a)[V], const T (&b)[V], int64_t pairs)
{
    gd_raw<T, V> raw[2];
    if constexpr (!INTERLEAVED) {
        memcpy(&raw[0], a, sizeof raw[0]), memcpy(&raw[1], b, sizeof raw[1]);
    } else {
        T both[2 * V];
#pragma unroll
        for (int v = 0; v < V; v++) both[2 * v] = a[v], both[2 * v + 1] = b[v];
        memcpy(raw, both, sizeof raw);
    }
    *(gd_raw<T, V> *)to = raw[0];
    *(gd_raw<T, V> *)(to + (INTERLEAVED ? V : pairs)) = raw[1];
}

// Thread i of a row of blocks has position t, a head of some part and V of its pairs: 16 bytes of
// each member if they are aligned, or one pair. The rows of blocks share the batches, and a batch
// is loaded while the one before is turned. All that is written was read by the same thread before,
// so the result may lie where the heads come from.
template <bool INTERLEAVED, class T, int V>
static __global__ void GD_LAUNCH_BOUNDS(gd_threads, blocks_each)
    turn_kernel(rope_pass pass, rope_rates rates)
{
    gd_in_turn();
    using C = gd_compute<T>;
    __shared__ rope_step<C> step[rates_most];
    const bool shared_steps = pass.pairs <= rates_most;
    for (int64_t p = threadIdx.x; shared_steps && p < pass.pairs; p += gd_threads)
        step[p] = rope_step<C>::of(rope_rate(rates.log2_base, p, pass.pairs));
    __syncthreads();
    const int64_t packs = pass.pairs / V, pairs = pass.pairs;
    GD_EACH(i, pass.positions * pass.heads * packs)
    {
        const int64_t all = i / packs, first = (i - all * packs) * V;
        const int64_t t = all / pass.heads;
        int64_t head = all - t * pass.heads;
        rope_heads h = pass.part[0];
#pragma unroll
        for (int p = 1; p < ROPE_PARTS; p++) {
            if (head < h.heads || p >= pass.parts) break;
            head -= h.heads;
            h = pass.part[p];
        }
        C cosine[V], sine[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int64_t pair = first + v;
            const rope_step<C> pair_step =
                shared_steps ? step[pair]
                             : rope_step<C>::of(rope_rate(rates.log2_base, pair, pairs));
            pair_step.sincos(rates.position + t, (C)rates.way, &sine[v], &cosine[v]);
            if (rates.angles && all == t * pass.heads && blockIdx.y == 0)
                rates.angles[t * pairs + pair] = make_float2((float)cosine[v], (float)sine[v]);
        }
        const int64_t place = INTERLEAVED ? 2 * first : first;
        const T *from = (const T *)h.from + t * h.from_stride[1] + head * h.from_stride[2] + place;
        T *to = (T *)h.to + t * h.to_stride[1] + head * h.to_stride[2] + place;
        T x[V] = {}, y[V] = {};
        if (h.from && blockIdx.y < pass.batches)
            load_pairs<INTERLEAVED>(x, y, from + blockIdx.y * h.from_stride[0], pairs);
        for (int64_t b = blockIdx.y; b < pass.batches; b += gridDim.y) {
            T next_x[V] = {}, next_y[V] = {}, *const out = to + b * h.to_stride[0];
            if (h.from && b + gridDim.y < pass.batches)
                load_pairs<INTERLEAVED>(next_x, next_y, from + (b + gridDim.y) * h.from_stride[0],
                                        pairs);
            T old_x[V] = {}, old_y[V] = {};
            if (h.add) load_pairs<INTERLEAVED>(old_x, old_y, out, pairs);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C p = gd_load(x[v]), q = gd_load(y[v]);
                const C turned_x = h.turned ? rope_first(p, q, cosine[v], sine[v]) : p;
                const C turned_y = h.turned ? rope_second(p, q, cosine[v], sine[v]) : q;
                x[v] = gd_store<T>(h.add ? gd_load(old_x[v]) + turned_x : turned_x);
                y[v] = gd_store<T>(h.add ? gd_load(old_y[v]) + turned_y : turned_y);
            }
            store_pairs<INTERLEAVED>(out, x, y, pairs);
#pragma unroll
            for (int v = 0; v < V; v++) x[v] = next_x[v], y[v] = next_y[v];
        }
    }
}

// Heads whose elements lie apart are copied first.
static gd_status pack_heads(const gd_call *call, rope_pass *pass)
{
    const gd_layout lies = gd_cuda_layout(call->input[0]);
    if (pass->backward || lies.strides[3] == 1) return GD_OK;
    const int64_t head = lies.shape[3], row = head * lies.shape[2], batch = row * lies.shape[1];
    const int64_t stride[4] = {batch, row, head, 1};
    const size_t size = gd_dtype_size(lies.dtype);
    char *copy = (char *)gd_call_scratch(call, (size_t)gd_tensor_count(call->input[0]) * size);
    if (!copy) return gd_error_status(call->context);
    gd_copy_cuda({copy, lies.dtype, 4, lies.shape, stride}, lies, call->context);
    for (int p = 0; p < pass->parts; p++) {
        memcpy(pass->part[p].from_stride, stride, sizeof stride);
        pass->part[p].from = copy;
        copy += (size_t)(pass->part[p].heads * head) * size;
    }
    return gd_error_status(call->context);
}

// How many rows of blocks share the batches. More of them compute more angles, and a last round of
// blocks that leaves multiprocessors idle takes as long as a full one; so the time is about
// rounds * (angles + batches of a block), in units of one batch.
static unsigned rows_of_blocks(int64_t row, int64_t batches)
{
    const int64_t ANGLES = 2;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t rows = 1; rows <= gd_min64(batches, blocks_at_once); rows++) {
        const int64_t rounds = gd_ceil_div(row * rows, blocks_at_once);
        const int64_t time = rounds * (ANGLES + gd_ceil_div(batches, rows));
        if (time < least) best = rows, least = time;
    }
    return (unsigned)best;
}

// Whether each head begins at a multiple of 16 bytes, as do both halves of it.
static bool aligned(const rope_pass *pass, int pack, int64_t size)
{
    uint64_t begins = (uint64_t)(pass->pairs % pack);
    for (int p = 0; p < pass->parts; p++) {
        const rope_heads *h = &pass->part[p];
        begins |= ((uintptr_t)h->from | (uintptr_t)h->to) % 16;
        for (int i = 0; i < 3; i++)
            begins |= (uint64_t)((h->from_stride[i] | h->to_stride[i]) * size) % 16;
    }
    return begins == 0;
}

template <int V, class T>
static gd_status turn(const gd_call *call, const rope_pass &pass, const rope_rates &rates)
{
    gd_grid grid = gd_grid_for(pass.positions * pass.heads * (pass.pairs / V));
    grid.blocks.y = rows_of_blocks(grid.blocks.x, pass.batches);
    return gd_launch(call, grid,
                     pass.angles.interleaved ? turn_kernel<true, T, V> : turn_kernel<false, T, V>,
                     pass, rates);
}

static gd_status rotate(const gd_call *call, bool backward, float *angles)
{
    if (gd_tensor_count(call->input[0]) == 0) return GD_OK;
    rope_pass pass = rope_pass_of(call, backward);
    if (pack_heads(call, &pass)) return gd_error_status(call->context);
    const rope_rates rates = {log2(pass.angles.base), pass.angles.position, backward ? -1.0f : 1.0f,
                              (float2 *)angles};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = gd_pack_size<T>;
        return aligned(&pass, V, sizeof(T)) ? turn<V, T>(call, pass, rates)
                                            : turn<1, T>(call, pass, rates);
    });
}

extern "C" gd_status rope_forward_keep_angles(const gd_call *call, float *angles)
{
    return rotate(call, false, angles);
}

GD_CUDA_KERNEL(rope_forward, rotate(call, false, nullptr))
GD_CUDA_KERNEL(rope_backward, call->dinput[0] ? rotate(call, true, nullptr) : GD_OK)
