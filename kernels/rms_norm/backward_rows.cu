// backward_rows.cu - dx and the partial sums of dw for rows that a block can hold.
//
// As many blocks as there are partial rows P, one or two to a multiprocessor. In each work crews,
// each alone with its own rows and its own ring of stages in shared memory: a warp whose lanes
// share a row by 8, 16 or 32, or several warps that share one, so many that a thread has two
// vectors of it. Rows come in stages of a few (stage_rows) that lie side by side in memory, so that
// one bulk copy brings x and another dy; `stages` of them are on their way. A row goes from its
// stage to registers once; when all of the crew have it, the stage is sent for again. factor and
// the sums of dw for a thread's columns stay in registers from the first row to the last.
//
// A crew of several warps meets once a row, to add up the row's sum, in two areas used in turn: who
// writes to an area again has passed the barrier of the row between, which all came to after they
// had read it. The same barrier says that the stage has been read.
//
// Stage u goes to block u mod P, in it to crew (u / P) mod crews: at any time all blocks read in
// one neighbourhood of memory, which DRAM likes (worth up to 9% against a range of rows per block).
//
// Before a crew may read what the kernel ahead has written, it has its first stages brought to L2.
#include "rms_norm/async.cuh"
#include "rms_norm/plan.cuh"
#include "rms_norm/launch.cuh"
#include "rms_norm/pack.cuh"

namespace gd_rms
{

struct CrewsShared {
    uint64_t full[MOST_CREW_STAGES]; // [crews, stages]: a stage is there
    uint64_t drained, gathered;      // at the end: all rings are empty, all crews' sums are there
    float sums[2][32];               // [2, warps]
};
static_assert(sizeof(CrewsShared) <= ROWS_RING_AT);

constexpr int CHUNKS = 2; // vectors of a row that a thread has: of x, dy, factor and dw

#if GD_HOPPER

// Starts the copies of x or of dy for stage `unit`, rows unit * stage_rows and on. Called by a
// whole warp. One lane at work holds up its warp, and so the crew: where there are two warps, each
// takes one of the two.
template <class T>
__device__ inline void fetch_rows(const Backward &a, uint32_t stage, uint32_t full, int unit,
                                  int stage_rows, int lane, bool is_dy)
{
    const int64_t row = (int64_t)unit * stage_rows, stride = is_dy ? a.dy_stride : a.x_stride;
    const int rows = (int)min((int64_t)stage_rows, a.rows - row);
    const uint32_t row_bytes = (uint32_t)a.cols * sizeof(T);
    const T *const from = (const T *)(is_dy ? a.dy : a.x) + row * stride;
    const bool packed = rows == 1 || stride == a.cols;
    if (lane >= (packed ? 1 : rows)) return;
    if (lane == 0 && !is_dy) barrier_expect(full, 2 * rows * row_bytes);
    bulk_copy(stage + (is_dy ? stage_rows : 0) * row_bytes + lane * row_bytes, from + lane * stride,
              packed ? rows * row_bytes : row_bytes, full, a.keep);
}

// Brings stage `unit` to L2. Called by a whole warp.
template <class T>
__device__ inline void prefetch_rows(const Backward &a, int unit, int stage_rows, int lane)
{
    const int64_t row = (int64_t)unit * stage_rows + lane;
    const uint32_t row_bytes = (uint32_t)a.cols * sizeof(T);
    if (lane >= stage_rows || row >= a.rows) return;
    bulk_prefetch((const T *)a.x + row * a.x_stride, row_bytes, a.keep);
    bulk_prefetch((const T *)a.dy + row * a.dy_stride, row_bytes, a.keep);
    line_prefetch((const float *)a.rstd + row);
}

#endif

// GROUP threads share a row. ROUND: xhat is rounded to T before it goes into dw, as it was before
// the weight; in 16 bits this kernel is near the limit of its arithmetic, so those who do not want
// it have a kernel of their own. GUARD changes no result: see below.
template <class T, int GROUP, bool GUARD, bool ROUND>
__global__ void __maxnreg__(crew_registers(sizeof(T)))
    backward_rows(const __grid_constant__ Backward a, int units, int stage_rows, int stages)
{
#if GD_HOPPER
    constexpr int V = vector_size<T>;
    constexpr int CREW = GROUP < 32 ? 32 : GROUP; // threads
    constexpr int AT_ONCE = CREW / GROUP;         // rows that a crew works on at a time
    constexpr int WARPS = CREW / 32;              // of a crew
    constexpr int LANES = GROUP < 32 ? GROUP : 32;
    // With g = dy rstd, dx = g factor - x rstd^2 mean and dw += g x: one product fewer for each
    // number, which counts (1.5%) where threads have 16. rstd^2 is in range where sum(x^2) was.
    constexpr bool FOLD = !ROUND && V == 8;
    extern __shared__ __align__(128) char shared[];
    const int crews = blockDim.x / CREW, crew = threadIdx.x / CREW, member = threadIdx.x % CREW;
    const int warp = member / 32, lane = member % 32, at = member % GROUP;
    const int cols = (int)a.cols, vectors = cols / V;
    const int row_bytes = cols * (int)sizeof(T), stage_bytes = stage_rows * 2 * row_bytes;
    CrewsShared &sh = *(CrewsShared *)shared;
    char *const ring = shared + ROWS_RING_AT + (size_t)crew * stages * stage_bytes;
    const uint32_t ring_at = shared_address(ring), full = shared_address(sh.full + crew * stages);
    const uint32_t drained = shared_address(&sh.drained), gathered = shared_address(&sh.gathered);

    const int first = (int)(blockIdx.x + gridDim.x * crew), step = (int)gridDim.x * crews;
    let_next_start();
    for (int s = 0; warp == 0 && s < stages && first + s * step < units; s++)
        prefetch_rows<T>(a, first + s * step, stage_rows, lane);
    if (warp == 0 && lane == 0) {
        for (int s = 0; s < stages; s++) barrier_init(full + 8 * s, 1);
        if (crew == 0) {
            barrier_init(drained, (int)blockDim.x);
            barrier_init(gathered, (int)blockDim.x);
        }
        barrier_init_done();
    }
    wait_for_previous();
    auto fetch = [&](int s, int unit) {
        const uint32_t to = ring_at + s * stage_bytes, barrier = full + 8 * s;
        if (warp < 2) fetch_rows<T>(a, to, barrier, unit, stage_rows, lane, warp == 1);
        if (WARPS == 1) fetch_rows<T>(a, to, barrier, unit, stage_rows, lane, true);
    };
    if (WARPS == 1)
        __syncwarp(); // the crew's barriers are there for all of it
    else
        __syncthreads();
    for (int s = 0; s < stages && first + s * step < units; s++) fetch(s, first + s * step);

    float w[CHUNKS][V], dw[CHUNKS][V];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int i = k * GROUP + at;
#pragma unroll
        for (int j = 0; j < V; j++) w[k][j] = dw[k][j] = 0;
        if (i < vectors)
            load_weight<V>(w[k], a.weight, a.weight_dtype, (int64_t)i * V, (float)a.offset, 1.0f);
    }
    if (WARPS == 1) __syncthreads(); // the block's, too
    const float per_col = 1.0f / (float)cols;
    const float *const rstd_of = (const float *)a.rstd;

    // Lane l holds rstd of row l of the stage, read one stage ahead. With GUARD, which asks what
    // read_rstd asks anyway, the compiler makes a branch of that load, without it a predicate.
    // Crews of up to 384 threads a block are up to 16% faster with the predicate, many of more
    // threads and those of the shortest rows up to 8% with the branch (plan.cu says which). Why,
    // the machine code does not show; perhaps it is by how far the blocks drift apart in memory.
    auto read_rstd = [&](int unit) {
        const int64_t row = (int64_t)unit * stage_rows + lane;
        return lane < stage_rows && row < a.rows ? rstd_of[row] : 0.0f;
    };
    float rstds = !GUARD || first < units ? read_rstd(first) : 0.0f;
    int s = 0, area = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int unit = first; unit < units; unit += step) {
        const float rstds_next = !GUARD || unit + step < units ? read_rstd(unit + step) : 0.0f;
        char *const stage = ring + s * stage_bytes;
        barrier_wait(full + 8 * s, parity);
#pragma unroll 1
        for (int r0 = 0; r0 < stage_rows; r0 += AT_ONCE) {
            const int r = r0 + member / GROUP;
            const int64_t row = (int64_t)unit * stage_rows + r;
            const bool here = r < stage_rows && row < a.rows;
            const uint4 *x = (const uint4 *)(stage + r * row_bytes);
            const uint4 *dy = (const uint4 *)(stage + (stage_rows + r) * row_bytes);
            const float rstd = __shfl_sync(~0u, rstds, r % 32);
            uint4 x_bits[CHUNKS], dy_bits[CHUNKS];
            float dot = 0; // of h and xhat, h = dy * factor
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * GROUP + at;
                x_bits[k] = dy_bits[k] = make_uint4(0, 0, 0, 0);
                if (here && i < vectors) x_bits[k] = x[i], dy_bits[k] = dy[i];
            }
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float xv[V], dyv[V];
                unpack<T>(xv, x_bits[k]), unpack<T>(dyv, dy_bits[k]);
#pragma unroll
                for (int j = 0; j < V; j++) dot = fmaf(dyv[j] * w[k][j], xv[j], dot);
            }
            dot = lane_sum<LANES>(dot) * rstd;
            if (WARPS > 1) {
                float *const sums = &sh.sums[area][crew * WARPS];
                if (lane == 0) sums[warp] = dot;
                named_barrier_sync(1 + crew, CREW);
                dot = 0;
#pragma unroll
                for (int i = 0; i < WARPS; i++) dot += sums[i];
                area ^= 1;
            } else {
                __syncwarp();
            }
            if (r0 + AT_ONCE >= stage_rows && unit + stages * step < units)
                fetch(s, unit + stages * step);
            const float mean = dot * per_col, fold = rstd * rstd * mean;
            uint4 *const dx = (uint4 *)((T *)a.dx + row * a.dx_stride);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * GROUP + at;
                forget(x_bits[k]), forget(dy_bits[k]);
                float xv[V], dyv[V];
                unpack<T>(xv, x_bits[k]), unpack<T>(dyv, dy_bits[k]);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (FOLD) {
                        const float g = dyv[j] * rstd;
                        dw[k][j] = fmaf(g, xv[j], dw[k][j]);
                        xv[j] = fmaf(g, w[k][j], -xv[j] * fold); // dx
                    } else {
                        const float xhat = xv[j] * rstd;
                        xv[j] = rstd * fmaf(-xhat, mean, dyv[j] * w[k][j]); // dx
                        dw[k][j] = fmaf(dyv[j], ROUND ? rounded<T>(xhat) : xhat, dw[k][j]);
                    }
                }
                if (a.dx && here && i < vectors) dx[i] = pack<T>(xv);
            }
        }
        rstds = rstds_next;
        if (++s == stages) s = 0, parity ^= 1;
    }
    if (!a.partial) return;

    // dw: over the groups of lanes, then over the crews, in the memory of the rings. The crews have
    // passed different numbers of barriers, at which compute-sanitizer's racecheck loses count: it
    // does see the order that these two give.
    float *const partial = (float *)a.partial + (int64_t)blockIdx.x * cols;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
#pragma unroll
            for (int apart = LANES; apart < 32; apart *= 2)
                dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], apart);
    float *const all = (float *)(shared + ROWS_RING_AT); // [crews, cols]
    auto put_sums = [&](float *sums) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * GROUP + at;
            if (member < GROUP && i < vectors)
#pragma unroll
                for (int j = 0; j < V; j += 4)
                    *(float4 *)(sums + i * V + j) =
                        make_float4(dw[k][j], dw[k][j + 1], dw[k][j + 2], dw[k][j + 3]);
        }
    };
    if (crews == 1) {
        put_sums(partial);
        return;
    }
    barrier_arrive(drained);
    barrier_wait(drained, 0);
    put_sums(all + crew * cols);
    barrier_arrive(gathered);
    barrier_wait(gathered, 0);
    for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
        float4 sum = *(const float4 *)(all + i);
        for (int k = 1; k < crews; k++) {
            const float4 more = *(const float4 *)(all + k * cols + i);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        *(float4 *)(partial + i) = sum;
    }
#endif
}

template <class T, int GROUP, bool GUARD = false>
static cudaError_t add_rows(const Backward &a, const BackwardPlan &p, Launches *to)
{
    constexpr int crew = GROUP < 32 ? 32 : GROUP;
    const int crews = p.threads / crew, most = 65536 / crew_registers(sizeof(T));
    if (p.threads % crew || p.threads > most || crews > MOST_CREWS ||
        crews * p.stages > MOST_CREW_STAGES || a.cols > CHUNKS * GROUP * vector_size<T>)
        return cudaErrorInvalidConfiguration;
    const size_t row = (size_t)a.cols * sizeof(T);
    const size_t ring = (size_t)crews * (size_t)(p.stages * p.stage_rows) * 2 * row;
    const size_t sums = crews > 1 ? (size_t)crews * (size_t)a.cols * sizeof(float) : 0;
    auto kernel = backward_rows<T, GROUP, GUARD, false>;
    if constexpr (sizeof(T) == 2) // in float32 there is nothing to round
        if (a.round) kernel = backward_rows<T, GROUP, GUARD, true>;
    return add_launch(kernel, dim3((unsigned)p.partials), dim3((unsigned)p.threads),
                      ROWS_RING_AT + (ring > sums ? ring : sums), 1, true, to, a,
                      (int)ceil_div(a.rows, p.stage_rows), p.stage_rows, p.stages);
}

template <class T>
static cudaError_t add_of(const Backward &a, const BackwardPlan &p, Launches *to)
{
    auto is = [&](int lanes, bool guard = false) { return p.lanes == lanes && p.guard == guard; };
    if (is(8)) return add_rows<T, 8>(a, p, to);
    if (is(16, true)) return add_rows<T, 16, true>(a, p, to);
    if (is(32, true)) return add_rows<T, 32, true>(a, p, to);
    if (is(64)) return add_rows<T, 64>(a, p, to);
    if (is(96, true)) return add_rows<T, 96, true>(a, p, to);
    if (is(128)) return add_rows<T, 128>(a, p, to);
    if (is(160, true)) return add_rows<T, 160, true>(a, p, to);
    if (is(192)) return add_rows<T, 192>(a, p, to);
    if (is(256, true)) return add_rows<T, 256, true>(a, p, to);
    if (is(320)) return add_rows<T, 320>(a, p, to);
    if (is(384)) return add_rows<T, 384>(a, p, to);
    if (is(512)) return add_rows<T, 512>(a, p, to);
    if constexpr (sizeof(T) == 4) {
        if (is(128, true)) return add_rows<T, 128, true>(a, p, to);
    } else {
        if (is(8, true)) return add_rows<T, 8, true>(a, p, to);
        if (is(96)) return add_rows<T, 96>(a, p, to);
        if (is(224)) return add_rows<T, 224>(a, p, to);
        if (is(448)) return add_rows<T, 448>(a, p, to);
    }
    return cudaErrorInvalidConfiguration;
}

cudaError_t add_backward_rows(const Backward &a, const BackwardPlan &p, gd_dtype dtype,
                              Launches *to)
{
    if (dtype == GD_FLOAT32) return add_of<float>(a, p, to);
    if (dtype == GD_BFLOAT16) return add_of<__nv_bfloat16>(a, p, to);
    return add_of<__half>(a, p, to);
}

} // namespace gd_rms
