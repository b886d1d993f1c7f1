// attention_hopper.cu - the 16-bit kernels with Hopper's instructions, and those for any tensor
// core where TMA cannot load a tensor.
#include "attention/attention_backward_hopper.cuh"
#include "attention/attention_forward_hopper.cuh"
#include "attention/tensor_cores.h"

using namespace attention_mma;

static const attention_tensor_cores &anywhere(gd_mma::bf16)
{
    return attention_bf16;
}
static const attention_tensor_cores &anywhere(gd_mma::f16)
{
    return attention_f16;
}

template <class F>
static gd_status forward_or_other(const gd_call *call)
{
    forward_pass<typename F::stored> f = {};
    gd_status status = open_forward(call, &f);
    if (status) return status;
    const bool narrow = f.z.D <= 64 && f.z.E <= 64;
    if (narrow ? hopper_forward<F, 64>(call, f, &status)
               : hopper_forward<F, 128>(call, f, &status)) {
        return status;
    }
    return anywhere(F()).forward(call);
}

template <class F>
static gd_status backward_or_other(const gd_call *call, const float *angles)
{
    backward_pass<typename F::stored> p = {};
    gd_status status = open_backward(call, angles, &p);
    if (status) return status;
    const bool narrow = p.z.D <= 64 && p.z.E <= 64;
    if (narrow ? hopper_backward<F, 64>(call, p, &status)
               : hopper_backward<F, 128>(call, p, &status)) {
        return status;
    }
    return anywhere(F()).backward(call, angles);
}

const attention_tensor_cores attention_bf16_hopper = {forward_or_other<gd_mma::bf16>,
                                                      backward_or_other<gd_mma::bf16>, nullptr};
const attention_tensor_cores attention_f16_hopper = {forward_or_other<gd_mma::f16>,
                                                     backward_or_other<gd_mma::f16>, nullptr};
