// backward.cu - dx and the partial sums of dw for rows that fit in a block; on every GPU.
//
// A block consists of teams, each of which has a row at a time: 4, 8, 16 or 32 lanes of a warp, or
// several warps. Blocks are persistent. A step of a block is as many neighbouring rows as it has
// teams, and steps are interleaved over the blocks: at any time all of them read from the same
// region of memory, which DRAM serves faster (up to 9% over a contiguous range of rows per block).
//
// A thread has up to CHUNKS packs of its team's row: pack k * team + member. Those of the coming
// steps are on their way (Fill says how) while it works on those of this one. It reads only what it
// has fetched itself, so nothing but the sum of the row makes it wait for others. Its w and
// its sums of dw stay in registers from the first row to the last, and the teams of a block add
// theirs at the end.
//
// With heads, each of which may have its own weights, a team must get the same head every time: a
// block has a slice of the heads, its teams those of one or more tokens side by side.
//
// The sum of a row whose team has several warps takes one barrier. The warps' sums alternate
// between two areas: a warp that writes to an area again has passed the barrier of the row between,
// and all warps had read the area before that barrier.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

// ---- A thread's place ---------------------------------------------------------------------------

struct Place {
    int team, member;  // of the block; of the team
    int lane_groups;   // teams of a warp, at least 1
    int block, blocks; // among those with the same heads
    int token, head;   // of the tokens of a step, of all heads
    int slice;         // heads of this block
    bool works;        // its team has a head

    __device__ Place(const BlockPlan &p, const Problem &a)
        : team((int)threadIdx.x / p.team), member((int)threadIdx.x % p.team),
          lane_groups(max(1, 32 / p.team)), block((int)blockIdx.x / p.slices),
          blocks((int)gridDim.x / p.slices)
    {
        const int first = (int)blockIdx.x % p.slices * p.slice;
        slice = min(p.slice, (int)a.heads - first);
        token = team / p.slice, head = first + team % p.slice;
        works = token < p.tokens && team % p.slice < slice;
    }
};

// The packs of one row that a thread has.
template <class S, class B, int CHUNKS>
struct Packs {
    static constexpr int V = pack_size<S, B>;
    gd_raw<S, V> x[CHUNKS];
    gd_raw<B, V> dy[CHUNKS];
};

// The row in memory.
template <class S, class B>
struct RowInputs {
    const S *x;
    const B *dy;
    const S *dsum;
};

// ---- How a stage is filled ----------------------------------------------------------------------

// Each fetches the row of a coming step in two parts, x and dy as soon as those in their place have
// been read, and dsum, which is needed last, at the end of a step.

// By cp.async into slots of shared memory. A stage is the slots of one step.
template <class S, class B, bool ADD, int CHUNKS>
struct CopyFill {
    static constexpr bool SPREAD = false;
    static constexpr int V = pack_size<S, B>, S_PARTS = V * (int)sizeof(S) / 16;
    static constexpr int SUM_AT = S_PARTS + V * (int)sizeof(B) / 16;
    static constexpr int PARTS = SUM_AT + (ADD ? S_PARTS : 0); // of a chunk
    const Slots slots;
    const int team, first, stages; // first: the pack of lane 0

    __device__ CopyFill(char *shared, const BlockPlan &p, const Place &at, const Backward &)
        : slots(shared, min(p.team, 32), at.member % 32), team(p.team),
          first(at.member - at.member % 32), stages(p.stages)
    {
    }
    // packs: of the row, 0 if there is none.
    __device__ void fetch(int stage, const RowInputs<S, B> &row, int packs)
    {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * team + first, to = (stage * CHUNKS + k) * PARTS;
            slots.copy<S_PARTS>(to, row.x + i * V, packs - i);
            slots.copy<SUM_AT - S_PARTS>(to + S_PARTS, row.dy + i * V, packs - i);
        }
        if (!ADD) copy_commit();
    }
    __device__ void fetch_dsum(int stage, const RowInputs<S, B> &row, int packs)
    {
#pragma unroll
        for (int k = 0; ADD && k < CHUNKS; k++) {
            const int i = k * team + first, to = (stage * CHUNKS + k) * PARTS;
            slots.copy<S_PARTS>(to + SUM_AT, row.dsum + i * V, packs - i);
        }
        if (ADD) copy_commit();
    }
    // Waits for the oldest stage and takes its packs, `count`; zeros beyond.
    __device__ void take(Packs<S, B, CHUNKS> &packs, int stage, int count)
    {
        if (stages == 1)
            copy_wait<0>();
        else
            copy_wait<1>();
        read(packs, stage, count);
    }
    __device__ void read(Packs<S, B, CHUNKS> &packs, int stage, int count) const
    {
        if (S_PARTS > 1) __syncwarp();
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int from = (stage * CHUNKS + k) * PARTS;
            packs.x[k] = {}, packs.dy[k] = {};
            if (k < count) slots.read(packs.x[k], from), slots.read(packs.dy[k], from + S_PARTS);
        }
        if (S_PARTS > 1) __syncwarp();
    }
    __device__ gd_raw<S, V> dsum(int stage, int k) const
    {
        gd_raw<S, V> pack;
        slots.read(pack, (stage * CHUNKS + k) * PARTS + SUM_AT);
        return pack;
    }
};

// By plain loads into registers, one step ahead.
template <class S, class B, bool ADD, int CHUNKS, bool SPREAD_>
struct RegisterFill {
    static constexpr bool SPREAD = SPREAD_;
    static constexpr int V = pack_size<S, B>;
    Packs<S, B, CHUNKS> next;
    gd_raw<S, V> sums[ADD ? CHUNKS : 1];
    const int team, member;
    const int64_t cols;
    const uint64_t policy;

    __device__ RegisterFill(char *, const BlockPlan &p, const Place &at, const Backward &a)
        : team(p.team), member(at.member), cols(a.cols), policy(load_policy(a.keep))
    {
    }
    __device__ void fetch(int, const RowInputs<S, B> &row, int packs)
    {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int i = k * team + member;
            next.x[k] = {}, next.dy[k] = {};
            if (i >= packs) continue;
            next.x[k] = load_pack<SPREAD, V>(row.x, i, cols, policy);
            next.dy[k] = load_pack<SPREAD, V>(row.dy, i, cols, policy);
        }
    }
    __device__ void fetch_dsum(int, const RowInputs<S, B> &row, int packs)
    {
#pragma unroll
        for (int k = 0; ADD && k < CHUNKS; k++)
            if (k * team + member < packs)
                sums[k] = load_pack<SPREAD, V>(row.dsum, k * team + member, cols, policy);
    }
    __device__ void take(Packs<S, B, CHUNKS> &packs, int, int)
    {
        packs = next;
    }
    __device__ gd_raw<S, V> dsum(int, int k) const
    {
        return sums[k];
    }
};
template <class S, class B, bool ADD, int CHUNKS>
using LoadFill = RegisterFill<S, B, ADD, CHUNKS, false>;
template <class S, class B, bool ADD, int CHUNKS>
using SpreadFill = RegisterFill<S, B, ADD, CHUNKS, true>;

// ---- Sums ---------------------------------------------------------------------------------------

// The sum over the threads of a team of several warps, given those of its warps. `sums`: the team's
// area, with zeros for absent warps up to a multiple of four.
__device__ __forceinline__ float team_sum(float v, float *sums, const Place &at, int team)
{
    if (at.member % 32 == 0) sums[at.member / 32] = v;
    named_barrier_sync(1 + at.team, team);
    v = 0;
#pragma unroll 1
    for (int i = 0; i < team / 32; i += 4) {
        const float4 four = *(const float4 *)(sums + i);
        v += (four.x + four.y) + (four.z + four.w);
    }
    return v;
}

// The block's row of partial sums, [slice, N], from dw of its threads: over the teams of a warp by
// shuffles, where all have the same head; then over the tokens of a step, through shared memory.
template <bool SPREAD = false, int CHUNKS, int V>
__device__ __forceinline__ void store_dweight(float (&dw)[CHUNKS][V], char *shared, const Place &at,
                                              const BlockPlan &p, const Backward &a, int count)
{
    const bool by_warp = p.slice == 1 && at.lane_groups > 1;
    for (int apart = p.team; by_warp && apart < 32; apart *= 2)
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
#pragma unroll
            for (int j = 0; j < V; j++) dw[k][j] += __shfl_xor_sync(~0u, dw[k][j], apart);
    const int cols = (int)a.cols, width = at.slice * cols, first = at.head - at.team % p.slice;
    const int groups = by_warp ? (int)blockDim.x / 32 : p.tokens;
    const int group = by_warp ? (int)threadIdx.x / 32 : at.token;
    float *const partial =
        (float *)a.workspace + at.block * a.heads * a.cols + (int64_t)first * cols;
    float *const all = (float *)shared; // [groups, slice, N]
    float *const own = groups == 1 ? partial : all + (int64_t)group * width;
    __syncthreads(); // all have read their last stages
    if (at.works && !(by_warp && at.team % at.lane_groups))
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            if (k < count)
                store_sums<SPREAD>(own + (at.head - first) * cols, k * p.team + at.member, dw[k],
                                   cols);
    if (groups == 1) return;
    __syncthreads();
    using Pack = gd_pack<float, SPREAD ? 1 : 4>;
    for (int i = (int)threadIdx.x; i * (int)sizeof(Pack) / 4 < width; i += (int)blockDim.x) {
        Pack sum = Pack::load(all, i);
        for (int k = 1; k < groups; k++) {
            const Pack more = Pack::load(all + k * width, i);
#pragma unroll
            for (int j = 0; j < (int)sizeof(Pack) / 4; j++) sum[j] += more[j];
        }
        sum.store(partial, i);
    }
}

// ---- The kernel ---------------------------------------------------------------------------------

// The rows of a thread's team, by the steps of its block.
template <class S, class B, bool ADD, bool SPREAD = false>
struct Rows {
    static constexpr int V = pack_size<S, B>;
    const Backward &a;
    const BlockPlan &p;
    const Place at;
    const int heads = (int)a.heads, tokens = (int)(a.rows / heads);
    const int steps = (tokens + p.tokens - 1) / p.tokens;
    // Where the head of a token begins, and the packs there; how many this thread has.
    const int64_t column = at.head * a.cols;
    const int packs = at.works ? packs_of<SPREAD, V>(a.cols) : 0;
    const int count = max(0, (packs - at.member + p.team - 1) / p.team);

    __device__ int64_t token(int step) const
    {
        return step * p.tokens + at.token;
    }
    __device__ bool has(int step) const
    {
        return at.works && token(step) < tokens; // a team without a head has no row, nor its rstd
    }
    __device__ RowInputs<S, B> inputs(int step) const
    {
        const int64_t t = token(step);
        return {(const S *)a.x + t * a.x_stride + column,
                (const B *)a.dy + t * a.dy_stride + column,
                ADD ? (const S *)a.dsum + t * a.dsum_stride + column : nullptr};
    }
    __device__ float rstd(int step) const
    {
        if (!has(step)) return 0;
        return ((const float *)a.rstd)[token(step) * heads + at.head];
    }
    // Brings the first rows to L2. Only then may they be read.
    __device__ void prefetch() const
    {
        for (int s = 0, step = at.block; s < p.stages; s++, step += at.blocks)
            for (int k = 0; k < count && has(step); k++) {
                const RowInputs<S, B> row = inputs(step);
                const int j = (k * p.team + at.member) * V;
                prefetch_line(row.x + j), prefetch_line(row.dy + j);
                if (ADD) prefetch_line(row.dsum + j);
            }
    }
    // Pack k of dx and dbranch.
    __device__ void store(int step, float (&dx)[V], int k, const gd_raw<S, V> &dsum) const
    {
        const int64_t t = token(step);
        store_gradient<S, B, ADD, SPREAD>(a, (S *)a.dx + t * a.dx_stride + column,
                                          (B *)a.dbranch + t * a.dbranch_stride + column,
                                          k * p.team + at.member, dx, dsum);
    }
};

// Registers of a thread, at most: those for its part of a row, for w and sums, and some for
// the arithmetic. With 80 there is room for 768 threads on a multiprocessor, with 128 for 512.
constexpr int block_registers(int chunks)
{
    return chunks == 1 ? 80 : 128;
}

template <class S, class B, bool ADD, int CHUNKS, template <class, class, bool, int> class Fill>
__global__ void __maxnreg__((block_registers(CHUNKS)))
    backward_kernel(const __grid_constant__ Backward a, const __grid_constant__ BlockPlan p)
{
    constexpr int V = pack_size<S, B>;
    constexpr bool SPREAD = Fill<S, B, ADD, CHUNKS>::SPREAD;
    extern __shared__ __align__(128) char shared[];
    __shared__ __align__(16) float sums[2][BLOCK_SUMS];
    const Rows<S, B, ADD, SPREAD> rows = {a, p, Place(p, a)};
    const Place &at = rows.at;
    Fill<S, B, ADD, CHUNKS> fill(shared, p, at, a);
    const auto fetch = [&](int stage, int step) {
        fill.fetch(stage, rows.inputs(step), rows.has(step) ? rows.packs : 0);
    };
    const auto fetch_dsum = [&](int stage, int step) {
        if (ADD) fill.fetch_dsum(stage, rows.inputs(step), rows.has(step) ? rows.packs : 0);
    };
    let_next_start();
    for (int i = (int)threadIdx.x; i < 2 * BLOCK_SUMS; i += (int)blockDim.x) sums[0][i] = 0;
    if (GD_HOPPER && !SPREAD) rows.prefetch();
    __syncthreads();
    wait_for_previous();
    for (int s = 0; s < p.stages; s++)
        fetch(s, at.block + s * at.blocks), fetch_dsum(s, at.block + s * at.blocks);

    float w[CHUNKS][V], dw[CHUNKS][V] = {};
    load_w<B, SPREAD>(w, a, a.weight, a.weight_per_head ? rows.column : 0, at.member, p.team,
                      rows.count);

    float next_rstd = rows.rstd(at.block);
    int s = 0, area = at.team * p.team_sums;
#pragma unroll 1
    for (int step = at.block; step < rows.steps; step += at.blocks) {
        const int here = rows.has(step) ? rows.count : 0;
        const float rstd = next_rstd;
        next_rstd = rows.rstd(step + at.blocks);
        Packs<S, B, CHUNKS> now;
        fill.take(now, s, here);
        float dot = 0; // of h and x
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            dot = add_products<S, B, V>(dot, now.x[k], now.dy[k], w[k]);
        dot = gd_sum(dot, min(p.team, 32));
        fetch(s, step + p.stages * at.blocks);
        if (p.team > 32) dot = team_sum(dot, sums[0] + area, at, p.team);
        area ^= BLOCK_SUMS;
        const float c = rstd * rstd * (dot * rstd * a.per_col);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            float dx[V];
            gradient_pack<S, B>(dx, dw[k], now.x[k], now.dy[k], w[k], rstd, c,
                                a.round_before_weight);
            gd_raw<S, V> dsum = {};
            if (ADD && k < here) dsum = fill.dsum(s, k);
            if (k < here) rows.store(step, dx, k, dsum);
        }
        if (ADD && V * sizeof(S) > 16) __syncwarp(); // all have read what others have copied
        fetch_dsum(s, step + p.stages * at.blocks);
        if (++s == p.stages) s = 0;
    }
    if (a.dweight) store_dweight<SPREAD>(dw, shared, at, p, a, rows.count);
}

// A row of more numbers than the threads of a block have registers for stays in shared memory until
// its dx is written. A stage is a chunk of a row, a pack for each thread; those behind the row that
// is summed, two or three, are the next one's, on their way meanwhile.
template <class S, class B, bool ADD, int CHUNKS>
__global__ void GD_LAUNCH_BOUNDS(BLOCK_THREADS, 1)
    held_kernel(const __grid_constant__ Backward a, const __grid_constant__ BlockPlan p)
{
    constexpr int V = pack_size<S, B>;
    extern __shared__ __align__(128) char shared[];
    __shared__ __align__(16) float sums[2][BLOCK_SUMS];
    const Rows<S, B, ADD> rows = {a, p, Place(p, a)};
    const Place &at = rows.at;
    CopyFill<S, B, ADD, 1> fill(shared, p, at, a);
    // Chunk `chunk` counted from the first of that step's row.
    const auto fetch = [&](int stage, int step, int chunk) {
        step += chunk / CHUNKS * at.blocks, chunk %= CHUNKS;
        const int first = chunk * p.team, packs = rows.has(step) ? rows.packs - first : 0;
        RowInputs<S, B> row = rows.inputs(step);
        row.x += first * V, row.dy += first * V;
        if (ADD) row.dsum += first * V;
        fill.fetch(stage, row, packs), fill.fetch_dsum(stage, row, packs);
    };
    let_next_start();
    for (int i = (int)threadIdx.x; i < 2 * BLOCK_SUMS; i += (int)blockDim.x) sums[0][i] = 0;
    __syncthreads();
    wait_for_previous();
    for (int k = 0; k < p.stages; k++) fetch(k, at.block, k);

    float w[CHUNKS][V], dw[CHUNKS][V] = {}, next_rstd = rows.rstd(at.block);
    load_w<B>(w, a, a.weight, 0, at.member, p.team, rows.count);
    int first = 0, area = 0; // the row's first stage
#pragma unroll 1
    for (int step = at.block; step < rows.steps; step += at.blocks) {
        const auto stage = [&](int k) { return first + k - (first + k < p.stages ? 0 : p.stages); };
        const float rstd = next_rstd;
        next_rstd = rows.rstd(step + at.blocks);
        if (p.stages == CHUNKS + 2)
            copy_wait<2>();
        else
            copy_wait<3>();
        Packs<S, B, 1> now;
        float dot = 0; // of h and x
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            fill.read(now, stage(k), rows.count - k);
            dot = add_products<S, B, V>(dot, now.x[0], now.dy[0], w[k]);
        }
        dot = team_sum(gd_sum(dot, 32), sums[0] + area, at, p.team);
        area ^= BLOCK_SUMS;
        const float c = rstd * rstd * (dot * rstd * a.per_col);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            float dx[V];
            gd_raw<S, V> dsum = {};
            fill.read(now, stage(k), rows.count - k);
            if (ADD && k < rows.count) dsum = fill.dsum(stage(k), 0);
            gradient_pack<S, B>(dx, dw[k], now.x[0], now.dy[0], w[k], rstd, c,
                                a.round_before_weight);
            if (ADD && V * sizeof(S) > 16) __syncwarp(); // all have read what others have copied
            fetch(stage(k), step, k + p.stages);
            if (k < rows.count) rows.store(step, dx, k, dsum);
        }
        first = stage(CHUNKS);
    }
    if (a.dweight) store_dweight(dw, shared, at, p, a, rows.count);
}

static cudaError_t backward_held(const Backward &a, const BlockPlan &p, cudaStream_t stream)
{
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        const auto run = [&](auto chunks) {
            return launch<held_kernel<S, B, add.value, chunks.value>>(p, stream, a, p);
        };
        if constexpr (pack_size<S, B> == 4)
            return by_number<6, 8>(p.chunks, run);
        else
            return by_number<3, 4>(p.chunks, run);
    });
}

cudaError_t backward_block(const Backward &a, const BlockPlan &p, bool spread, cudaStream_t stream)
{
    if (p.held) return backward_held(a, p, stream);
    return by_inputs(a, a.dsum, [&](auto s, auto b, auto add) {
        using S = decltype(s);
        using B = decltype(b);
        const auto run = [&](auto chunks) {
            constexpr int CHUNKS = chunks.value;
            constexpr bool ADD = decltype(add)::value;
            if constexpr (CHUNKS != 3) { // where there is cp.async
                if (spread)
                    return launch<backward_kernel<S, B, ADD, CHUNKS, SpreadFill>>(p, stream, a, p);
                if (!p.async)
                    return launch<backward_kernel<S, B, ADD, CHUNKS, LoadFill>>(p, stream, a, p);
            }
            return launch<backward_kernel<S, B, ADD, CHUNKS, CopyFill>>(p, stream, a, p);
        };
        if constexpr (std::is_same_v<S, B> && !decltype(add)::value)
            if (p.chunks == 3) return run(std::integral_constant<int, 3>());
        if constexpr (pack_size<S, B> == 4)
            return by_number<1, 2, 4>(p.chunks, run);
        else
            return by_number<1, 2>(p.chunks, run);
    });
}

} // namespace gd_rms
