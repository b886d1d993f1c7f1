// where.cu - the CUDA kernels of where.
#include "reduce/reduce.cuh"

namespace gd_elementwise
{

GD_MAP_FUNCTION(choose, condition != 0 ? a : b, REAL condition, REAL a, REAL b)

// The part of dy that goes to a (wanted: true) or to b (false).
struct part {
    bool wanted;

    template <class V>
    __device__ V operator()(V condition, V dy) const
    {
        return (condition != 0) == wanted ? dy : 0; // as a call, in 4 registers more
    }
};

template <class T>
static gd_status where_forward(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1]),
                            gd_cuda_layout(call->input[2])};
    return gd_map<T, int32_t>(call, gd_ptr<T>(call->output[0]), false, call->output[0], in,
                              choose());
}

// The gradients of a (input 1) and b (input 2), summed over the axes along which each
// was broadcast.
template <class T>
static gd_status where_backward(const gd_call *call)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->doutput[0])};
    gd_status status = GD_OK;
    for (int k = 1; k <= 2 && !status; k++)
        if (call->dinput[k])
            status = gd_cuda_broadcast_gradient<T, int32_t>(call, k, in, part{k == 1});
    return status;
}

GD_CUDA_KERNEL_OF_T(where_forward, where_forward<T>(call))
GD_CUDA_KERNEL_OF_T(where_backward, where_backward<T>(call))

} // namespace gd_elementwise
