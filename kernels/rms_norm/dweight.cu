// dweight.cu - the P partial rows of dw (or db) to dw: summed in a fixed order, added to what is
// there if asked, rounded once to the dtype of dw.
//
// The partials were written a moment ago and lie in L2, and what counts is the wait for them: once,
// if all loads of a thread are on their way together. A block has LANES threads side by side, V
// columns each, and 256 / LANES rows of threads; row y takes partial rows y, y + Y, ..., AT_ONCE of
// them at a time; then the Y sums are added, within warps by shuffles. There are as many lanes as
// leave a thread AT_ONCE loads or fewer: the fewer blocks, the sooner the next kernel's can start.
#include "rms_norm/async.cuh"
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

constexpr int AT_ONCE = 9; // 264 partial rows, the most of any plan, over 32 rows of threads

template <class A, int V>
struct alignas(V * sizeof(A)) Columns {
    A sum[V];
};

template <class A, int V, int LANES>
__global__ void __launch_bounds__(256, 4)
    dweight_kernel(void *dweight, gd_dtype dtype, bool accumulate, const A *partial,
                   int64_t partials, int64_t cols)
{
    using Group = Columns<A, V>;
    constexpr int ROWS = 256 / LANES;
    constexpr int SHARE = LANES < 32 ? 32 : LANES; // threads that leave one sum a column
    static_assert(LANES * V <= 256);
    __shared__ Group sums[256 / SHARE][LANES];
    const int member = threadIdx.x % SHARE, row = threadIdx.x / LANES;
    const int64_t group = (int64_t)blockIdx.x * LANES + threadIdx.x % LANES;
    const int64_t groups = cols / V, step = ROWS * groups;
    const Group *next = (const Group *)partial + row * groups + group;
    let_next_start();
    wait_for_previous();
    Group total = {};
#pragma unroll 1
    for (int p = row; group < groups && p < (int)partials; p += AT_ONCE * ROWS) {
        Group part[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            part[k] = {};
            if (p + k * ROWS < (int)partials) part[k] = next[k * step];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int j = 0; j < V; j++) total.sum[j] += part[k].sum[j];
        next += AT_ONCE * step;
    }
#pragma unroll
    for (int j = 0; j < V; j++)
#pragma unroll
        for (int apart = LANES; apart < 32; apart *= 2)
            total.sum[j] += __shfl_xor_sync(~0u, total.sum[j], apart);
    if (member < LANES) sums[threadIdx.x / SHARE][member] = total;
    __syncthreads();

    const int64_t col = (int64_t)blockIdx.x * LANES * V + threadIdx.x;
    if (threadIdx.x >= LANES * V || col >= cols) return;
    A sum = 0;
    for (int i = 0; i < 256 / SHARE; i++) sum += sums[i][threadIdx.x / V].sum[threadIdx.x % V];
    if (accumulate) sum += read_as<A>(dweight, dtype, col);
    write_as<A>(dweight, dtype, col, sum);
}

template <class A, int V, int LANES>
static cudaError_t add_sum(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                           int64_t partials, int64_t cols, bool early, Launches *to)
{
    return add_launch(dweight_kernel<A, V, LANES>, dim3((unsigned)ceil_div(cols, LANES * V)),
                      dim3(256), 0, 1, early, to, dweight, dtype, accumulate, (const A *)partial,
                      partials, cols);
}

template <class A, int V>
static cudaError_t add_sum_of(void *dweight, gd_dtype dtype, bool accumulate, const void *partial,
                              int64_t partials, int64_t cols, bool early, Launches *to)
{
    auto sum = add_sum<A, V, 8>;
    if (partials <= 4 * AT_ONCE)
        sum = add_sum<A, V, 64>;
    else if (partials <= 8 * AT_ONCE)
        sum = add_sum<A, V, 32>;
    else if (partials <= 16 * AT_ONCE)
        sum = add_sum<A, V, 16>;
    return sum(dweight, dtype, accumulate, partial, partials, cols, early, to);
}

cudaError_t add_dweight(void *dweight, gd_dtype dweight_dtype, bool accumulate, const void *partial,
                        bool partial_is_double, int64_t partials, int64_t cols, bool early,
                        Launches *to)
{
    auto sum = add_sum_of<float, 1>;
    if (partial_is_double)
        sum = add_sum_of<double, 1>;
    else if (cols % 4 == 0)
        sum = add_sum_of<float, 4>;
    return sum(dweight, dweight_dtype, accumulate, partial, partials, cols, early, to);
}

} // namespace gd_rms
