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
    __shared__ Group sums[8][32]; // of warps
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
    for (int apart = lanes; apart < 32; apart *= 2)
#pragma unroll
        for (int j = 0; j < V; j++) total.sum[j] += __shfl_xor_sync(~0u, total.sum[j], apart);
    if ((int)threadIdx.x % 32 < lanes) sums[threadIdx.x / 32][lane] = total;
    __syncthreads();

    const int64_t col = (int64_t)blockIdx.x * lanes * V + threadIdx.x;
    if ((int)threadIdx.x >= lanes * V || col >= cols) return;
    A sum = 0;
    for (int i = 0; i < 8; i++) sum += sums[i][threadIdx.x / V].sum[threadIdx.x % V];
    const A value[] = {sum};
    put(dweight, dtype, col, cols, accumulate, value);
}

cudaError_t sum_partials(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                         bool partial_is_double, int64_t partials, int64_t cols,
                         cudaStream_t stream)
{
    const bool four = !partial_is_double && cols % 4 == 0;
    int lanes = 32;
    while (lanes > 8 && partials > 256 / lanes * AT_ONCE) lanes /= 2;
    const Shape shape = {ceil_div(cols, lanes * (four ? 4 : 1)), 256};
    if (partial_is_double)
        return launch<dweight_kernel<double, 1>>(shape, stream, dweight, dtype, accumulate,
                                                 (const double *)partial, partials, cols, lanes);
    if (four)
        return launch<dweight_kernel<float, 4>>(shape, stream, dweight, dtype, accumulate,
                                                (const float *)partial, partials, cols, lanes);
    return launch<dweight_kernel<float, 1>>(shape, stream, dweight, dtype, accumulate,
                                            (const float *)partial, partials, cols, lanes);
}

} // namespace gd_rms
