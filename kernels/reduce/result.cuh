// result.cuh - the shape of a reduction's result, and functions of elements that several ops need.
//
// As in reduce_cpu.c, `result` stands for anything of the shape of y with the reduced axes kept at
// size 1: over the shape of x it is broadcast along them. Forward reduces (reduce.cuh), backward
// repeats (map.cuh).
#ifndef GD_REDUCE_RESULT_CUH
#define GD_REDUCE_RESULT_CUH

#include "reduce/formula.h"
#include "reduce/reduce.cuh"
#include "reduce/reduce.h"

namespace gd_reductions
{

// The shape and packed strides of a result, and n, the number of elements of x behind each.
struct result_layout {
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
    int64_t count, n;

    gd_layout of(const void *data) const
    {
        return {(void *)data, GD_FLOAT32, ndim, shape, strides};
    }
};

static inline result_layout layout_of_result(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    result_layout layout = {};
    layout.ndim = gd_tensor_ndim(x);
    layout.count = layout.n = 1;
    const unsigned reduced = gd_reduced_axes((const gd_reduce_args *)call->args, layout.ndim);
    for (int d = layout.ndim - 1; d >= 0; d--) {
        const int64_t size = gd_tensor_shape(x)[d];
        layout.shape[d] = reduced >> d & 1 ? 1 : size;
        layout.strides[d] = layout.count ? layout.count : 1;
        layout.count *= layout.shape[d];
        layout.n *= reduced >> d & 1 ? size : 1;
    }
    return layout;
}

GD_MAP_FUNCTION(absolute, fabs(x), REAL x)

// The number from 0.5 to 1 of x, if that is finite.
template <class V>
__device__ inline V number_of(V x, int *exponent)
{
    *exponent = 0;
    return isfinite(x) ? frexp(x, exponent) : x;
}

} // namespace gd_reductions

#endif
