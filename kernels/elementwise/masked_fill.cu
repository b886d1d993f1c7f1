// masked_fill.cu - the CUDA kernels of masked_fill: each is map.cuh's.
#include "elementwise/functions.h"
#include "map.cuh"

namespace gd_elementwise
{

template <class REAL>
struct filled {
    REAL value;

    __device__ REAL operator()(REAL mask, REAL x) const
    {
        return masked(x, mask != 0, value);
    }
};

// out = (add ? out : 0) + (mask ? value : from)
static gd_status fill(const gd_call *call, const gd_tensor *out, bool add, const gd_tensor *from,
                      double value)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[1]), gd_cuda_layout(from)};
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const filled<gd_compute<T>> f = {(gd_compute<T>)value};
        return gd_map<T, int32_t>(call, gd_ptr<T>(out), add, out, in, f);
    });
}

} // namespace gd_elementwise

extern "C" gd_status masked_fill_forward_cuda(const gd_call *call)
{
    return gd_elementwise::fill(call, call->output[0], false, call->input[0],
                                *(const double *)call->args);
}

extern "C" gd_status masked_fill_backward_cuda(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return gd_elementwise::fill(call, call->dinput[0], call->accumulate[0], call->doutput[0], 0);
}
