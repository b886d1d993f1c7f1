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

constexpr int warps = gd_threads / 32, at_once = 4, most_splits = 8;
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
struct decode_sums {
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
__device__ inline decode_sums<C, 1> join(const C *largest, const C *total, const C *out,
                                         int columns, int parts)
{
    decode_sums<C, 1> all = {-INFINITY, 0, {}};
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
    for (int i = rank; i < pairs; i += gd_threads / 2) {
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

// Sums of the block's warps, and of the parts in the first block; the rotated heads.
template <class C, int V>
struct decode_shared {
    C largest_of[warps], total_of[warps], out_of[warps][32 * V];
    C part_largest[most_splits], part_total[most_splits], part_out[most_splits][32 * V];
    C q[widest], own_k[widest];
};

// What a thread works on: its head (one of queries and its head of keys), splits and group.
template <class T>
struct decode_thread {
    const decode_pass<T> &s;
    int D, lanes, group, groups, lane, warp;
    bool clustered;
    int first_split, end_split; // of the block
    int n, b, h, per_key, kv;   // head n of all is head h of text b, whose head of keys is kv
    const T *token, *new_v;     // the token's heads; its values for this head
    T *keys, *values;           // of this head, at position 0
    int64_t row, earlier;       // elements of a position; how many positions are earlier

    __device__ explicit decode_thread(const decode_pass<T> &s) : s(s)
    {
        const int H = (int)s.z.H;
        D = (int)s.z.D, lanes = s.lanes;
        group = threadIdx.x / lanes, groups = gd_threads / lanes * s.splits;
        lane = threadIdx.x % lanes, warp = threadIdx.x / 32;
        clustered = GD_HOPPER && s.splits > 1;
        first_split = clustered ? blockIdx.x % s.splits : 0;
        end_split = clustered ? first_split + 1 : s.splits;
        n = clustered ? blockIdx.x / s.splits : blockIdx.x;
        b = n / H, h = n % H, per_key = H / (int)s.z.KV, kv = h / per_key;
        token = s.qkv + (b * (H + 2 * s.z.KV)) * D;
        new_v = token + (H + s.z.KV + kv) * D;
        row = s.z.KV * D;
        keys = s.keys + b * s.z.capacity * row + kv * D;
        values = s.values + b * s.z.capacity * row + kv * D;
    }

    // The position of the group's key u of those from j0 on.
    __device__ int64_t key_position(int64_t j0, int u, int split) const
    {
        return j0 + u * groups + group * s.splits + split;
    }

    // V columns, from `column` on, of the group's keys or values; some row for those not earlier.
    template <int V>
    __device__ void load(T (&to)[at_once][V], const T *from, int64_t j0, int split,
                         int column) const
    {
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int64_t j = key_position(j0, u, split);
            const T *const at = from + (j < earlier ? j : 0) * row + (column < D ? column : 0);
            const gd_raw<T, V> raw = gd_raw<T, V>::load(at);
            memcpy(to[u], &raw, sizeof raw);
        }
    }
};

// The rotated and scaled query, and the token's own rotated key.
template <class T, class C, int V>
__device__ inline void rotate_heads(decode_shared<C, V> &shared, const decode_thread<T> &p,
                                    int64_t position)
{
    const int half = gd_threads / 2;
    const T *const own_k = p.token + (p.s.z.H + p.kv) * p.D;
    if (threadIdx.x < half)
        rotate(shared.q, p.token + p.h * p.D, p.s, position, p.s.scale, threadIdx.x);
    else
        rotate(shared.own_k, own_k, p.s, position, (C)1, threadIdx.x - half);
    __syncthreads();
}

// A position outside of the cache: an error for the host, and zeros.
template <class T>
__device__ inline void refuse_position(const decode_thread<T> &p)
{
    if (threadIdx.x == 0 && p.s.fault) *p.s.fault = 1;
    for (int d = threadIdx.x; p.first_split == 0 && d < p.D; d += gd_threads)
        p.s.y[(int64_t)p.n * p.D + d] = T(0.0f);
}

// Stores the token's own key and value; one block for each head of keys does.
template <class T, class C, int V>
__device__ inline void store_own(const decode_thread<T> &p, const decode_shared<C, V> &shared,
                                 int64_t position)
{
    for (int d = threadIdx.x; p.h % p.per_key == 0 && p.first_split == 0 && d < p.D;
         d += gd_threads) {
        p.keys[position * p.row + d] = gd_store<T>(shared.own_k[d]);
        p.values[position * p.row + d] = p.new_v[d];
    }
}

// The product of the rotated query and the token's own rotated key.
template <class T, class C, int V>
__device__ inline C own_score_of(const decode_thread<T> &p, const decode_shared<C, V> &shared)
{
    C score[1] = {};
    for (int first = p.lane * V; first < p.D; first += p.lanes * V)
#pragma unroll
        for (int i = 0; i < V; i++) score[0] += shared.q[first + i] * shared.own_k[first + i];
    sum_over_lanes(score, p.lanes);
    return score[0];
}

// The sums of V columns from `column` on before any earlier key: the first group of the first split
// has the token's own.
template <int V, class T, class C>
__device__ inline decode_sums<C, V> begin_sums(const decode_thread<T> &p, C own_score, int column,
                                               int split)
{
    const bool own = p.group + split == 0;
    decode_sums<C, V> sums = {own ? own_score : (C)-INFINITY, own ? (C)1 : (C)0, {}};
    for (int i = 0; own && i < V && column + i < p.D; i++)
        sums.out[i] = gd_load(p.new_v[column + i]);
    return sums;
}

// Adds the keys from j0 on, which `key` and `value` have (of the keys, the first lanes * V columns).
template <class T, class C, int V>
__device__ inline void add_keys(decode_sums<C, V> &sums, T (&key)[at_once][V],
                                T (&value)[at_once][V], const decode_thread<T> &p, const C *q,
                                int64_t j0, int split)
{
    C score[at_once] = {}, most = sums.largest;
    for (int first = p.lane * V; first < p.D; first += p.lanes * V) {
        if (first > p.lane * V) p.load(key, p.keys, j0, split, first);
#pragma unroll
        for (int i = 0; i < V; i++)
#pragma unroll
            for (int u = 0; u < at_once; u++) score[u] += q[first + i] * gd_load(key[u][i]);
    }
    sum_over_lanes(score, p.lanes);
#pragma unroll
    for (int u = 0; u < at_once; u++) {
        if (p.key_position(j0, u, split) >= p.earlier) {
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

// Combines the groups' sums, and leaves them as those of part `split` in the first block.
template <class T, class C, int V>
__device__ inline void combine_groups(decode_sums<C, V> &sums, const decode_thread<T> &p,
                                      decode_shared<C, V> &shared, int split)
{
    sums.combine(p.lanes);
    if (threadIdx.x % 32 < p.lanes) {
        shared.largest_of[p.warp] = sums.largest;
        shared.total_of[p.warp] = sums.total;
#pragma unroll
        for (int i = 0; i < V; i++) shared.out_of[p.warp][p.lane * V + i] = sums.out[i];
    }
    __syncthreads();
    if (p.clustered) gd_async::cluster_wait();
    for (int c = threadIdx.x; c < p.lanes * V; c += gd_threads) {
        const auto all =
            join<warps>(shared.largest_of, shared.total_of, &shared.out_of[0][c], 32 * V, warps);
        *in_first_block(&shared.part_out[split][c]) = all.out[0];
        if (c > 0) continue;
        *in_first_block(&shared.part_largest[split]) = all.largest;
        *in_first_block(&shared.part_total[split]) = all.total;
    }
    if (!p.clustered) __syncthreads();
}

// y's columns from `begin` on, of the sums of all splits.
template <class T, class C, int V>
__device__ inline void write_columns(T *y, const decode_thread<T> &p,
                                     const decode_shared<C, V> &shared, int begin)
{
    for (int c = threadIdx.x; c < p.lanes * V && begin + c < p.D; c += gd_threads) {
        const auto all = join<most_splits>(shared.part_largest, shared.part_total,
                                           &shared.part_out[0][c], 32 * V, p.s.splits);
        y[(int64_t)p.n * p.D + begin + c] = gd_store<T>(all.out[0] / all.total);
    }
}

// V: 1, or the elements in 16 bytes if D is a multiple of them and all addresses are aligned.
template <class T, int V>
static __global__ void __launch_bounds__(gd_threads)
    decode_kernel(const __grid_constant__ decode_pass<T> s)
{
    using C = gd_compute<T>;
    __shared__ decode_shared<C, V> shared;
    decode_thread<T> p(s);
    const int D = p.D, lanes = p.lanes;

    if (p.clustered) gd_async::cluster_arrive(); // all blocks have begun when all have arrived
    gd_async::let_next_start();
    gd_async::wait_for_previous();
    const int64_t position = *s.position;
    const bool valid = position >= 0 && position < s.z.capacity;
    p.earlier = valid ? position : 0;

    T key[at_once][V], value[at_once][V];
    if (p.earlier > 0) {
        p.load(key, p.keys, 0, p.first_split, p.lane * V);
        p.load(value, p.values, 0, p.first_split, p.lane * V);
    }
    rotate_heads(shared, p, position);
    if (!valid) return refuse_position(p);
    store_own(p, shared, position);
    const C own_score = own_score_of(p, shared);

    for (int begin = 0; begin < D; begin += lanes * V) {
        const int column = begin + p.lane * V; // of this thread's sums
        for (int split = p.first_split; split < p.end_split; split++) {
            decode_sums<C, V> sums = begin_sums<V>(p, own_score, column, split);
            // The same number of turns for all groups, since they shuffle together.
            for (int64_t j0 = 0; j0 < p.earlier; j0 += p.groups * at_once) {
                if (begin + j0 > 0 || split > p.first_split) {
                    p.load(key, p.keys, j0, split, p.lane * V);
                    p.load(value, p.values, j0, split, column);
                }
                add_keys(sums, key, value, p, shared.q, j0, split);
            }
            combine_groups(sums, p, shared, split);
        }
        if (p.clustered) {
            gd_async::cluster_arrive();
            if (p.first_split > 0) return; // the last columns, since it is split
            gd_async::cluster_wait();
        }
        write_columns(s.y, p, shared, begin);
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
static gd_status decode_with(const gd_call *call, decode_pass<T> s)
{
    const int64_t heads = s.z.B * s.z.H, packs = gd_packs(s.z.D, V);
    s.lanes = 1;
    while (s.lanes < packs && s.lanes < 32) s.lanes *= 2;
    s.splits = splits_of(heads, s.lanes >= packs);
    const int cluster = gd_cuda_device_limits().cluster >= s.splits ? s.splits : 1;
    return gd_launch_large<decode_kernel<T, V>>(call, {heads * cluster, gd_threads, 0, cluster}, s);
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
        return z.D % V || begins % 16 ? decode_with<1>(call, s) : decode_with<V>(call, s);
    });
}
