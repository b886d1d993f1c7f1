// rope.cu - the CUDA kernels of rope: one rotation, by the angle or by its negative.
#include "pack.cuh"
#include "rope/rope.h"

constexpr int threads = 256;

// cosine and sine [T, pairs] of every angle, from double: an angle of thousands of radians has no
// digits to lose in float.
template <class C>
static __global__ void angle_kernel(C *cosine, C *sine, int64_t positions, int64_t pairs,
                                    double base, int64_t position)
{
    GD_EACH(i, positions * pairs)
    {
        const int64_t t = i / pairs, pair = i - t * pairs;
        const double rate = pow(base, -(double)pair / (double)pairs);
        double s, c;
        sincos((double)(position + t) * rate, &s, &c);
        cosine[i] = (C)c;
        sine[i] = (C)s;
    }
}

// How the elements of x [B, T, H, D] lie: rows are [B, T], a head has 2 * pairs elements.
struct rope_sizes {
    int64_t rows, positions, heads, pairs;
    bool interleaved;
};

// The members of V pairs of one head, from pair `first` on.
template <class T, int V>
__device__ inline void load_pairs(T (&a)[V], T (&b)[V], const T *head, int64_t first,
                                  const rope_sizes &s)
{
    if (!s.interleaved) {
        gd_pack_load(a, head, first, s.pairs);
        gd_pack_load(b, head + s.pairs, first, s.pairs);
        return;
    }
    T both[2 * V];
    gd_pack_load(both, head, 2 * first, 2 * s.pairs);
#pragma unroll
    for (int v = 0; v < V; v++) a[v] = both[2 * v], b[v] = both[2 * v + 1];
}

template <class T, int V>
__device__ inline void store_pairs(T *head, const T (&a)[V], const T (&b)[V], int64_t first,
                                   const rope_sizes &s)
{
    if (!s.interleaved) {
        gd_pack_store(head, a, first, s.pairs);
        gd_pack_store(head + s.pairs, b, first, s.pairs);
        return;
    }
    T both[2 * V];
#pragma unroll
    for (int v = 0; v < V; v++) both[2 * v] = a[v], both[2 * v + 1] = b[v];
    gd_pack_store(head, both, 2 * first, 2 * s.pairs);
}

// out (+)= the pairs of in, turned; `way` is the sign of the sine. blockIdx.x has rows, a thread V
// pairs of one head: it reads them all before it writes one, so out may be in.
template <class T>
static __global__ void turn_kernel(T *out, const T *in, const gd_compute<T> *cosine,
                                   const gd_compute<T> *sine, rope_sizes s, gd_compute<T> way,
                                   bool add)
{
    constexpr int V = gd_pack_size<T>;
    using C = gd_compute<T>;
    const int64_t packs = gd_packs(s.pairs, V);
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        const int64_t angles = row % s.positions * s.pairs;
        for (int64_t i = (int64_t)blockIdx.y * threads + threadIdx.x; i < s.heads * packs;
             i += (int64_t)gridDim.y * threads) {
            const int64_t head = i / packs, first = (i - head * packs) * V;
            const int64_t at = (row * s.heads + head) * 2 * s.pairs;
            C c[V], sn[V];
            T a[V], b[V], old_a[V], old_b[V];
            gd_pack_load(c, cosine + angles, first, s.pairs);
            gd_pack_load(sn, sine + angles, first, s.pairs);
            load_pairs(a, b, in + at, first, s);
            if (add) load_pairs(old_a, old_b, out + at, first, s);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C x = gd_load(a[v]), y = gd_load(b[v]), turn = way * sn[v];
                const C turned_x = x * c[v] - y * turn, turned_y = x * turn + y * c[v];
                a[v] = gd_store<T>(add ? gd_load(old_a[v]) + turned_x : turned_x);
                b[v] = gd_store<T>(add ? gd_load(old_b[v]) + turned_y : turned_y);
            }
            store_pairs(out + at, a, b, first, s);
        }
    }
}

static gd_status rotate(const gd_call *call, const gd_tensor *out, const gd_tensor *in, int way,
                        bool add)
{
    const gd_rope_args *args = (const gd_rope_args *)call->args;
    if (gd_tensor_count(in) == 0) return GD_OK;
    const rope_sizes s = {gd_tensor_dim(in, 0) * gd_tensor_dim(in, 1), gd_tensor_dim(in, 1),
                          gd_tensor_dim(in, 2), gd_tensor_dim(in, 3) / 2, args->interleaved};
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        using C = gd_compute<T>;
        const int64_t angles = s.positions * s.pairs;
        C *cosine = (C *)gd_call_scratch(call, (size_t)angles * sizeof(C));
        C *sine = (C *)gd_call_scratch(call, (size_t)angles * sizeof(C));
        if (!cosine || !sine) return gd_error_status(call->context);
        angle_kernel<<<gd_blocks(angles, threads), threads, 0, gd_stream(call)>>>(
            cosine, sine, s.positions, s.pairs, args->base, args->position);
        const int64_t groups =
            gd_cuda_divide_up(s.heads * gd_packs(s.pairs, gd_pack_size<T>), threads);
        const dim3 blocks(gd_blocks(s.rows, 1), (unsigned)(groups < 1024 ? groups : 1024));
        turn_kernel<<<blocks, threads, 0, gd_stream(call)>>>(gd_ptr<T>(out), gd_ptr<const T>(in),
                                                             (const C *)cosine, (const C *)sine, s,
                                                             (C)way, add);
        return gd_launched(call);
    });
}

extern "C" gd_status rope_forward_cuda(const gd_call *call)
{
    return rotate(call, call->output[0], call->input[0], 1, false);
}

extern "C" gd_status rope_backward_cuda(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return rotate(call, call->dinput[0], call->doutput[0], -1, call->accumulate[0]);
}
