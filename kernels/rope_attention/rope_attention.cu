// rope_attention.cu - rope_attention on a GPU: the forward saves the angles, so that attention's
// kernels can turn the gradients back before they store them.
#include "rope_attention/rope_attention.h"
#include "attention/tensor_cores.h"
#include "cuda.cuh"

extern "C" gd_status rope_attention_forward_cuda(const gd_call *call)
{
    rope_attention_calls calls;
    if (rope_attention_open(call, &calls)) return gd_error_status(call->context);
    float *angles = gd_ptr<float>(call->save[SAVE_ANGLES]);
    const gd_status status = rope_forward_keep_angles(&calls.rope, angles);
    return status ? status : attention_forward_cuda(&calls.attention);
}

// dq and dk, turned back, and dv, straight into dqkv, if attention's kernels for this call can do
// that.
extern "C" gd_status rope_attention_backward_cuda(const gd_call *call)
{
    rope_attention_calls calls;
    if (rope_attention_open(call, &calls)) return gd_error_status(call->context);
    const int64_t D = gd_tensor_dim(call->input[0], 3);
    const bool whole = D == 32 || D == 64 || D == 128 || D == 256;
    const attention_tensor_cores *fast = attention_tensor_cores_for(&calls.attention);
    if (!fast || !whole || !call->save[SAVE_ANGLES] || !call->doutput[0])
        return rope_attention_backward_in_two(call, &calls);
    for (int i = 0; i < 3; i++) {
        calls.dpart[i] = call->dinput[0];
        calls.accumulate[i] = call->accumulate[0];
    }
    const float *angles = gd_ptr<float>(call->save[SAVE_ANGLES]);
    return fast->backward(&calls.attention, angles);
}
