// dropout.cu - the CUDA kernel of dropout, forward and backward (dropout_cpu.c says why one does).
#include <curand_kernel.h>

#include "dropout/dropout.h"
#include "map.cuh"

namespace gd_dropout_cuda
{

// Where the call is in the random stream, and below which word an element is dropped.
struct mask {
    uint64_t seed, offset, threshold;
};

// A thread has the four elements that one Philox block decides: word `offset` + i is element i's.
// `before`: words of the first block that come before the call's, and belong to no element.
template <class T>
__global__ void __launch_bounds__(GD_MAP_THREADS)
    dropout_kernel(T *out, bool add, const T *in, int64_t n, gd_compute<T> scale, mask drop,
                   int before, bool aligned)
{
    using V = gd_compute<T>;
    GD_EACH(block, (n + before + 3) / 4)
    {
        uint4 words = {0, 0, 0, 0};
        if (drop.threshold) { // p = 0 drops nothing and draws nothing
            curandStatePhilox4_32_10_t state;
            curand_init(drop.seed, 0, drop.offset - before + 4 * (uint64_t)block, &state);
            words = curand4(&state);
        }
        const uint32_t word[4] = {words.x, words.y, words.z, words.w};
        const int64_t first = 4 * block - before;
        V x[4];
        if (aligned && first + 4 <= n) {
            gd_load_pack(x, in + first);
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = word[j] < drop.threshold ? 0 : x[j] * scale;
            gd_store_pack(out + first, add, x);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t i = first + j;
                if (i < 0 || i >= n) continue;
                const V kept = word[j] < drop.threshold ? 0 : gd_load(in[i]) * scale;
                out[i] = gd_store<T>(add ? gd_load(out[i]) + kept : kept);
            }
        }
    }
}

static gd_status apply_mask(const gd_call *call, const gd_tensor *out, const gd_tensor *in,
                            bool add)
{
    const int64_t n = gd_tensor_count(out);
    if (n == 0) return GD_OK;
    const double p = ((const gd_dropout_args *)call->args)->p;
    const mask drop = {call->seed, call->random_offset, (uint64_t)(p * 4294967296.0)};
    const int before = (int)(drop.offset % 4);
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        T *to = gd_ptr<T>(out);
        const T *from = gd_ptr<T>(in);
        const bool aligned =
            before == 0 && gd_pack_aligned<T, 4>(to) && gd_pack_aligned<T, 4>(from);
        const gd_compute<T> scale = (gd_compute<T>)(1 / (1 - p));
        dropout_kernel<<<gd_blocks(n + before, 4 * GD_MAP_THREADS), GD_MAP_THREADS, 0,
                         gd_stream(call)>>>(to, add, from, n, scale, drop, before, aligned);
        return gd_launched(call);
    });
}

} // namespace gd_dropout_cuda

extern "C" gd_status dropout_forward_cuda(const gd_call *call)
{
    return gd_dropout_cuda::apply_mask(call, call->output[0], call->input[0], false);
}

// dx = dy keep / (1 - p)
extern "C" gd_status dropout_backward_cuda(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return gd_dropout_cuda::apply_mask(call, call->dinput[0], call->doutput[0],
                                       call->accumulate[0]);
}
