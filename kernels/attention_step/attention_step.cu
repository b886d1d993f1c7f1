// attention_step.cu - the CUDA kernel of attention_step: one launch for all that a token's attention
// does between two matrix products.
//
// A head of queries has `splits` blocks, a cluster, so that a single text occupies more than a few
// multiprocessors. Each rotates the queries and the head's own new keys, and (one block for each
// head of keys) stores those. Then its threads form groups of `lanes`, and the groups of all blocks
// take the earlier keys in turn: a thread has V columns of a key and its value, 16 bytes of each,
// loads `at_once` of them before it computes, and has its own sums of an online softmax
// (attention_forward.cu). At the end the groups' sums are combined, in a warp by shuffles, then
// across the warps in order, then across the blocks in order, in the first one's shared memory.
//
// Where there are no clusters, a block takes the parts of all splits, one after the other: the same
// sums in the same order.
#include <cooperative_groups.h>

#include "async.cuh"
#include "attention_step/attention_step.h"
#include "device_cuda.h"
#include "launch.cuh"
#include "pack.cuh"
#include "rope/angle.cuh"

constexpr int threads = 256, warps = threads / 32, at_once = 4, widest = 1024, most_splits = 8;

template <class T>
struct step_pass {
    attention_step_sizes z;
    const T *qkv;
    T *keys, *values, *y;
    const int32_t *position;
    int64_t *fault; // or NULL
    double log2_base;
    gd_compute<T> scale;
    bool interleaved;
    int lanes;  // of a group: a power of two, at most 32
    int splits; // of a head; more than one only if a group is as wide as a row
};

// The sums over some keys: of exp(score - largest), and of that times V columns of the values.
template <class C, int V>
struct step_sums {
    C largest, total, out[V];

    __device__ void rescale(C to)
    {
        const C factor = to == largest ? (C)1 : exp(largest - to); // both may be -inf
        largest = to;
        total *= factor;
#pragma unroll
        for (int i = 0; i < V; i++) out[i] *= factor;
    }

    __device__ void add(C score, const C (&value)[V])
    {
        const C weight = exp(score - largest);
        total += weight;
#pragma unroll
        for (int i = 0; i < V; i++) out[i] += weight * value[i];
    }

    // The sums of this lane's group and of that of the lane `apart` from it.
    __device__ void combine(int apart)
    {
        step_sums other;
        other.largest = __shfl_xor_sync(0xffffffffu, largest, apart);
        other.total = __shfl_xor_sync(0xffffffffu, total, apart);
#pragma unroll
        for (int i = 0; i < V; i++) other.out[i] = __shfl_xor_sync(0xffffffffu, out[i], apart);
        const C most = largest > other.largest ? largest : other.largest;
        rescale(most);
        other.rescale(most);
        total += other.total;
#pragma unroll
        for (int i = 0; i < V; i++) out[i] += other.out[i];
    }
};

template <class C>
__device__ inline C sum_over(C v, int lanes)
{
    for (int apart = lanes / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

// The sums of parts in order: of largest[], total[] and, of one column, out[].
template <class C>
__device__ inline step_sums<C, 1> join(const C *largest, const C *total, const C *out, int columns,
                                       int parts)
{
    step_sums<C, 1> all = {-INFINITY, 0, {}};
    for (int i = 0; i < parts; i++) all.largest = max(all.largest, largest[i]);
#pragma unroll 8
    for (int i = 0; i < parts; i++) {
        // both may be -inf
        const C factor = largest[i] == all.largest ? (C)1 : exp(largest[i] - all.largest);
        all.total += factor * total[i];
        all.out[0] += factor * out[i * columns];
    }
    return all;
}

// to [D] = factor times a head, rotated, by half of the threads; `rank` is this one's.
template <class T, class C>
__device__ inline void turn(C *to, const T *head, const step_pass<T> &s, int64_t position,
                            const double *rates, C factor, int rank)
{
    const int64_t pairs = s.z.D / 2;
    for (int64_t i = rank; i < pairs; i += threads / 2) {
        const int64_t first = s.interleaved ? 2 * i : i;
        const int64_t second = s.interleaved ? 2 * i + 1 : i + pairs;
        const double turns = (double)position * rates[i];
        const C a = factor * gd_load(head[first]), b = factor * gd_load(head[second]);
        C sine, cosine;
        sincos_of_turns(turns - rint(turns), &sine, &cosine);
        to[first] = a * cosine - b * sine;
        to[second] = a * sine + b * cosine;
    }
}

__device__ inline void cluster_arrive()
{
#if GD_HOPPER
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// For all that the cluster's threads wrote before they arrived.
__device__ inline void cluster_wait()
{
#if GD_HOPPER
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The place of `p` in the shared memory of the cluster's first block.
template <class C>
__device__ inline C *in_first_block(C *p)
{
#if GD_HOPPER
    return cooperative_groups::this_cluster().map_shared_rank(p, 0);
#else
    return p;
#endif
}

template <class T>
static __global__ void __launch_bounds__(threads)
    step_kernel(const __grid_constant__ step_pass<T> s)
{
    using C = gd_compute<T>;
    constexpr int V = gd_pack_size<T>;
    __shared__ C largest_of[warps], total_of[warps], out_of[warps][32 * V];
    __shared__ C part_largest[most_splits], part_total[most_splits], part_out[most_splits][32 * V];
    extern __shared__ __align__(16) double memory[];
    const int64_t D = s.z.D, width = gd_packs(D, V) * V, row = s.z.KV * D;
    const int group = threadIdx.x / s.lanes, groups = threads / s.lanes * s.splits;
    const int lane = threadIdx.x % s.lanes, warp = threadIdx.x / 32, half = threads / 2;
    double *const rates = memory;
    C *const q = (C *)(rates + width), *const own_k = q + width;
    const bool clustered = GD_HOPPER && s.splits > 1;
    const int first_split = clustered ? blockIdx.x % s.splits : 0;
    const int end_split = clustered ? first_split + 1 : s.splits;
    const int n = clustered ? blockIdx.x / s.splits : blockIdx.x, H = (int)s.z.H;
    const int b = n / H, h = n % H, per_key = H / (int)s.z.KV, kv = h / per_key;
    // Of this head; of the keys and values, the token's own and those of all positions.
    const T *const token = s.qkv + b * (H + 2 * s.z.KV) * D;
    const T *const new_v = token + (H + s.z.KV + kv) * D;
    T *const keys = s.keys + b * s.z.room * row + kv * D;
    T *const values = s.values + b * s.z.room * row + kv * D;

    gd_async::let_next_start();
    for (int i = threadIdx.x; i < D / 2; i += threads) rates[i] = rope_rate(s.log2_base, i, D / 2);
#if GD_HOPPER
    // Meanwhile the keys on their way to L2; a position that is not yet the new one does no harm.
    const int64_t known = min((int64_t)__ldcg(s.position), s.z.room);
    for (int64_t j = group * s.splits + first_split; j < known; j += groups) {
        if (lane * V >= D) break;
        gd_async::line_prefetch(keys + j * row + lane * V);
        gd_async::line_prefetch(values + j * row + lane * V);
    }
#endif
    __syncthreads();
    gd_async::wait_for_previous();
    const int64_t position = *s.position;
    if (position < 0 || position >= s.z.room) {
        if (threadIdx.x == 0 && s.fault) *s.fault = 1;
        for (int64_t d = threadIdx.x; first_split == 0 && d < D; d += threads)
            s.y[n * D + d] = T(0.0f);
        return;
    }
    if (clustered) cluster_arrive(); // all of its blocks have begun when all have arrived
    if (threadIdx.x < half)
        turn(q, token + h * D, s, position, rates, s.scale, threadIdx.x);
    else
        turn(own_k, token + (s.z.H + kv) * D, s, position, rates, (C)1, threadIdx.x - half);
    for (int64_t d = D + threadIdx.x; d < width; d += threads) q[d] = own_k[d] = 0;
    __syncthreads();
    for (int64_t d = threadIdx.x; h % per_key == 0 && first_split == 0 && d < D; d += threads) {
        keys[position * row + d] = gd_store<T>(own_k[d]);
        values[position * row + d] = new_v[d];
    }
    for (int64_t begin = 0; begin < D; begin += s.lanes * V) {
        const int64_t column = begin + lane * V; // of this thread's sums
        T own_value[V];
        gd_pack_load(own_value, new_v, column, D);
        for (int split = first_split; split < end_split; split++) {
            const int64_t mine = group * s.splits + split;
            step_sums<C, V> sums = {-INFINITY, 0, {}};
            // The same number of turns for all groups, since they shuffle together.
            for (int64_t j0 = 0; j0 < position; j0 += groups * at_once) {
                T value[at_once][V];
                C score[at_once] = {};
                bool seen[at_once];
#pragma unroll
                for (int u = 0; u < at_once; u++) {
                    const int64_t j = j0 + u * groups + mine;
                    seen[u] = j < position;
                    gd_pack_load(value[u], values + (seen[u] ? j : 0) * row, column, D);
                }
                for (int64_t first = lane * V; first < D; first += s.lanes * V) {
                    T key[at_once][V];
#pragma unroll
                    for (int u = 0; u < at_once; u++) {
                        const int64_t j = j0 + u * groups + mine;
                        gd_pack_load(key[u], keys + (seen[u] ? j : 0) * row, first, D);
                    }
#pragma unroll
                    for (int u = 0; u < at_once; u++)
#pragma unroll
                        for (int i = 0; i < V; i++) score[u] += q[first + i] * gd_load(key[u][i]);
                }
                C most = sums.largest;
#pragma unroll
                for (int u = 0; u < at_once; u++) {
                    score[u] = sum_over(score[u], s.lanes);
                    if (seen[u] && score[u] > most) most = score[u];
                }
                sums.rescale(most);
#pragma unroll
                for (int u = 0; u < at_once; u++) {
                    C wide[V];
#pragma unroll
                    for (int i = 0; i < V; i++) wide[i] = gd_load(value[u][i]);
                    if (seen[u]) sums.add(score[u], wide);
                }
            }
            // The token's own key, in the first group of the first split.
            C score = 0, own[V];
            for (int64_t d = lane; d < D; d += s.lanes) score += q[d] * own_k[d];
            score = sum_over(score, s.lanes);
            if (mine == 0) {
#pragma unroll
                for (int i = 0; i < V; i++) own[i] = gd_load(own_value[i]);
                sums.rescale(score > sums.largest ? score : sums.largest);
                sums.add(score, own);
            }
            for (int apart = s.lanes; apart < 32; apart *= 2) sums.combine(apart);
            if (threadIdx.x % 32 < s.lanes) {
                largest_of[warp] = sums.largest;
                total_of[warp] = sums.total;
#pragma unroll
                for (int i = 0; i < V; i++) out_of[warp][lane * V + i] = sums.out[i];
            }
            __syncthreads();
            if (clustered) cluster_wait();
            for (int c = threadIdx.x; c < s.lanes * V; c += threads) {
                const step_sums<C, 1> all =
                    join(largest_of, total_of, &out_of[0][c], 32 * V, warps);
                *in_first_block(&part_largest[split]) = all.largest;
                *in_first_block(&part_total[split]) = all.total;
                *in_first_block(&part_out[split][c]) = all.out[0];
            }
            __syncthreads();
        }
        if (clustered) {
            cluster_arrive();
            if (first_split > 0) return; // the last columns, since it is split
            cluster_wait();
        }
        for (int c = threadIdx.x; c < s.lanes * V && begin + c < D; c += threads) {
            const step_sums<C, 1> all =
                join(part_largest, part_total, &part_out[0][c], 32 * V, s.splits);
            s.y[n * D + begin + c] = gd_store<T>(all.out[0] / all.total);
        }
        __syncthreads();
    }
}

// Into how many blocks a head is divided: as many as keep some hundred busy. Sizes decide, not the
// GPU, since the order of the sums depends on it.
static int splits_of(int64_t heads, bool one_turn)
{
    int splits = 1;
    while (one_turn && splits < most_splits && heads * splits * 2 <= 128) splits *= 2;
    return splits;
}

extern "C" gd_status attention_step_forward_cuda(const gd_call *call)
{
    const attention_step_args *args = (const attention_step_args *)call->args;
    const attention_step_sizes z = attention_step_sizes_of(call);
    const int64_t heads = z.B * z.H;
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    if (z.D > widest || heads > INT32_MAX) {
        return gd_call_fail(call, GD_ERROR_UNSUPPORTED,
                            "%lld heads of %lld columns are not on a GPU yet, wanted at most %d "
                            "of at most %d",
                            (long long)heads, (long long)z.D, INT32_MAX, widest);
    }
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const int64_t packs = gd_packs(z.D, gd_pack_size<T>);
        step_pass<T> s = {};
        s.z = z;
        s.qkv = gd_ptr<T>(call->input[0]);
        s.keys = gd_ptr<T>(call->input[1]);
        s.values = gd_ptr<T>(call->input[2]);
        s.y = gd_ptr<T>(call->output[0]);
        s.position = gd_ptr<const int32_t>(call->input[3]);
        s.fault = gd_cuda_fault_word(call, z.room);
        s.log2_base = log2(args->base);
        s.scale = (C)(1 / sqrt((double)z.D));
        s.interleaved = args->interleaved;
        s.lanes = 1;
        while (s.lanes < packs && s.lanes < 32) s.lanes *= 2;
        s.splits = splits_of(heads, s.lanes >= packs);
        const int cluster = gd_async::runs_on_hopper<step_kernel<T>>() ? s.splits : 1;
        const size_t width = (size_t)packs * gd_pack_size<T>;
        const int shared = (int)(width * (sizeof(double) + 2 * sizeof(C)));
        gd_async::launch<step_kernel<T>>({heads * cluster, threads, shared, cluster},
                                         gd_stream(call), s);
        return gd_launched(call);
    });
}
