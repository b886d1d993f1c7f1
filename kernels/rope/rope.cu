// rope.cu - the CUDA kernel of rope and rope_qkv: one rotation, by the angle or by its negative.
//
// A thread has 16 bytes of each half of one head, at one position, and goes through batches with
// them: so it needs the angles of its pairs once, and computes them itself. No table, no second
// launch, and the bytes that move are those of the heads.
#include "pack.cuh"
#include "rope/angle.cuh"
#include "rope/rope.h"

constexpr int threads = 256, rates_most = 1024;
constexpr int blocks_each = 3;                    // on a multiprocessor
constexpr int blocks_at_once = blocks_each * 132; // on an H200

struct rope_rates {
    double log2_base;
    double position; // of the first row
    double way;      // 1 or -1
};

// The members of V pairs of one head, from pair `first` on.
template <bool INTERLEAVED, class T, int V>
__device__ inline void load_pairs(T (&a)[V], T (&b)[V], const T *head, int64_t first, int64_t pairs)
{
    if constexpr (!INTERLEAVED) {
        gd_pack_load(a, head, first, pairs);
        gd_pack_load(b, head + pairs, first, pairs);
    } else {
        T both[2 * V];
        gd_pack_load(both, head, 2 * first, 2 * pairs);
#pragma unroll
        for (int v = 0; v < V; v++) a[v] = both[2 * v], b[v] = both[2 * v + 1];
    }
}

template <bool INTERLEAVED, class T, int V>
__device__ inline void store_pairs(T *head, const T (&a)[V], const T (&b)[V], int64_t first,
                                   int64_t pairs)
{
    if constexpr (!INTERLEAVED) {
        gd_pack_store(head, a, first, pairs);
        gd_pack_store(head + pairs, b, first, pairs);
    } else {
        T both[2 * V];
#pragma unroll
        for (int v = 0; v < V; v++) both[2 * v] = a[v], both[2 * v + 1] = b[v];
        gd_pack_store(head, both, 2 * first, 2 * pairs);
    }
}

// Thread i of a row of blocks has position t, a head of some part and V of its pairs; the rows of
// blocks share the batches. All that is written was read by the same thread before, so the
// result may lie where the heads come from.
template <bool INTERLEAVED, class T>
static __global__ void __launch_bounds__(threads, blocks_each)
    turn_kernel(rope_pass pass, rope_rates rates)
{
    constexpr int V = gd_pack_size<T>;
    using C = gd_compute<T>;
    __shared__ double rate[rates_most];
    const bool shared_rates = pass.pairs <= rates_most;
    for (int64_t p = threadIdx.x; shared_rates && p < pass.pairs; p += threads)
        rate[p] = rope_rate(rates.log2_base, p, pass.pairs);
    __syncthreads();
    const int64_t packs = gd_packs(pass.pairs, V);
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
            cosine[v] = 1, sine[v] = 0;
            if (!h.turned || pair >= pass.pairs) continue;
            const double step =
                shared_rates ? rate[pair] : rope_rate(rates.log2_base, pair, pass.pairs);
            const double turns = (rates.position + (double)t) * step;
            sincos_of_turns(rates.way * (turns - rint(turns)), &sine[v], &cosine[v]);
        }
        const T *from = (const T *)h.from + t * h.from_stride[1] + head * h.from_stride[2];
        T *to = (T *)h.to + t * h.to_stride[1] + head * h.to_stride[2];
        for (int64_t b = blockIdx.y; b < pass.batches; b += gridDim.y) {
            T x[V], y[V], *const out = to + b * h.to_stride[0];
            C old_x[V] = {}, old_y[V] = {};
            if (h.from)
                load_pairs<INTERLEAVED>(x, y, from + b * h.from_stride[0], first, pass.pairs);
            if (h.add) {
                T kept_x[V], kept_y[V];
                load_pairs<INTERLEAVED>(kept_x, kept_y, out, first, pass.pairs);
#pragma unroll
                for (int v = 0; v < V; v++)
                    old_x[v] = gd_load(kept_x[v]), old_y[v] = gd_load(kept_y[v]);
            }
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C p = h.from ? gd_load(x[v]) : 0, q = h.from ? gd_load(y[v]) : 0;
                /* [dx] [rope_qkv] */
                const C turned_x = h.turned ? p * cosine[v] - q * sine[v] : p;
                const C turned_y = h.turned ? p * sine[v] + q * cosine[v] : q;
                x[v] = gd_store<T>(h.add ? old_x[v] + turned_x : turned_x);
                y[v] = gd_store<T>(h.add ? old_y[v] + turned_y : turned_y);
            }
            store_pairs<INTERLEAVED>(out, x, y, first, pass.pairs);
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
// blocks that leaves multiprocessors idle takes as long as a full one; so the time is about rounds *
// (angles + batches of a block), in units of one batch.
static unsigned rows_of_blocks(int64_t row, int64_t batches)
{
    const int64_t ANGLES = 2;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t rows = 1; rows <= gd_min64(batches, blocks_at_once); rows++) {
        const int64_t rounds = gd_cuda_divide_up(row * rows, blocks_at_once);
        const int64_t time = rounds * (ANGLES + gd_cuda_divide_up(batches, rows));
        if (time < least) best = rows, least = time;
    }
    return (unsigned)best;
}

static gd_status rotate(const gd_call *call, bool backward)
{
    if (gd_tensor_count(call->input[0]) == 0) return GD_OK;
    rope_pass pass = rope_pass_of(call, backward);
    if (pack_heads(call, &pass)) return gd_error_status(call->context);
    const rope_rates rates = {log2(pass.angles.base), (double)pass.angles.position,
                              backward ? -1.0 : 1.0};
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        const int64_t packs = gd_packs(pass.pairs, gd_pack_size<T>);
        const unsigned row = gd_blocks(pass.positions * pass.heads * packs, threads);
        const dim3 blocks(row, rows_of_blocks(row, pass.batches));
        if (pass.angles.interleaved)
            turn_kernel<true, T><<<blocks, threads, 0, gd_stream(call)>>>(pass, rates);
        else
            turn_kernel<false, T><<<blocks, threads, 0, gd_stream(call)>>>(pass, rates);
        return gd_launched(call);
    });
}

extern "C" gd_status rope_forward_cuda(const gd_call *call)
{
    return rotate(call, false);
}

extern "C" gd_status rope_backward_cuda(const gd_call *call)
{
    return call->dinput[0] ? rotate(call, true) : GD_OK;
}
