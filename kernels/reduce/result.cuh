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

struct result : result_layout {
    explicit result(const gd_call *call) : result_layout(layout_of_result(call)) {}

    gd_layout of(const void *data) const
    {
        return {(void *)data, GD_FLOAT32, ndim, shape, strides};
    }
};

// y = the reduction of the input alone.
template <class T, class Out, class Reduction>
static gd_status reduce(const gd_call *call, Out *y, Reduction reduction)
{
    const gd_layout in[] = {gd_cuda_layout(call->input[0])};
    return gd_cuda_reduce<T>(call, y, false, result(call).of(nullptr), call->input[0], in,
                             reduction);
}

GD_MAP_FUNCTION(absolute, fabs(x), REAL x)
GD_MAP_FUNCTION(is_not_zero, x == 0 ? 0 : 1, REAL x)

// The largest |x|, or the smallest.
template <class V>
struct extreme_size {
    absolute term;
    bool smallest;

    __device__ V identity() const
    {
        return smallest ? (V)INFINITY : 0;
    }
    __device__ V combine(V a, V b) const
    {
        return smallest ? -gd_larger()(-a, -b) : gd_larger()(a, b);
    }
    __device__ V result(V size, int64_t) const
    {
        return size;
    }
};

} // namespace gd_reductions

#endif
