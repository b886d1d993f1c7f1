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

// A thread's place in its team: which rows and columns it works on.
struct Team {
    int size, count, index, member; // threads of a team, teams of the block
    int warp, lane;                 // in the team
    int group, at;                  // of the threads of a row: which, and this one's place in it
};

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

#endif

// WARP: a row is shared by lanes of one warp.
template <class S, class B, bool ADD, bool WARP>
__global__ void __maxnreg__(BLOCK_REGISTERS)
    backward_block_kernel(const __grid_constant__ Backward a, const __grid_constant__ BlockPlan p)
{
#if GD_HOPPER
    constexpr int V = pack_size<S, B>;
    extern __shared__ __align__(128) char shared[];
    BlockShared &sh = *(BlockShared *)shared;
    Team team;
    team.size = WARP ? 32 : p.threads_per_row;
    team.count = (int)blockDim.x / team.size;
    team.index = (int)threadIdx.x / team.size, team.member = (int)threadIdx.x % team.size;
    team.warp = team.member / 32, team.lane = team.member % 32;
    team.group = WARP ? team.lane / p.threads_per_row : 0;
    team.at = WARP ? team.lane % p.threads_per_row : team.member;
    const int groups = WARP ? 32 / p.threads_per_row : 1, warps = team.size / 32;
    const int cols = (int)a.cols, packs = cols / V, heads = (int)a.heads;

    // This block's heads, first to first + slice, and its place among those that have the same.
    const bool by_head = WARP && heads > 1;
    const int slices = by_head ? (heads + groups - 1) / groups : 1;
    const int first_head = by_head ? (int)blockIdx.x % slices * groups : 0;
    const int slice = by_head ? min(groups, heads - first_head) : 1;
    const int block = (int)blockIdx.x / slices, blocks = (int)gridDim.x / slices;
    const int tokens = (int)(by_head ? a.rows / heads : a.rows), width = slice * cols;
    const int units = (tokens + p.stage_tokens - 1) / p.stage_tokens;
    const int first = block + blocks * team.index, step = blocks * team.count;

    // A stage: [stage_tokens, width] of x, then of dy, then of dsum.
    const int x_bytes = width * (int)sizeof(S), dy_bytes = width * (int)sizeof(B);
    const int dy_at = p.stage_tokens * x_bytes, dsum_at = dy_at + p.stage_tokens * dy_bytes;
    const int stage_size = dsum_at + (ADD ? p.stage_tokens * x_bytes : 0);
    char *const stages = shared + STAGES_AT + (size_t)team.index * p.stages * stage_size;
    const uint32_t stages_at = shared_address(stages);
    const uint32_t full = shared_address(sh.full + team.index * p.stages);
    float(*const rstds)[32] = sh.rstd + team.index * p.stages;
    const uint32_t rstds_at = shared_address(rstds);
    const uint32_t drained = shared_address(&sh.drained), gathered = shared_address(&sh.gathered);
    const uint64_t policy = load_policy(a.keep);

    // The offset of this block's heads, and the bytes from token to token.
    const int64_t head_at = (int64_t)first_head * cols;
    const char *const x_from = (const char *)((const S *)a.at.x + head_at);
    const char *const dy_from = (const char *)((const B *)a.at.dy + head_at);
    const char *const dsum_from = (const char *)((const S *)a.at.dsum + head_at);
    const int64_t x_stride = a.at.x_stride * (int)sizeof(S);
    const int64_t dy_stride = a.at.dy_stride * (int)sizeof(B);
    const int64_t dsum_stride = a.at.dsum_stride * (int)sizeof(S);
    // Lane l copies the rstd of the stage's row l.
    const float *const rstd_from =
        (const float *)a.at.rstd + first_head +
        (by_head ? team.lane / slice * heads + team.lane % slice : team.lane);

    // Stage s gets unit u. The first warp issues the copies of x and rstd, the second, if there is
    // one, the others: a single busy lane holds up its warp, and so the team.
    auto fetch = [&](int s, int u) {
        const int token = u * p.stage_tokens, count = min(p.stage_tokens, tokens - token);
        const uint32_t to = stages_at + s * stage_size, barrier = full + 8 * s;
        if (team.warp == 0) {
            if (team.lane == 0)
                barrier_expect(barrier, count * ((ADD ? 2 : 1) * x_bytes + dy_bytes));
            __syncwarp();
            if (team.lane < count * slice)
                copy_number(rstds_at + 4 * (32 * s + team.lane),
                            rstd_from + (int64_t)token * heads);
            copy_arrive(barrier);
            fetch_tokens(to, barrier, x_from + token * x_stride, x_stride, x_bytes, count,
                         team.lane, policy);
        }
        if (team.warp == (WARP ? 0 : 1)) {
            fetch_tokens(to + dy_at, barrier, dy_from + token * dy_stride, dy_stride, dy_bytes,
                         count, team.lane, policy);
            if (ADD)
                fetch_tokens(to + dsum_at, barrier, dsum_from + token * dsum_stride, dsum_stride,
                             x_bytes, count, team.lane, policy);
        }
    };

    let_next_start();
    // Before a team may read what the preceding kernel writes, it prefetches its first stages to
    // L2.
    for (int s = 0; team.warp == 0 && s < p.stages && first + s * step < units; s++) {
        const int token = (first + s * step) * p.stage_tokens + team.lane;
        if (team.lane >= p.stage_tokens || token >= tokens) continue;
        bulk_prefetch(x_from + token * x_stride, x_bytes);
        bulk_prefetch(dy_from + token * dy_stride, dy_bytes);
        if (ADD) bulk_prefetch(dsum_from + token * dsum_stride, x_bytes);
    }
    if (team.member == 0) {
        for (int s = 0; s < p.stages; s++) barrier_init(full + 8 * s, 1 + 32);
        if (team.index == 0) {
            barrier_init(drained, (int)blockDim.x);
            barrier_init(gathered, (int)blockDim.x);
        }
        barrier_init_done();
    }
    for (int i = (int)threadIdx.x; !WARP && i < 2 * MOST_TEAMS * 16; i += (int)blockDim.x)
        sh.sums[0][i] = 0; // sums of absent warps are added with the others
    __syncthreads();
    wait_for_previous();
    for (int s = 0; s < p.stages && first + s * step < units; s++) fetch(s, first + s * step);

    // This thread's columns of the row or head that its group has.
    const int column = by_head ? team.group * cols : 0;
    const bool works = !by_head || team.group < slice;
    float factor[CHUNKS][V], dw[CHUNKS][V];
    const int count = works ? (packs - team.at + p.threads_per_row - 1) / p.threads_per_row : 0;
    const int64_t head =
        a.weight_per_head && by_head ? (int64_t)(first_head + team.group) * packs : 0;
    load_factors<B>(factor, a, a.at.weight, head + team.at, p.threads_per_row, count);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int j = 0; j < V; j++) dw[k][j] = 0;

    const int at_once = by_head ? 1 : groups; // tokens that a team processes at a time
    int s = 0, area = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int u = first; u < units; u += step) {
        const char *const stage = stages + s * stage_size;
        barrier_wait(full + 8 * s, parity);
#pragma unroll 1
        for (int t0 = 0; t0 < p.stage_tokens; t0 += at_once) {
            const int t = t0 + (by_head ? 0 : team.group);
            const int token = u * p.stage_tokens + t;
            const bool here = works && t < p.stage_tokens && token < tokens;
            const S *const x = (const S *)(stage + t * x_bytes) + column;
            const B *const dy = (const B *)(stage + dy_at + t * dy_bytes) + column;
            const S *const dsum = (const S *)(stage + dsum_at + t * x_bytes) + column;
            const float rstd = here ? rstds[s][t * slice + (by_head ? team.group : 0)] : 0.0f;
            gd_raw_pack<S, V> x_raw[CHUNKS] = {}, dsum_raw[CHUNKS] = {};
            gd_raw_pack<B, V> dy_raw[CHUNKS] = {};
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const int i = k * p.threads_per_row + team.at;
                if (!here || k >= count) continue;
                x_raw[k] = *(const gd_raw_pack<S, V> *)(x + i * V);
                dy_raw[k] = *(const gd_raw_pack<B, V> *)(dy + i * V);
                if (ADD) dsum_raw[k] = *(const gd_raw_pack<S, V> *)(dsum + i * V);
            }
            float dot = 0; // of h and x
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
                dot = add_products<S, B, V>(dot, x_raw[k], dy_raw[k], factor[k]);
            dot = gd_lane_sum(dot, WARP ? p.threads_per_row : 32);
            if (WARP) {
                __syncwarp();
            } else {
                float *const sums = &sh.sums[area][team.index * 16];
                if (team.lane == 0) sums[team.warp] = dot;
                named_barrier_sync(1 + team.index, team.size);
                dot = 0;
#pragma unroll 1
                for (int i = 0; i < warps; i += 4) {
                    const float4 four = *(const float4 *)(sums + i);
                    dot += (four.x + four.y) + (four.z + four.w);
                }
                area ^= 1;
            }
            if (t0 + at_once >= p.stage_tokens && u + p.stages * step < units)
                fetch(s, u + p.stages * step);
            const float fold = rstd * rstd * (dot * rstd * a.per_col);
            S *const dx_row = (S *)a.at.dx + (token * a.at.dx_stride + head_at + column);
            B *const dbranch_row =
                (B *)a.at.dbranch + (ADD ? token * a.at.dbranch_stride + head_at + column : 0);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float dx[V];
                gradient_pack<S, B>(dx, dw[k], x_raw[k], dy_raw[k], factor[k], rstd, fold, a.round);
                if (here && k < count)
                    store_gradient<S, B, ADD>(a, dx_row, dbranch_row,
                                              k * p.threads_per_row + team.at, dx, dsum_raw[k]);
            }
        }
        if (++s == p.stages) s = 0, parity ^= 1;
    }
    if (!a.partial) return;

    // dw: summed over the groups of lanes, unless each has its own head, then over the teams, in
    // the memory of the pipelines. Two mbarriers instead of __syncthreads, because the teams have
    // passed different numbers of named barriers, of which compute-sanitizer's racecheck loses
    // count.
    for (int apart = p.threads_per_row; WARP && !by_head && apart < 32; apart *= 2)
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
#pragma unroll
            for (int j = 0; j < V; j++) dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], apart);
    float *const partial =
        (float *)a.partial + ((int64_t)block * heads + first_head) * cols; // [width]
    float *const all = (float *)(shared + STAGES_AT);                      // [teams, width]
    auto put_sums = [&](float *sums) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            if (k < count && (by_head || team.group == 0))
                store_sums(sums + column, k * p.threads_per_row + team.at, dw[k]);
    };
    if (team.count == 1) {
        put_sums(partial);
        return;
    }
    barrier_arrive(drained);
    barrier_wait(drained, 0);
    put_sums(all + team.index * width);
    barrier_arrive(gathered);
    barrier_wait(gathered, 0);
    for (int i = 4 * (int)threadIdx.x; i < width; i += 4 * (int)blockDim.x) {
        float4 sum = *(const float4 *)(all + i);
        for (int k = 1; k < team.count; k++) {
            const float4 more = *(const float4 *)(all + k * width + i);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        *(float4 *)(partial + i) = sum;
    }
#endif
}

template <class S, class B, bool ADD>
static cudaError_t by_plan(const Backward &a, const BlockPlan &p, cudaStream_t stream)
{
    const bool warp = p.threads_per_row <= 32;
    const int groups = warp ? 32 / p.threads_per_row : 1;
    const int64_t slices = ceil_div(a.heads, groups);
    const int width = (int)a.cols * (int)(a.heads > 1 ? (a.heads < groups ? a.heads : groups) : 1);
    const int teams = p.threads / (warp ? 32 : p.threads_per_row);
    const int stage = p.stage_tokens * width * (int)((ADD ? 2 : 1) * sizeof(S) + sizeof(B));
    const size_t ring = (size_t)teams * (size_t)(p.stages * stage);
    const size_t sums = teams > 1 ? (size_t)(teams * width) * sizeof(float) : 0;
    Shape shape = {p.partials * (a.heads > 1 ? slices : 1), p.threads};
    shape.shared = STAGES_AT + (ring > sums ? ring : sums);
    if (warp) return launch<backward_block_kernel<S, B, ADD, true>>(shape, stream, a, p);
    return launch<backward_block_kernel<S, B, ADD, false>>(shape, stream, a, p);
}

cudaError_t backward_block(const Backward &a, const BlockPlan &plan, cudaStream_t stream)
{
    return by_types(a, [&](auto s, auto b) {
        using S = decltype(s);
        using B = decltype(b);
        return a.at.dsum ? by_plan<S, B, true>(a, plan, stream)
                         : by_plan<S, B, false>(a, plan, stream);
    });
}

} // namespace gd_rms
