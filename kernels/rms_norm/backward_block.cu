// backward_block.cu - dx and the partial sums of dw for rows that fit in a block.
//
// A block consists of teams, each with its own rows and its own pipeline in shared memory: one
// warp, in which 4, 8, 16 or 32 lanes share a row, or several warps that share one. A stage of the
// pipeline holds a few tokens (stage_tokens) of x, dy and dsum, each brought by one bulk copy where
// it is contiguous, and of rstd; `stages` of them are in flight. A row is read from its stage to
// registers once; when the whole team has read it, the copies of the next row are issued into that
// stage. factor and the sums of dw for a thread's columns stay in registers from the first row to
// the last, and the teams of a block add theirs at the end.
//
// With heads, each of which may have its own weights, a lane must get the same head every time: a
// warp takes as many adjacent heads of a token as it has groups of lanes (a slice), and iterates
// over the tokens. Without heads these groups take consecutive rows.
//
// A team of several warps has one barrier per row, for the row's sum. The warps' sums alternate
// between two areas: a warp that writes to an area again has passed the barrier of the row between,
// and all warps had read the area before that barrier. The same barrier tells that the stage has
// been read.
//
// Unit u, the tokens of one stage, goes to block u mod P, and there to team (u / P) mod teams: at
// any time all blocks read from the same region of memory, which DRAM serves faster (up to 9% over
// a contiguous range of rows per block).
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

constexpr int CHUNKS = 2; // packs of a row per thread

#if GD_HOPPER

// One input's part of a stage: `tokens` pieces of `bytes` bytes, from + token * stride. Called by a
// whole warp.
__device__ inline void fetch_tokens(uint32_t to, uint32_t full, const char *from, int64_t stride,
                                    int bytes, int tokens, int lane, uint64_t policy)
{
    const bool packed = tokens == 1 || stride == bytes;
    if (lane < (packed ? 1 : tokens))
        bulk_copy(to + lane * bytes, from + lane * stride, packed ? tokens * bytes : bytes, full,
                  policy);
}

// A thread's team, what it works on and its pipeline. WARP: a row is shared by lanes of one warp.
template <class S, class B, bool ADD, bool WARP>
struct Team {
    static constexpr int V = pack_size<S, B>;
    const Backward &a;
    const BlockPlan &p;
    char *const shared;

    // The thread's place: member of the team, lane of the warp; `at` among those that share a row.
    const int size = WARP ? 32 : p.threads_per_row, index = (int)threadIdx.x / size;
    const int member = (int)threadIdx.x % size, warp = member / 32, lane = member % 32;
    const int group = WARP ? lane / p.threads_per_row : 0;
    const int at = WARP ? lane % p.threads_per_row : member;

    // This block's heads, first_head to first_head + slice, and its place among those that have the
    // same.
    const int cols = (int)a.cols, packs = cols / V, heads = (int)a.heads;
    const bool by_head = WARP && heads > 1;
    const int slices = by_head ? p.slices : 1;
    const int first_head = by_head ? (int)blockIdx.x % slices * p.groups : 0;
    const int slice = by_head ? min(p.groups, heads - first_head) : 1;
    const int block = (int)blockIdx.x / slices, blocks = (int)gridDim.x / slices;
    const int tokens = (int)(by_head ? a.rows / heads : a.rows), width = slice * cols;
    const int units = (tokens + p.stage_tokens - 1) / p.stage_tokens;
    const int first = block + blocks * index, step = blocks * p.teams;
    // This thread's columns of the row or head that its group has.
    const int column = by_head ? group * cols : 0;
    const bool works = !by_head || group < slice;
    const int count = works ? (packs - at + p.threads_per_row - 1) / p.threads_per_row : 0;

    // A stage: [stage_tokens, width] of x, then of dy, then of dsum.
    const int x_bytes = width * (int)sizeof(S), dy_bytes = width * (int)sizeof(B);
    const int dy_at = p.stage_tokens * x_bytes, dsum_at = dy_at + p.stage_tokens * dy_bytes;
    const int stage_size = dsum_at + (ADD ? p.stage_tokens * x_bytes : 0);
    BlockShared &sh = *(BlockShared *)shared;
    char *const stages = shared + STAGES_AT + (size_t)index * p.stages * stage_size;
    float (*const rstds)[32] = sh.rstd + index * p.stages;
    const uint32_t stages_at = shared_address(stages), rstds_at = shared_address(rstds);
    const uint32_t full = shared_address(sh.full + index * p.stages);

    // The offset of this block's heads, and the bytes from token to token.
    const int64_t head_at = (int64_t)first_head * cols;
    const char *const x_from = (const char *)((const S *)a.x + head_at);
    const char *const dy_from = (const char *)((const B *)a.dy + head_at);
    const char *const dsum_from = (const char *)((const S *)a.dsum + head_at);
    const int64_t x_stride = a.x_stride * (int)sizeof(S);
    const int64_t dy_stride = a.dy_stride * (int)sizeof(B);
    const int64_t dsum_stride = a.dsum_stride * (int)sizeof(S);
    // Lane l copies the rstd of the stage's row l.
    const float *const rstd_from =
        (const float *)a.rstd + first_head + (by_head ? lane / slice * heads + lane % slice : lane);
    const uint64_t policy = load_policy(a.keep);

    // Stage s gets unit u. The first warp issues the copies of x and rstd, the second, if there is
    // one, the others: a single busy lane holds up its warp, and so the team.
    __device__ __forceinline__ void fetch(int s, int u) const
    {
        const int token = u * p.stage_tokens, there = min(p.stage_tokens, tokens - token);
        const uint32_t to = stages_at + s * stage_size, barrier = full + 8 * s;
        if (warp == 0) {
            if (lane == 0) barrier_expect(barrier, there * ((ADD ? 2 : 1) * x_bytes + dy_bytes));
            __syncwarp();
            if (lane < there * slice)
                copy_number(rstds_at + 4 * (32 * s + lane), rstd_from + (int64_t)token * heads);
            copy_arrive(barrier);
            fetch_tokens(to, barrier, x_from + token * x_stride, x_stride, x_bytes, there, lane,
                         policy);
        }
        if (warp == (WARP ? 0 : 1)) {
            fetch_tokens(to + dy_at, barrier, dy_from + token * dy_stride, dy_stride, dy_bytes,
                         there, lane, policy);
            if (ADD)
                fetch_tokens(to + dsum_at, barrier, dsum_from + token * dsum_stride, dsum_stride,
                             x_bytes, there, lane, policy);
        }
    }

    // Prepares the barriers and fills the pipeline. Before a team may read what the preceding
    // kernel writes, it prefetches its first stages to L2.
    __device__ __forceinline__ void start() const
    {
        let_next_start();
        for (int s = 0; warp == 0 && s < p.stages && first + s * step < units; s++) {
            const int token = (first + s * step) * p.stage_tokens + lane;
            if (lane >= p.stage_tokens || token >= tokens) continue;
            bulk_prefetch(x_from + token * x_stride, x_bytes);
            bulk_prefetch(dy_from + token * dy_stride, dy_bytes);
            if (ADD) bulk_prefetch(dsum_from + token * dsum_stride, x_bytes);
        }
        if (member == 0) {
            for (int s = 0; s < p.stages; s++) barrier_init(full + 8 * s, 1 + 32);
            if (index == 0) {
                barrier_init(shared_address(&sh.drained), (int)blockDim.x);
                barrier_init(shared_address(&sh.gathered), (int)blockDim.x);
            }
            barrier_init_done();
        }
        for (int i = (int)threadIdx.x; !WARP && i < 2 * MOST_TEAMS * 16; i += (int)blockDim.x)
            sh.sums[0][i] = 0; // sums of absent warps are added with the others
        __syncthreads();
        wait_for_previous();
        for (int s = 0; s < p.stages && first + s * step < units; s++) fetch(s, first + s * step);
    }

    // The sum over the threads of a row; then the whole team has read its stage.
    __device__ __forceinline__ float row_sum(float v, int area) const
    {
        v = gd_lane_sum(v, WARP ? p.threads_per_row : 32);
        if (WARP) {
            __syncwarp();
            return v;
        }
        float *const sums = &sh.sums[area][index * 16];
        if (lane == 0) sums[warp] = v;
        named_barrier_sync(1 + index, size);
        v = 0;
#pragma unroll 1
        for (int i = 0; i < size / 32; i += 4) {
            const float4 four = *(const float4 *)(sums + i);
            v += (four.x + four.y) + (four.z + four.w);
        }
        return v;
    }

    // The block's row of partial sums from dw of its threads: summed over the groups of lanes,
    // unless each has its own head, then over the teams, in the memory of the pipelines. Two
    // mbarriers instead of __syncthreads, because the teams have passed different numbers of named
    // barriers, of which compute-sanitizer's racecheck loses count.
    __device__ __forceinline__ void store_dweight(float (&dw)[CHUNKS][V]) const
    {
        for (int apart = p.threads_per_row; WARP && !by_head && apart < 32; apart *= 2)
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
#pragma unroll
                for (int j = 0; j < V; j++) dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], apart);
        float *const partial =
            (float *)a.workspace + ((int64_t)block * heads + first_head) * cols; // [width]
        float *const all = (float *)(shared + STAGES_AT);                        // [teams, width]
        const auto put_sums = [&](float *sums) {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
                if (k < count && (by_head || group == 0))
                    store_sums(sums + column, k * p.threads_per_row + at, dw[k]);
        };
        if (p.teams == 1) return put_sums(partial);
        const uint32_t drained = shared_address(&sh.drained),
                       gathered = shared_address(&sh.gathered);
        barrier_arrive(drained);
        barrier_wait(drained, 0);
        put_sums(all + index * width);
        barrier_arrive(gathered);
        barrier_wait(gathered, 0);
        for (int i = 4 * (int)threadIdx.x; i < width; i += 4 * (int)blockDim.x) {
            float4 sum = *(const float4 *)(all + i);
            for (int k = 1; k < p.teams; k++) {
                const float4 more = *(const float4 *)(all + k * width + i);
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
            *(float4 *)(partial + i) = sum;
        }
    }
};

#endif

template <class S, class B, bool ADD, bool WARP>
__global__ void __maxnreg__(BLOCK_REGISTERS)
    backward_block_kernel(const __grid_constant__ Backward a, const __grid_constant__ BlockPlan p)
{
#if GD_HOPPER
    constexpr int V = pack_size<S, B>;
    extern __shared__ __align__(128) char shared[];
    const Team<S, B, ADD, WARP> team = {a, p, shared};
    const bool by_head = team.by_head;
    const int tokens = team.tokens, count = team.count;
    team.start();

    float factor[CHUNKS][V], dw[CHUNKS][V];
    const int64_t head =
        a.weight_per_head && by_head ? (int64_t)(team.first_head + team.group) * team.packs : 0;
    load_factors<B>(factor, a, a.weight, head + team.at, p.threads_per_row, count);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int j = 0; j < V; j++) dw[k][j] = 0;

    const int at_once = by_head ? 1 : p.groups; // tokens that a team processes at a time
    int s = 0, area = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int u = team.first; u < team.units; u += team.step) {
        const char *const stage = team.stages + s * team.stage_size;
        barrier_wait(team.full + 8 * s, parity);
#pragma unroll 1
        for (int t0 = 0; t0 < p.stage_tokens; t0 += at_once) {
            const int t = t0 + (by_head ? 0 : team.group), token = u * p.stage_tokens + t;
            const bool here = team.works && t < p.stage_tokens && token < tokens;
            const S *const x = (const S *)(stage + t * team.x_bytes) + team.column;
            const B *const dy = (const B *)(stage + team.dy_at + t * team.dy_bytes) + team.column;
            const S *const dsum =
                (const S *)(stage + team.dsum_at + t * team.x_bytes) + team.column;
            const float rstd =
                here ? team.rstds[s][t * team.slice + (by_head ? team.group : 0)] : 0.0f;
            gd_raw_pack<S, V> x_raw[CHUNKS] = {}, dsum_raw[CHUNKS] = {};
            gd_raw_pack<B, V> dy_raw[CHUNKS] = {};
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * p.threads_per_row + team.at;
                if (!here || k >= count) continue;
                x_raw[k] = pack_at<V>(x, i), dy_raw[k] = pack_at<V>(dy, i);
                if (ADD) dsum_raw[k] = pack_at<V>(dsum, i);
            }
            float dot = 0; // of h and x
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
                dot = add_products<S, B, V>(dot, x_raw[k], dy_raw[k], factor[k]);
            dot = team.row_sum(dot, area);
            area ^= 1;
            if (t0 + at_once >= p.stage_tokens && u + p.stages * team.step < team.units)
                team.fetch(s, u + p.stages * team.step);
            const float fold = rstd * rstd * (dot * rstd * a.per_col);
            const int64_t row_at = team.head_at + team.column;
            S *const dx_row = (S *)a.dx + (token * a.dx_stride + row_at);
            B *const dbranch_row = (B *)a.dbranch + (ADD ? token * a.dbranch_stride + row_at : 0);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float dx[V];
                gradient_pack<S, B>(dx, dw[k], x_raw[k], dy_raw[k], factor[k], rstd, fold,
                                    a.round_before_weight);
                if (here && k < count)
                    store_gradient<S, B, ADD>(a, dx_row, dbranch_row,
                                              k * p.threads_per_row + team.at, dx, dsum_raw[k]);
            }
        }
        if (++s == p.stages) s = 0, parity ^= 1;
    }
    if (a.dweight) team.store_dweight(dw);
#endif
}

cudaError_t backward_block(const Backward &a, const BlockPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        constexpr bool ADD = decltype(add)::value;
        if (p.threads_per_row <= 32)
            return launch<backward_block_kernel<S, B, ADD, true>>(p, stream, a, p);
        return launch<backward_block_kernel<S, B, ADD, false>>(p, stream, a, p);
    });
}

} // namespace gd_rms
