// attention_decode.cu - the CUDA kernel of attention_decode: one launch for all that attention does
// for a token between two matrix products. The amounts are tiny; its time is a chain of latencies.
//
// A head of queries has `splits` blocks, a cluster, so that a single text occupies more than a few
// multiprocessors. Each rotates the queries and the head's own new keys, and (one block for each
// head of keys) stores those. Then its threads form groups of `lanes`, and the groups of all blocks
// take the earlier keys in turn: a thread loads V columns of `at_once` keys and their values (the
// first before the rotation, which does not depend on them), and has its own sums of an online
// softmax (attention_forward.cu). At the end the groups' sums are combined, in a warp by shuffles,
// then across the warps in order, then across the blocks in order, in the first one's shared
// memory.
//
// Where there are no clusters, a block takes the parts of all splits, one after the other: the same
// sums in the same order.
#include <cooperative_groups.h>

#include "async.cuh"
#include "decode/attention_decode.h"
#include "cuda/device_cuda.h"
#include "launch.cuh"
#include "pack.cuh"
#include "rope/angle.cuh"

constexpr int threads = 256, warps = threads / 32, at_once = 4, most_splits = 8;
constexpr int widest = 1024, fine_rates = 32;

template <class T>
struct decode_pass {
    attention_decode_sizes z;
    const T *qkv;
    T *keys, *values, *y;
    const int32_t *position;
    int64_t *fault; // or NULL
    // The turns per position of pair i of a head's columns are fine[i % 32] coarse[i / 32].
    double fine[fine_rates], coarse[widest / 2 / fine_rates];
    gd_compute<T> scale; // of the scores, to base 2
    bool interleaved;
    int lanes;  // of a group: a power of two, at most 32
    int splits; // of a head; more than one only if a group is as wide as a row
};

// 2^(score - largest); 0 if `score` is -inf, even if `largest` is, too.
template <class C>
__device__ inline C weight_of(C score, C largest)
{
    return exp2(score - (largest == -INFINITY ? (C)0 : largest));
}

// Sums over some keys: of the weights relative to 2^largest, and of V columns of the values.
template <class C, int V>
struct step_sums {
    C largest, total, out[V];

    __device__ void rescale(C to)
    {
        const C factor = weight_of(largest, to);
        largest = to;
        total *= factor;
#pragma unroll
        for (int i = 0; i < V; i++) out[i] *= factor;
    }

    template <class T>
    __device__ void add(C weight, const T (&value)[V])
    {
        total += weight;
#pragma unroll
        for (int i = 0; i < V; i++) out[i] += weight * gd_load(value[i]);
    }

    // Combines those of the lanes in the same place of the warp's groups.
    __device__ void combine(int lanes)
    {
        C most = largest;
        for (int apart = lanes; apart < 32; apart *= 2)
            most = max(most, __shfl_xor_sync(0xffffffffu, most, apart));
        rescale(most);
        for (int apart = lanes; apart < 32; apart *= 2) {
            total += __shfl_xor_sync(0xffffffffu, total, apart);
#pragma unroll
            for (int i = 0; i < V; i++) out[i] += __shfl_xor_sync(0xffffffffu, out[i], apart);
        }
    }
};

// Sums each v[] over a group's lanes.
template <int N, class C>
__device__ inline void sum_over_lanes(C (&v)[N], int lanes)
{
    for (int apart = lanes / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += __shfl_xor_sync(0xffffffffu, v[i], apart);
}

// The sums of parts in order: of largest[], total[] and, of one column, out[].
template <int MOST, class C>
__device__ inline step_sums<C, 1> join(const C *largest, const C *total, const C *out, int columns,
                                       int parts)
{
    step_sums<C, 1> all = {-INFINITY, 0, {}};
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < parts) all.largest = max(all.largest, largest[i]);
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= parts) break;
        const C factor = weight_of(largest[i], all.largest);
        all.total += factor * total[i];
        all.out[0] += factor * out[i * columns];
    }
    return all;
}

// to [D] = factor times a head, rotated, by half of the threads; `rank` is this one's.
template <class T, class C>
__device__ inline void rotate(C *to, const T *head, const decode_pass<T> &s, int64_t position,
                              C factor, int rank)
{
    const int pairs = (int)s.z.D / 2;
    for (int i = rank; i < pairs; i += threads / 2) {
        const int first = s.interleaved ? 2 * i : i, second = s.interleaved ? 2 * i + 1 : i + pairs;
        const C a = factor * gd_load(head[first]), b = factor * gd_load(head[second]);
        const double rate = s.fine[i % fine_rates] * s.coarse[i / fine_rates];
        C sine, cosine;
        rope_step<C>::of(rate).sincos(position, 1, &sine, &cosine);
        to[first] = a * cosine - b * sine;
        to[second] = a * sine + b * cosine;
    }
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

// V: 1, or the elements in 16 bytes if D is a multiple of them and all addresses are aligned.
template <class T, int V>
static __global__ void __launch_bounds__(threads)
    step_kernel(const __grid_constant__ decode_pass<T> s)
{
    using C = gd_compute<T>;
    using pack = gd_raw_pack<T, V>;
    __shared__ C largest_of[warps], total_of[warps], out_of[warps][32 * V];
    __shared__ C part_largest[most_splits], part_total[most_splits], part_out[most_splits][32 * V];
    __shared__ C q[widest], own_k[widest];
    const int D = (int)s.z.D, lanes = s.lanes, H = (int)s.z.H, half = threads / 2;
    const int group = threadIdx.x / lanes, groups = threads / lanes * s.splits;
    const int lane = threadIdx.x % lanes, warp = threadIdx.x / 32;
    const bool clustered = GD_HOPPER && s.splits > 1;
    const int first_split = clustered ? blockIdx.x % s.splits : 0;
    const int end_split = clustered ? first_split + 1 : s.splits;
    const int n = clustered ? blockIdx.x / s.splits : blockIdx.x;
    const int b = n / H, h = n % H, per_key = H / (int)s.z.KV, kv = h / per_key;
    // Of this head; of the keys and values, the token's own and those of all positions.
    const T *const token = s.qkv + (b * (H + 2 * s.z.KV)) * D;
    const T *const new_v = token + (H + s.z.KV + kv) * D;
    const int64_t row = s.z.KV * D;
    T *const keys = s.keys + b * s.z.capacity * row + kv * D;
    T *const values = s.values + b * s.z.capacity * row + kv * D;

    if (clustered) gd_async::cluster_arrive(); // all of its blocks have begun when all have arrived
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    const int64_t position = *s.position;
    const bool valid = position >= 0 && position < s.z.capacity;
    const int64_t earlier = valid ? position : 0;

    // V columns, from `column` on, of rows j0 + u groups + mine; some row for those not earlier.
    const auto load = [&](T(&to)[at_once][V], const T *from, int64_t j0, int split, int column) {
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int64_t j = j0 + u * groups + group * s.splits + split;
            const T *const at = from + (j < earlier ? j : 0) * row + (column < D ? column : 0);
            const pack raw = *(const pack *)at;
            memcpy(to[u], &raw, sizeof raw);
        }
    };
    T key[at_once][V], value[at_once][V];
    if (earlier > 0) {
        load(key, keys, 0, first_split, lane * V);
        load(value, values, 0, first_split, lane * V);
    }

    if (threadIdx.x < half)
        rotate(q, token + h * D, s, position, s.scale, threadIdx.x);
    else
        rotate(own_k, token + (H + kv) * D, s, position, (C)1, threadIdx.x - half);
    __syncthreads();
    if (!valid) {
        if (threadIdx.x == 0 && s.fault) *s.fault = 1;
        for (int d = threadIdx.x; first_split == 0 && d < D; d += threads)
            s.y[(int64_t)n * D + d] = T(0.0f);
        return;
    }
    for (int d = threadIdx.x; h % per_key == 0 && first_split == 0 && d < D; d += threads) {
        keys[position * row + d] = gd_store<T>(own_k[d]);
        values[position * row + d] = new_v[d];
    }
    C own_score[1] = {};
    for (int first = lane * V; first < D; first += lanes * V)
#pragma unroll
        for (int i = 0; i < V; i++) own_score[0] += q[first + i] * own_k[first + i];
    sum_over_lanes(own_score, lanes);

    for (int begin = 0; begin < D; begin += lanes * V) {
        const int column = begin + lane * V; // of this thread's sums
        for (int split = first_split; split < end_split; split++) {
            // The token's own key is in the first group of the first split.
            const bool own = group + split == 0;
            step_sums<C, V> sums = {own ? own_score[0] : (C)-INFINITY, own ? (C)1 : (C)0, {}};
            for (int i = 0; own && i < V && column + i < D; i++)
                sums.out[i] = gd_load(new_v[column + i]);
            // The same number of turns for all groups, since they shuffle together.
            for (int64_t j0 = 0; j0 < earlier; j0 += groups * at_once) {
                if (begin + j0 > 0 || split > first_split) {
                    load(key, keys, j0, split, lane * V);
                    load(value, values, j0, split, column);
                }
                C score[at_once] = {}, most = sums.largest;
                for (int first = lane * V; first < D; first += lanes * V) {
                    if (first > lane * V) load(key, keys, j0, split, first);
#pragma unroll
                    for (int i = 0; i < V; i++)
#pragma unroll
                        for (int u = 0; u < at_once; u++)
                            score[u] += q[first + i] * gd_load(key[u][i]);
                }
                sum_over_lanes(score, lanes);
#pragma unroll
                for (int u = 0; u < at_once; u++) {
                    if (j0 + u * groups + group * s.splits + split >= earlier) {
                        score[u] = -INFINITY; // of weight 0, and 0 times infinity is NaN
#pragma unroll
                        for (int i = 0; i < V; i++) value[u][i] = T(0.0f);
                    }
                    most = max(most, score[u]);
                }
                sums.rescale(most);
#pragma unroll
                for (int u = 0; u < at_once; u++) sums.add(weight_of(score[u], most), value[u]);
            }
            sums.combine(lanes);
            if (threadIdx.x % 32 < lanes) {
                largest_of[warp] = sums.largest;
                total_of[warp] = sums.total;
#pragma unroll
                for (int i = 0; i < V; i++) out_of[warp][lane * V + i] = sums.out[i];
            }
            __syncthreads();
            if (clustered) gd_async::cluster_wait();
            for (int c = threadIdx.x; c < lanes * V; c += threads) {
                const auto all = join<warps>(largest_of, total_of, &out_of[0][c], 32 * V, warps);
                *in_first_block(&part_out[split][c]) = all.out[0];
                if (c > 0) continue;
                *in_first_block(&part_largest[split]) = all.largest;
                *in_first_block(&part_total[split]) = all.total;
            }
            if (!clustered) __syncthreads();
        }
        if (clustered) {
            gd_async::cluster_arrive();
            if (first_split > 0) return; // the last columns, since it is split
            gd_async::cluster_wait();
        }
        for (int c = threadIdx.x; c < lanes * V && begin + c < D; c += threads) {
            const auto all =
                join<most_splits>(part_largest, part_total, &part_out[0][c], 32 * V, s.splits);
            s.y[(int64_t)n * D + begin + c] = gd_store<T>(all.out[0] / all.total);
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

template <int V, class T>
static gd_status step_with(const gd_call *call, decode_pass<T> s)
{
    const int64_t heads = s.z.B * s.z.H, packs = gd_packs(s.z.D, V);
    s.lanes = 1;
    while (s.lanes < packs && s.lanes < 32) s.lanes *= 2;
    s.splits = splits_of(heads, s.lanes >= packs);
    const int cluster = gd_cuda_device_limits().cluster >= s.splits ? s.splits : 1;
    gd_async::launch<step_kernel<T, V>>({heads * cluster, threads, 0, cluster}, gd_stream(call), s);
    return gd_launched(call);
}

extern "C" gd_status attention_decode_forward_cuda(const gd_call *call)
{
    const attention_decode_args *args = (const attention_decode_args *)call->args;
    const attention_decode_sizes z = attention_decode_sizes_of(call);
    const int64_t heads = z.B * z.H;
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    if (z.D > widest || heads > INT32_MAX) {
        return gd_call_fail(call, GD_ERROR_UNSUPPORTED,
                            "%lld heads of %lld columns are not on a GPU yet, wanted at most %d "
                            "of at most %d",
                            (long long)heads, (long long)z.D, INT32_MAX, widest);
    }
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        constexpr int V = gd_pack_size<T>;
        decode_pass<T> s = {};
        s.z = z;
        s.qkv = gd_ptr<T>(call->input[0]);
        s.keys = gd_ptr<T>(call->input[1]);
        s.values = gd_ptr<T>(call->input[2]);
        s.y = gd_ptr<T>(call->output[0]);
        s.position = gd_ptr<const int32_t>(call->input[3]);
        s.fault = gd_cuda_fault_word(call, z.capacity);
        const double log2_rate = -2 * log2(args->base) / (double)z.D; // from pair to pair
        for (int i = 0; i < fine_rates; i++) s.fine[i] = exp2(i * log2_rate) / 6.283185307179586477;
        for (int i = 0; i < widest / 2 / fine_rates; i++)
            s.coarse[i] = exp2(i * fine_rates * log2_rate);
        s.scale = (C)(1 / (sqrt((double)z.D) * 0.69314718055994530942));
        s.interleaved = args->interleaved;
        const uintptr_t begins = (uintptr_t)s.keys | (uintptr_t)s.values;
        return z.D % V || begins % 16 ? step_with<1>(call, s) : step_with<V>(call, s);
    });
}
