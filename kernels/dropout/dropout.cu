// dropout.cu - the CUDA kernel of dropout, forward and backward (dropout_cpu.c says why one is
// enough).
#include "dropout/dropout.h"
#include "pack.cuh"
#include "random/philox.cuh"

namespace gd_dropout_cuda
{

constexpr int threads = 256;
template <class T>
constexpr int elements = sizeof(T) == 2 ? 8 : 4; // of a thread

// out[i] (+)= in[i] * scale where word `drawn` + i of the random stream keeps it, else 0. A thread
// has at least 16 bytes, and at least four elements, as many as a Philox block has words.
template <class T>
__global__ void __launch_bounds__(threads)
    dropout_kernel(T *out, bool add, const T *in, int64_t n, gd_compute<T> scale,
                   uint64_t threshold, gd_random_place drawn)
{
    constexpr int N = elements<T>;
    const gd_random_place place = drawn.here();
    GD_EACH(pack, gd_packs(n, N))
    {
        uint32_t words[N / 4][4] = {};
        T x[N], y[N] = {};
        gd_pack_load(x, in, N * pack, n);
        if (add) gd_pack_load(y, out, N * pack, n);
            // p = 0 drops nothing and draws nothing
#pragma unroll
        for (int w = 0; threshold && w < N / 4; w++)
            gd_philox_four(place.seed, 0, place.offset + (uint64_t)(N * pack + 4 * w), words[w]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            /* [dx] */
            const gd_compute<T> kept = words[j / 4][j % 4] < threshold ? 0 : gd_load(x[j]) * scale;
            y[j] = gd_store<T>(add ? gd_load(y[j]) + kept : kept);
        }
        gd_pack_store(out, y, N * pack, n);
    }
}

static gd_status apply_mask(const gd_call *call, const gd_tensor *out, const gd_tensor *in,
                            bool add)
{
    const int64_t n = gd_tensor_count(out);
    if (n == 0) return GD_OK;
    const double p = ((const gd_dropout_args *)call->args)->p;
    return gd_by_storage(call, [&](auto zero) {
        using T = decltype(zero);
        dropout_kernel<<<gd_blocks(n, elements<T> * threads), threads, 0, gd_stream(call)>>>(
            gd_ptr<T>(out), add, (const T *)gd_ptr<T>(in), n, (gd_compute<T>)(1 / (1 - p)),
            (uint64_t)(p * 4294967296.0), gd_random_place_of(call));
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
