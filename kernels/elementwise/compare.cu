// compare.cu - the CUDA kernels of the comparisons (compare.def), by packs where operands allow it.
#include "map.cuh"

namespace gd_elementwise
{

// A thread has N neighbours.
template <class T, int N, class Condition>
__global__ void compare_kernel(int32_t *y, gd_cuda_walk<2> walk, gd_operands<T, T, 2, 1> in,
                               Condition condition)
{
    gd_in_turn();
    GD_EACH(i, walk.count / N)
    {
        int64_t offset[2];
        gd_compute<T> x[2][N], truth[N];
        walk.at(i * N, offset);
        in.load(offset, x);
#pragma unroll
        for (int j = 0; j < N; j++) truth[j] = condition(x[0][j], x[1][j]);
        gd_store_aligned(y + i * N, false, truth);
    }
}

template <class Condition, class T>
static gd_status compare(const gd_call *call)
{
    constexpr int N = gd_pack_size<T>;
    const gd_tensor *y = call->output[0];
    int32_t *const to = gd_ptr<int32_t>(y);
    const gd_layout in[] = {gd_cuda_layout(call->input[0]), gd_cuda_layout(call->input[1])};
    const auto walk = gd_cuda_walk_over(gd_tensor_ndim(y), gd_tensor_shape(y), in);
    const auto operands = gd_operands_of<T, T, 1>(in, walk, 0);
    const bool packs = gd_packs_fit(operands, walk, 0) && walk.shape[walk.ndim - 1] % N == 0;
    if (packs && gd_pack<int32_t, N>::aligned(to))
        return gd_launch(call, gd_grid_for(walk.count / N), compare_kernel<T, N, Condition>, to,
                         walk, operands, Condition());
    return gd_launch(call, gd_grid_for(walk.count), compare_kernel<T, 1, Condition>, to, walk,
                     operands, Condition());
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
