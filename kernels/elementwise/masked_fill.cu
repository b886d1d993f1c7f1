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
template <class T>
static gd_status fill(const gd_call *call, const gd_tensor *out, bool add, const gd_tensor *from,
                      double value)
{
    if (!out) return GD_OK;
    const gd_layout in[] = {gd_cuda_layout(call->input[1]), gd_cuda_layout(from)};
    const filled<gd_compute<T>> f = {(gd_compute<T>)value};
    return gd_map<T, int32_t>(call, gd_ptr<T>(out), add, out, in, f);
}

GD_CUDA_KERNEL_OF_T(masked_fill_forward, fill<T>(call, call->output[0], false, call->input[0],
                                                 *(const double *)call->args))
GD_CUDA_KERNEL_OF_T(masked_fill_backward,
                    fill<T>(call, call->dinput[0], call->accumulate[0], call->doutput[0], 0))

} // namespace gd_elementwise
