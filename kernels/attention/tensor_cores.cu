// tensor_cores.cu - which calls run on tensor cores.
#include "attention/attention_mma.cuh"
#include "attention/tensor_cores.h"
#include "cuda/device_cuda.h"
#include "cuda/device_limits.h"

using namespace attention_mma;

// The kernels for this dtype. NULL: none.
static const attention_tensor_cores *of_dtype(const gd_call *call, [[maybe_unused]] int64_t widest)
{
#ifdef GD_HAVE_HOPPER
    if (widest > 32 && widest <= 128 && gd_on_hopper()) {
        if (call->kernel_dtype == GD_BFLOAT16) return &attention_bf16_hopper;
        if (call->kernel_dtype == GD_FLOAT16) return &attention_f16_hopper;
    }
#endif
    switch (call->kernel_dtype) {
    case GD_BFLOAT16:
        return &attention_bf16;
    case GD_FLOAT16:
        return &attention_f16;
    case GD_FLOAT32:
        return gd_cuda_tf32(call->context) ? &attention_tf32 : &attention_tf32x3;
    default:
        return nullptr;
    }
}

const attention_tensor_cores *attention_tensor_cores_for(const gd_call *call)
{
    const gd_cuda_limits limits = gd_cuda_device_limits();
    const attention_sizes z = attention_sizes_of(call);
    const int64_t widest = z.D > z.E ? z.D : z.E, longest = z.T > z.S ? z.T : z.S;
    if (call->input[3] || ((const attention_args *)call->args)->window) return nullptr;
    if (z.D == 0 || z.E == 0 || widest > most_columns || longest > most_positions ||
        z.B * z.H * (longest / 16 + 1) > most_positions || limits.code < 80) {
        return nullptr;
    }
    const attention_tensor_cores *chosen = of_dtype(call, widest);
    const bool fits =
        chosen && (!chosen->shared || chosen->shared(widest) <= (size_t)limits.block_shared);
    return fits ? chosen : nullptr;
}
