// backward_rows.cu - dx and the partial sums of dw for narrow rows (N up to 1024 or so).
//
// As many blocks as there are partial rows P, one to a multiprocessor, and every warp of them works
// alone: no barrier but its own, no waiting for another warp. Rows come in stages of a few
// (stage_rows) which lie side by side in memory, so that one bulk copy brings x and another dy; a
// warp keeps `stages` of them on their way in a ring. LANES lanes share a row. factor and the sums
// of dw for a lane's columns stay in registers from the first row to the last.
//
// Stage u goes to block u mod P, in it to warp (u / P) mod W: at any time all blocks read in one
// neighbourhood of memory, which DRAM likes (worth up to 9% against a range of rows per block).
#include "rms_norm/async.cuh"
#include "rms_norm/cuda.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

#if GD_HOPPER

// Starts the copies of stage `unit`: rows unit * stage_rows and on. Called by a whole warp.
template <class T>
__device__ inline void fetch_rows(const Backward &a, char *stage, uint64_t *full, int64_t unit,
                                  int stage_rows, int lane)
{
    const int64_t row = unit * stage_rows;
    const int rows = (int)min((int64_t)stage_rows, a.rows - row);
    const uint32_t row_bytes = (uint32_t)a.cols * sizeof(T);
    char *const dy_stage = stage + stage_rows * row_bytes;
    const T *x = (const T *)a.x + row * a.x_stride, *dy = (const T *)a.dy + row * a.dy_stride;
    if (lane == 0) barrier_expect(full, 2 * rows * row_bytes);
    __syncwarp();
    if (a.x_stride == a.cols && a.dy_stride == a.cols) {
        if (lane == 0) {
            bulk_copy(stage, x, rows * row_bytes, full);
            bulk_copy(dy_stage, dy, rows * row_bytes, full);
        }
    } else if (lane < rows) {
        bulk_copy(stage + lane * row_bytes, x + lane * a.x_stride, row_bytes, full);
        bulk_copy(dy_stage + lane * row_bytes, dy + lane * a.dy_stride, row_bytes, full);
    }
}

#endif

template <class T, int LANES, int CHUNKS>
__global__ void __launch_bounds__(CHUNKS *vector_size<T> > 32 ? 256 : 384)
    backward_rows(const __grid_constant__ Backward a, int stage_rows, int stages)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int AT_ONCE = 32 / LANES; // rows that a warp works on at a time
    extern __shared__ __align__(128) char shared[];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int sublane = lane % LANES;
    const int cols = (int)a.cols, vectors = cols / V;
    const int row_bytes = cols * (int)sizeof(T);
    uint64_t *const full = (uint64_t *)shared + warp * stages;
    char *const ring =
        shared + 1024 + (size_t)warp * stages * stage_rows * 2 * row_bytes; // barriers come first

    if (lane == 0) {
        for (int s = 0; s < stages; s++) barrier_init(&full[s], 1);
        barrier_init_done();
    }
    __syncwarp();

    const int64_t units = (a.rows + stage_rows - 1) / stage_rows;
    const int64_t first = blockIdx.x + (int64_t)gridDim.x * warp;
    const int64_t step = (int64_t)gridDim.x * warps;
    for (int s = 0; s < stages && first + s * step < units; s++)
        fetch_rows<T>(a, ring + (size_t)s * stage_rows * 2 * row_bytes, &full[s], first + s * step,
                      stage_rows, lane);

    float w[CHUNKS][V], dw[CHUNKS][V];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * LANES + sublane;
#pragma unroll
        for (int j = 0; j < V; j++) w[k][j] = dw[k][j] = 0;
        if (i < vectors)
            load_weight<V>(w[k], a.weight, a.weight_dtype, (int64_t)i * V, (float)a.offset, 1.0f);
    }
    const float per_col = 1.0f / (float)cols;
    const float *const rstd_of = (const float *)a.rstd;

    // Lane l holds rstd of row l of the stage, read one stage ahead.
    auto read_rstd = [&](int64_t unit) {
        const int64_t row = unit * stage_rows + lane;
        return lane < stage_rows && row < a.rows ? rstd_of[row] : 0.0f;
    };
    float rstds = first < units ? read_rstd(first) : 0.0f;
    int s = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int64_t unit = first; unit < units; unit += step) {
        const float rstds_next = unit + step < units ? read_rstd(unit + step) : 0.0f;
        char *const stage = ring + (size_t)s * stage_rows * 2 * row_bytes;
        barrier_wait(&full[s], parity);
#pragma unroll 1
        for (int r0 = 0; r0 < stage_rows; r0 += AT_ONCE) {
            const int r = r0 + lane / LANES;
            const int64_t row = unit * stage_rows + r;
            const bool here = r < stage_rows && row < a.rows;
            const uint4 *x = (const uint4 *)(stage + r * row_bytes);
            const uint4 *dy = (const uint4 *)(stage + (stage_rows + r) * row_bytes);
            const float rstd = __shfl_sync(~0u, rstds, r % 32);
            float dot = 0; // of h and xhat, h = dy * factor
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * LANES + sublane;
                if (here && i < vectors) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, x[i]), unpack<T>(dyv, dy[i]);
#pragma unroll
                    for (int j = 0; j < V; j++) dot = fmaf(dyv[j] * w[k][j], xv[j] * rstd, dot);
                }
            }
            const float mean = lane_sum<LANES>(dot) * per_col;
            uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride);
            // Reading the stage again is cheaper than the registers that x and dy would take.
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * LANES + sublane;
                if (here && i < vectors) {
                    float xv[V], dyv[V];
                    unpack<T>(xv, x[i]), unpack<T>(dyv, dy[i]);
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        const float xhat = xv[j] * rstd;
                        xv[j] = rstd * fmaf(-xhat, mean, dyv[j] * w[k][j]); // dx
                        dw[k][j] = fmaf(dyv[j], a.round ? rounded<T>(xhat) : xhat, dw[k][j]);
                    }
                    if (a.dx) __stcs(dx + i, pack<T>(xv));
                }
            }
        }
        __syncwarp(); // the whole warp has read the stage: refill it
        if (unit + stages * step < units)
            fetch_rows<T>(a, stage, &full[s], unit + stages * step, stage_rows, lane);
        rstds = rstds_next;
        if (++s == stages) s = 0, parity ^= 1;
    }
    let_next_start();
    if (!a.partial) return;

        // dw: over the groups of lanes, then over the warps, whose rings are empty by now.
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
#pragma unroll
            for (int apart = LANES; apart < 32; apart *= 2)
                dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], apart);
    __syncthreads();
    float *const sums = (float *)(shared + 1024); // [warps, cols]
    if (lane < LANES)
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * LANES + sublane;
            if (i < vectors)
#pragma unroll
                for (int j = 0; j < V; j += 4)
                    *(float4 *)(sums + warp * cols + i * V + j) =
                        make_float4(dw[k][j], dw[k][j + 1], dw[k][j + 2], dw[k][j + 3]);
        }
    __syncthreads();
    float *const partial = (float *)a.partial + (int64_t)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < warps; k++) sum += sums[k * cols + i];
        partial[i] = sum;
    }
#endif
}

template <class T, int LANES, int CHUNKS>
static cudaError_t launch_rows(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    const size_t row = (size_t)a.cols * sizeof(T);
    const size_t ring = (size_t)(p.threads / 32) * (size_t)(p.stages * p.stage_rows) * 2 * row;
    const size_t sums = (size_t)(p.threads / 32) * (size_t)a.cols * sizeof(float);
    return launch_with(backward_rows<T, LANES, CHUNKS>, dim3((unsigned)p.partials),
                       dim3((unsigned)p.threads), 1024 + (ring > sums ? ring : sums), 1, false,
                       stream, a, p.stage_rows, p.stages);
}

template <class T>
static cudaError_t launch_of(const Backward &a, const BackwardPlan &p, cudaStream_t stream)
{
    if (p.lanes == 8 && p.chunks == 2) return launch_rows<T, 8, 2>(a, p, stream);
    if (p.lanes == 8 && p.chunks == 4) return launch_rows<T, 8, 4>(a, p, stream);
    if (p.lanes == 16 && p.chunks == 4) return launch_rows<T, 16, 4>(a, p, stream);
    if (p.lanes == 32 && p.chunks == 3) return launch_rows<T, 32, 3>(a, p, stream);
    if (p.lanes == 32 && p.chunks == 4) return launch_rows<T, 32, 4>(a, p, stream);
    if (p.lanes == 32 && p.chunks == 6) return launch_rows<T, 32, 6>(a, p, stream);
    return launch_rows<T, 32, 8>(a, p, stream);
}

cudaError_t launch_backward_rows(const Backward &a, const BackwardPlan &p, gd_dtype dtype,
                                 cudaStream_t stream)
{
    if (dtype == GD_FLOAT32) return launch_of<float>(a, p, stream);
    if (dtype == GD_BFLOAT16) return launch_of<__nv_bfloat16>(a, p, stream);
    return launch_of<__half>(a, p, stream);
}

} // namespace gd_rms
