// dropout.cu - the CUDA kernel of dropout, forward and backward (dropout_cpu.c says why one is
// enough).
#include "dropout/dropout.h"
#include "dropout/formula.h"
#include "pack.cuh"
#include "random/philox.cuh"

namespace gd_dropout_cuda
{

constexpr int elements = 8; // of a thread: as many as a Philox block has halves of words

// out[i] (+)= in[i] * scale where half i % 2 of word `drawn` + i / 2 of the random stream keeps it,
// else 0.
template <class T>
__global__ void __launch_bounds__(gd_threads)
    dropout_kernel(T *out, bool add, const T *in, int64_t n, gd_compute<T> scale,
                   uint32_t threshold, gd_random_place drawn)
{
    gd_in_turn();
    constexpr int N = elements;
    const gd_random_place place = drawn.here();
    GD_EACH(pack, gd_packs(n, N))
    {
        T x[N], y[N] = {};
        gd_load_guarded(x, in, N * pack, n);
        if (add) gd_load_guarded(y, out, N * pack, n);
        uint4 block = {};
        if (threshold) block = gd_philox_block(place.seed, 0, place.offset / 4 + (uint64_t)pack);
        const uint32_t words[N / 2] = {block.x, block.y, block.z, block.w};
#pragma unroll
        for (int j = 0; j < N; j++) {
            const uint32_t bits = words[j / 2] >> 16 * (j % 2) & 0xffff;
            const gd_compute<T> kept =
                dropout(gd_compute<T>(gd_load(x[j])), bits >= threshold, scale);
            y[j] = gd_store<T>(add ? gd_load(y[j]) + kept : kept);
        }
        gd_store_guarded(out, y, N * pack, n);
    }
}

template <class T>
static gd_status apply_mask(const gd_call *call, const gd_tensor *out, const gd_tensor *in,
                            bool add)
{
    if (!out) return GD_OK;
    const int64_t n = gd_tensor_count(out);
    const uint32_t threshold = gd_dropout_threshold(((const gd_dropout_args *)call->args)->p);
    return gd_launch(call, gd_grid_for(n, elements * gd_threads), dropout_kernel<T>, gd_ptr<T>(out),
                     add, (const T *)gd_ptr<T>(in), n, (gd_compute<T>)gd_dropout_scale(threshold),
                     threshold, gd_random_place_of(call));
}

GD_CUDA_KERNEL_OF_T(dropout_forward, apply_mask<T>(call, call->output[0], call->input[0], false))
GD_CUDA_KERNEL_OF_T(dropout_backward,
                    apply_mask<T>(call, call->dinput[0], call->doutput[0], call->accumulate[0]))

} // namespace gd_dropout_cuda
