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
    const gd_tensor *dx = call->dinput[k], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    const part chosen = {k == 1};
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(dy)};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        T *out = gd_ptr<T>(dx);
        if (gd_tensor_count(dx) == gd_tensor_count(dy))
            return gd_map<T, int32_t>(call, out, call->accumulate[k], dy, in, chosen);
        const gd_sum_of<gd_compute<T>, part> sum = {chosen};
        return gd_cuda_reduce<T, int32_t>(call, out, call->accumulate[k], gd_cuda_layout(dx), dy,
                                          in, sum);
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
