// dweight.cu - adds the P partial rows of dw (or db) to dw: in a fixed order, added to the previous
// value if requested, rounded once to the dtype of dw.
//
// The partials were written just before and are in L2, so latency dominates; it is paid only once
// if all loads of a thread are in flight together. A block has `lanes` threads side by side, V
// columns each, and Y = 256 / lanes rows of threads. Row y takes partial rows y, y + Y, ...,
// AT_ONCE of them at a time; then the Y sums are added, within warps by shuffles. `lanes` is the
// largest count that leaves a thread AT_ONCE loads or fewer: with fewer blocks, those of the next
// kernel can start sooner.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

constexpr int AT_ONCE = 9;

template <class A, int V>
struct alignas(V * sizeof(A)) Columns {
    A sum[V];
};

template <class A, int V>
__global__ void __launch_bounds__(256, 4)
    dweight_kernel(void *dweight, gd_dtype dtype, bool accumulate, const A *partial,
                   int64_t partials, int64_t cols, int lanes)
{
    using Group = Columns<A, V>;
    const int lane = (int)threadIdx.x % lanes, row = (int)threadIdx.x / lanes, rows = 256 / lanes;
    const int64_t group = (int64_t)blockIdx.x * lanes + lane;
    const int64_t groups = cols / V, step = rows * groups;
    const Group *next = (const Group *)partial + row * groups + group;
    let_next_start();
    wait_for_previous();
    Group total = {};
#pragma unroll 1
    for (int64_t p = row; group < groups && p < partials; p += AT_ONCE * rows) {
        Group part[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            part[k] = {};
            if (p + k * rows < partials) part[k] = next[k * step];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int j = 0; j < V; j++) total.sum[j] += part[k].sum[j]; /* [dw sum] */
        next += AT_ONCE * step;
    }
    finish_dweight<32>(total.sum, lanes, dweight, dtype, accumulate, cols);
}

// Heads that share a weight multiply the number of partial rows.
cudaError_t sum_partials(const Backward &a, bool of_bias, int64_t partials, cudaStream_t stream)
{
    const int64_t shared = a.weight_per_head ? 1 : a.heads, cols = a.heads * a.cols / shared;
    const bool four = !a.is_double && cols % 4 == 0;
    partials *= shared;
    int lanes = 32;
    while (lanes > 8 && partials > 256 / lanes * AT_ONCE) lanes /= 2;
    const auto run = [&](auto zero, auto columns) {
        using A = decltype(zero);
        constexpr int V = decltype(columns)::value;
        const Shape shape = {ceil_div(cols, lanes * V), 256};
        return launch<dweight_kernel<A, V>>(shape, stream, of_bias ? a.dbias : a.dweight,
                                            a.dweight_dtype,
                                            of_bias ? a.accumulate_dbias : a.accumulate_dweight,
                                            (const A *)a.workspace, partials, cols, lanes);
    };
    constexpr std::integral_constant<int, 1> one = {};
    if (a.is_double) return run(double(), one);
    return four ? run(float(), std::integral_constant<int, 4>()) : run(float(), one);
}

} // namespace gd_rms
