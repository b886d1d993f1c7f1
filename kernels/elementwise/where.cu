// where.cu - the CUDA kernels of where.
#include "reduce/reduce.cuh"

namespace gd_elementwise
{

struct choose {
    template <class V>
    __device__ V operator()(V condition, V a, V b) const
    {
        return condition != 0 ? a : b;
    }
};

// The part of dy that goes to a (wanted: true) or to b (false).
struct part {
    bool wanted;

    template <class V>
    __device__ V operator()(V condition, V dy) const
    {
        return (condition != 0) == wanted ? dy : 0; // as a call, in 4 registers more
    }
};

// The gradient of a (input 1) or b (input 2); summed over the axes along which it was broadcast.
static gd_status operand_backward(const gd_call *call, int k)
{
    if (!call->dinput[k]) return GD_OK;
    const part chosen = {k == 1};
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->doutput[0])};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        return gd_cuda_broadcast_gradient<decltype(zero), int32_t>(call, k, in, chosen);
    });
}

} // namespace gd_elementwise

extern "C" gd_status where_forward_cuda(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1]),
                            gd_cuda_layout(call->input[2])};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        return gd_map<T, int32_t>(call, gd_ptr<T>(call->output[0]), false, call->output[0], in,
                                  gd_elementwise::choose());
    });
}

extern "C" gd_status where_backward_cuda(const gd_call *call)
{
    const gd_status status = gd_elementwise::operand_backward(call, 1);
    return status ? status : gd_elementwise::operand_backward(call, 2);
}
