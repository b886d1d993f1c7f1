// compare.cu - the CUDA kernels of the comparisons (compare.def), an element to a thread.
#include "cuda.cuh"

namespace gd_elementwise
{

template <class T, class Condition>
__global__ void compare_kernel(int32_t *y, const T *a, const T *b, gd_cuda_walk<2> walk,
                               Condition condition)
{
    gd_in_turn();
    GD_EACH(i, walk.count)
    {
        int64_t offset[2];
        walk.at(i, offset);
        y[i] = condition(gd_load(a[offset[0]]), gd_load(b[offset[1]]));
    }
}

template <class Condition, class T>
static gd_status compare(const gd_call *call)
{
    const gd_tensor *y = call->output[0];
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1])};
    const auto walk = gd_cuda_walk_over(gd_tensor_ndim(y), gd_tensor_shape(y), in);
    return gd_launch(call, gd_grid_for(walk.count), compare_kernel<T, Condition>,
                     gd_ptr<int32_t>(y), (const T *)in[0].data, (const T *)in[1].data, walk,
                     Condition());
}

#define COMPARE(name, formula, condition)          \
    struct name##_condition {                      \
        template <class V>                         \
        __device__ bool operator()(V a, V b) const \
        {                                          \
            return condition;                      \
        }                                          \
    };                                             \
    GD_CUDA_KERNEL_OF_T(name##_forward, compare<name##_condition, T>(call))
#include "elementwise/compare.def"

} // namespace gd_elementwise
