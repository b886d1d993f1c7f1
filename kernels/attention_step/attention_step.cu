// attention_step.cu - the CUDA kernel of attention_step: one launch for all that a token's attention
// does between two matrix products.
//
// A block has one head of queries. It rotates them and the head's own new keys, and (one block for
// each head of keys) stores those. Then its threads form groups of `lanes`, each of which takes
// every so-and-so-many-th of the earlier keys: a thread has V columns of a key and its value, 16
// bytes of each, loads `at_once` of them before it computes, and has its own sums of an online
// softmax (attention_forward.cu). At the end the groups' sums are combined, in a warp by shuffles,
// then across the warps in order.
#include "attention_step/attention_step.h"
#include "device_cuda.h"
#include "pack.cuh"
#include "rope/angle.cuh"

constexpr int threads = 512, warps = threads / 32, at_once = 4, widest = 1024;

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
    int lanes; // of a group: a power of two, at most 32
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

// to [D] = factor times a head, rotated, by half of the threads; `rank` is this one's.
template <class T, class C>
__device__ inline void turn(C *to, const T *head, const step_pass<T> &s, int64_t position, C factor,
                            int rank)
{
    const int64_t pairs = s.z.D / 2;
    for (int64_t i = rank; i < pairs; i += threads / 2) {
        const int64_t first = s.interleaved ? 2 * i : i;
        const int64_t second = s.interleaved ? 2 * i + 1 : i + pairs;
        const double turns = (double)position * rope_rate(s.log2_base, i, pairs);
        const C a = factor * gd_load(head[first]), b = factor * gd_load(head[second]);
        C sine, cosine;
        sincos_of_turns(turns - rint(turns), &sine, &cosine);
        to[first] = a * cosine - b * sine;
        to[second] = a * sine + b * cosine;
    }
}

template <class T>
static __global__ void __launch_bounds__(threads, 1)
    step_kernel(const __grid_constant__ step_pass<T> s)
{
    using C = gd_compute<T>;
    constexpr int V = gd_pack_size<T>;
    __shared__ C largest_of[warps], total_of[warps], out_of[warps][32 * V];
    extern __shared__ __align__(16) unsigned char memory[];
    const int64_t D = s.z.D, width = gd_packs(D, V) * V, row = s.z.KV * D;
    const int64_t group = threadIdx.x / s.lanes, groups = threads / s.lanes;
    const int lane = threadIdx.x % s.lanes, warp = threadIdx.x / 32;
    C *const q = (C *)memory, *const own_k = q + width, *const own_v = own_k + width;
    const int64_t position = *s.position;

    for (int64_t n = blockIdx.x; n < s.z.B * s.z.H; n += gridDim.x) {
        const int64_t b = n / s.z.H, h = n % s.z.H, per_key = s.z.H / s.z.KV, kv = h / per_key;
        if (position < 0 || position >= s.z.room) {
            if (threadIdx.x == 0 && s.fault) *s.fault = 1;
            for (int64_t d = threadIdx.x; d < D; d += threads) s.y[n * D + d] = T(0.0f);
            continue;
        }
        // Of this head; of the keys and values, the token's own and those of all positions.
        const T *const token = s.qkv + b * (s.z.H + 2 * s.z.KV) * D;
        const T *const new_v = token + (s.z.H + s.z.KV + kv) * D;
        T *const keys = s.keys + b * s.z.room * row + kv * D;
        T *const values = s.values + b * s.z.room * row + kv * D;
        const int rank = threadIdx.x % (threads / 2);
        if (threadIdx.x < threads / 2)
            turn(q, token + h * D, s, position, s.scale, rank);
        else
            turn(own_k, token + (s.z.H + kv) * D, s, position, (C)1, rank);
        for (int64_t d = threadIdx.x; d < width; d += threads) {
            own_v[d] = d < D ? gd_load(new_v[d]) : 0;
            if (d >= D) q[d] = own_k[d] = 0;
        }
        __syncthreads();
        for (int64_t d = threadIdx.x; h % per_key == 0 && d < D; d += threads) {
            keys[position * row + d] = gd_store<T>(own_k[d]);
            values[position * row + d] = new_v[d];
        }
        for (int64_t begin = 0; begin < D; begin += s.lanes * V) {
            const int64_t column = begin + lane * V; // of this thread's sums
            step_sums<C, V> sums = {-INFINITY, 0, {}};
            // The same number of turns for all groups, since they shuffle together.
            for (int64_t j0 = 0; j0 < position; j0 += groups * at_once) {
                T value[at_once][V];
                C score[at_once] = {};
                bool seen[at_once];
#pragma unroll
                for (int u = 0; u < at_once; u++) {
                    const int64_t j = j0 + u * groups + group;
                    seen[u] = j < position;
                    gd_pack_load(value[u], values + (seen[u] ? j : 0) * row, column, D);
                }
                for (int64_t first = lane * V; first < D; first += s.lanes * V) {
                    T key[at_once][V];
#pragma unroll
                    for (int u = 0; u < at_once; u++) {
                        const int64_t j = j0 + u * groups + group;
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
            // The token's own key, in the first group.
            C score = 0, own[V];
            for (int64_t d = lane; d < D; d += s.lanes) score += q[d] * own_k[d];
            score = sum_over(score, s.lanes);
#pragma unroll
            for (int i = 0; i < V; i++) own[i] = column + i < D ? own_v[column + i] : 0;
            if (group == 0) {
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
            for (int c = threadIdx.x; c < s.lanes * V && begin + c < D; c += threads) {
                step_sums<C, 1> all = {largest_of[0], total_of[0], {out_of[0][c]}};
                for (int w = 1; w < warps; w++) {
                    step_sums<C, 1> some = {largest_of[w], total_of[w], {out_of[w][c]}};
                    const C most = some.largest > all.largest ? some.largest : all.largest;
                    all.rescale(most);
                    some.rescale(most);
                    all.total += some.total;
                    all.out[0] += some.out[0];
                }
                s.y[n * D + begin + c] = gd_store<T>(all.out[0] / all.total);
            }
            __syncthreads();
        }
    }
}

extern "C" gd_status attention_step_forward_cuda(const gd_call *call)
{
    const attention_step_args *args = (const attention_step_args *)call->args;
    const attention_step_sizes z = attention_step_sizes_of(call);
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    if (z.D > widest) {
        return gd_call_fail(call, GD_ERROR_UNSUPPORTED,
                            "heads of %lld columns are not on a GPU yet, wanted at most %d",
                            (long long)z.D, widest);
    }
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const int64_t packs = gd_packs(z.D, gd_pack_size<T>), most = INT32_MAX;
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
        const size_t bytes = 3 * (size_t)packs * gd_pack_size<T> * sizeof(C);
        step_kernel<T>
            <<<(unsigned)(z.B * z.H < most ? z.B * z.H : most), threads, bytes, gd_stream(call)>>>(
                s);
        return gd_launched(call);
    });
}
