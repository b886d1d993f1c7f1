// reduce.cuh - sums and maxima over some axes of anything; the counterpart of reduction.h:
//
//     result[kept] = combine over the reduced axes of  term(in0, in1, ...)
//
// A result belongs to `lanes` threads of one block. Each combines every lanes-th step of the terms,
// then they combine theirs pairwise. A step is a pack of N elements (16 bytes) along the innermost
// axis. If that axis is reduced, they are N terms of one result; if it is kept, they are one term
// each of N results, and the thread carries N results at once:
//
//     innermost reduced (a sum along rows)      innermost kept (a sum of the rows)
//
//     lane 0     1     2     0     1            lane 0   [v v v v] [v v v v]  N results each
//         [v v v v]                  -> r       lane 1   [v v v v] [v v v v]
//                                               lane 0   [v v v v] [v v v v]
//
// Where results are few and terms many, the terms are cut into pieces; a second kernel combines
// what the pieces gave. How many lanes and pieces there are follows from the sizes alone, and a
// thread's N numbers are kept apart until the end even where packs cannot be loaded. So neither
// strides nor the place in memory nor the GPU changes the order of a sum.
#ifndef GD_REDUCE_CUH
#define GD_REDUCE_CUH

#include <utility>

#include "map.cuh"
#include "team.cuh"

// ---- What to do with the terms ------------------------------------------------------------------

// The term of a plain sum.
GD_MAP_FUNCTION(gd_itself, x, REAL x)

// A reduction has term(in0, in1, ...) -> V, identity() -> a total, combine(total, V or total), and
// result(total, r), which makes of all terms together what is stored as result number r. A total is
// mostly a V. A gd_by_place has combine(total, V, i) of term number i. gd_sum_of is for sums.
struct gd_by_place {
};

template <class V, class Term>
struct gd_sum_of {
    Term term;

    __device__ V identity() const
    {
        return 0;
    }
    __device__ V combine(V a, V b) const
    {
        return a + b;
    }
    __device__ V result(V sum, int64_t) const
    {
        return sum;
    }
};

template <class Reduction>
using gd_total = decltype(std::declval<Reduction>().identity());

template <class Reduction, class V>
__device__ inline auto gd_combine_term(const Reduction &reduction, gd_total<Reduction> total,
                                       V value, int64_t i)
{
    if constexpr (std::is_base_of_v<gd_by_place, Reduction>)
        return reduction.combine(total, value, i);
    else
        return reduction.combine(total, value);
}

// ---- The plan -----------------------------------------------------------------------------------

template <int K>
struct gd_reduce_plan {
    gd_cuda_walk<K> kept, reduced; // the places of the results; of the terms of one result
    bool last_kept;                // the innermost axis is kept
    bool packs;                    // whole packs can be loaded
    int lanes;                     // threads that share a result, or a group of results
    int64_t groups;                // of results that a thread carries: of N if last_kept, or of 1
    int64_t steps;                 // to go through for a group
    int64_t pieces, piece;         // into how many the steps are cut; steps in each
};

// The smallest power of two that is at least n, but at most `most`.
static inline int gd_power_of_two(int64_t n, int most)
{
    int power = 1;
    while (power < most && power < n) power *= 2;
    return power;
}

// Lanes, pieces. At least four steps for a lane, which it loads at once, or eight if the rows fill
// a GPU by warps; and where results are kept side by side, threads side by side to read them.
// Enough pieces to fill a GPU, if each has eight steps for a lane; and no lane sums more than 256
// steps, for the sake of its rounding errors.
template <int K>
static inline void gd_reduce_divide(gd_reduce_plan<K> *plan)
{
    const int beside = plan->last_kept ? gd_power_of_two(plan->groups, 32) : 1;
    const bool warps = !plan->last_kept && plan->groups >= 8192 && plan->steps <= 8 * 32;
    plan->lanes =
        gd_power_of_two(gd_ceil_div(plan->steps, warps ? 8 : 4), warps ? 32 : gd_threads / beside);
    const int64_t tiles = gd_ceil_div(plan->groups, gd_threads / plan->lanes);
    const int64_t fill = gd_ceil_div(1024, tiles), most = plan->steps / (8 * plan->lanes);
    plan->pieces = fill < most ? fill : most;
    const int64_t least = gd_ceil_div(plan->steps, 256 * (int64_t)plan->lanes);
    if (plan->pieces < least) plan->pieces = least < 65535 ? least : 65535; // most of a grid's y
    if (plan->pieces < 1) plan->pieces = 1;
    plan->piece = gd_ceil_div(plan->steps, plan->pieces);
    if (plan->piece) plan->pieces = gd_ceil_div(plan->steps, plan->piece);
}

// The part of `walk` (whose operand 0 is the result) along which the result moves, or the rest.
template <int K>
static inline gd_cuda_walk<K> gd_reduce_axes(const gd_cuda_walk<K + 1> &walk, bool kept)
{
    gd_cuda_walk<K> part = {};
    part.count = 1;
    for (int d = 0; d < walk.ndim; d++) {
        if ((walk.stride[0][d] != 0) != kept) continue;
        part.shape[part.ndim] = walk.shape[d];
        for (int k = 0; k < K; k++) part.stride[k][part.ndim] = walk.stride[k + 1][d];
        part.count *= walk.shape[d];
        part.ndim++;
    }
    return part;
}

// ---- The kernels --------------------------------------------------------------------------------

// Combines the totals of lanes 0, 1, ... pairwise into lane 0's; lane is threadIdx.x / apart. The
// upper half lends its totals at the lower half's places, the next upper halves at their own.
template <int N, class V, class Reduction>
__device__ inline void gd_combine_lanes(V (&total)[N], int lane, int lanes, int apart,
                                        const Reduction &reduction)
{
    __shared__ V shared[N][gd_threads / 2];
    const int me = threadIdx.x;
    for (int half = lanes / 2; half > 0; half /= 2) {
        const int from = half == lanes / 2 ? 0 : half * apart;
        if (lane >= half && lane < 2 * half) {
#pragma unroll
            for (int j = 0; j < N; j++) shared[j][me - half * apart + from] = total[j];
        }
        __syncthreads();
        if (lane < half) {
#pragma unroll
            for (int j = 0; j < N; j++)
                total[j] = reduction.combine(total[j], shared[j][me + from]);
        }
    }
    __syncthreads(); // before the next totals
}

// The total of the thread of this warp whose number differs by `step`.
template <class V>
__device__ inline V gd_total_beside(V total, int step)
{
    unsigned word[sizeof(V) / 4];
    memcpy(word, &total, sizeof total);
#pragma unroll
    for (unsigned &w : word) w = __shfl_xor_sync(0xffffffffu, w, step);
    memcpy(&total, word, sizeof total);
    return total;
}

// The total of lanes that are neighbours and have one each, for lane 0.
template <class V, class Reduction>
__device__ inline V gd_combine_row(V total, int lane, int lanes, const Reduction &reduction)
{
    for (int step = min(lanes, 32) / 2; step > 0; step /= 2)
        total = reduction.combine(total, gd_total_beside(total, step));
    if (lanes <= 32) return total;
    __shared__ V shared[gd_threads / 32];
    const int warp = threadIdx.x / 32;
    if (lane % 32 == 0) shared[warp] = total;
    __syncthreads();
    for (int next = 1; lane == 0 && next < lanes / 32; next++)
        total = reduction.combine(total, shared[warp + next]);
    __syncthreads(); // before the next totals
    return total;
}

// The steps t, t + lanes, ... before `end` of one operand with terms along one axis, by whole
// packs, of `width` terms each or of one term of each result. Several loads are under way at once:
// there is no branch between them.
template <class T, class Reduction>
__device__ inline void gd_reduce_line(gd_total<Reduction> (&total)[gd_pack_size<T>], int64_t t,
                                      int64_t end, int lanes, const T *line, int64_t stride,
                                      int width, const Reduction &reduction)
{
    constexpr int N = gd_pack_size<T>, AHEAD = 4;
    for (; t < end; t += AHEAD * lanes) {
        gd_raw<T, N> raw[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            raw[a] = gd_raw<T, N>::load_now(line + min(t + a * lanes, end - 1) * stride * width, 0);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (t + a * lanes >= end) break;
            const gd_pack<T, N> pack = raw[a].elements();
#pragma unroll
            for (int j = 0; j < N; j++)
                total[j] = gd_combine_term(reduction, total[j], reduction.term(gd_load(pack[j])),
                                           (t + a * lanes) * width + (width == 1 ? 0 : j));
        }
    }
}

// The same of any operands and axes.
template <class T, class First, int K, int F, class Reduction>
__device__ inline void
gd_reduce_packs(gd_total<Reduction> (&total)[gd_pack_size<T>], int64_t t, int64_t end,
                const int64_t (&start)[K], const gd_reduce_plan<K> &plan,
                const gd_operands<T, First, K, F> &in, const Reduction &reduction)
{
    constexpr int N = gd_pack_size<T>;
    const int width = plan.last_kept ? 1 : N;
    const bool in_line = plan.reduced.ndim <= 1; // then no division is needed to find the terms
    if constexpr (K == 1)
        if (in_line && in.packed[0])
            return gd_reduce_line(total, t, end, plan.lanes, (const T *)in.data[0] + start[0],
                                  plan.reduced.stride[0][0], width, reduction);
#pragma unroll(K == 1 ? 1 : 4)
    for (; t < end; t += plan.lanes) {
        int64_t offset[K];
        if (!in_line) plan.reduced.at(t * width, offset);
#pragma unroll
        for (int k = 0; k < K; k++)
            offset[k] = start[k] + (in_line ? t * width * plan.reduced.stride[k][0] : offset[k]);
        gd_compute<T> x[K][N];
        in.load(offset, x);
#pragma unroll
        for (int j = 0; j < N; j++)
            total[j] = gd_combine_term(reduction, total[j], gd_evaluate(reduction.term, x, j),
                                       t * width + (width == 1 ? 0 : j));
    }
}

// The same, element by element.
template <class T, class First, int K, int F, class Reduction>
__device__ inline void gd_reduce_elements(gd_total<Reduction> (&total)[gd_pack_size<T>], int64_t t,
                                          int64_t end, int64_t group, const gd_reduce_plan<K> &plan,
                                          const gd_operands<T, First, K, F> &in,
                                          const Reduction &reduction)
{
    constexpr int N = gd_pack_size<T>;
    for (; t < end; t += plan.lanes) {
#pragma unroll 1
        for (int j = 0; j < N; j++) {
            const int64_t result = plan.last_kept ? group * N + j : group;
            const int64_t term = plan.last_kept ? t : t * N + j;
            if (result >= plan.kept.count || term >= plan.reduced.count) break;
            int64_t start[K], offset[K];
            plan.kept.at(result, start);
            plan.reduced.at(term, offset);
#pragma unroll
            for (int k = 0; k < K; k++) offset[k] += start[k];
            gd_compute<T> x[K][1];
            in.load(offset, x);
            const gd_compute<T> value = gd_evaluate(reduction.term, x, 0);
#pragma unroll
            for (int i = 0; i < N; i++) // total[j], but what stays in registers has no index
                if (i == j) total[i] = gd_combine_term(reduction, total[i], value, term);
        }
    }
}

// total[j] = what the steps of one piece that are this lane's give for a group.
template <class T, class First, int K, int F, class Reduction>
__device__ inline void gd_reduce_lane(gd_total<Reduction> (&total)[gd_pack_size<T>], int64_t group,
                                      int64_t piece, int lane, const gd_reduce_plan<K> &plan,
                                      const gd_operands<T, First, K, F> &in,
                                      const Reduction &reduction)
{
    constexpr int N = gd_pack_size<T>;
    int64_t t = piece * plan.piece + lane;
    const int64_t end = min((piece + 1) * plan.piece, plan.steps);
    // The steps that are whole packs: all, or all but the last.
    const bool inside = !plan.last_kept || (group + 1) * N <= plan.kept.count;
    const int64_t packs = min(end, plan.last_kept ? plan.steps : plan.reduced.count / N);
    if (plan.packs && inside && t < packs) {
        int64_t start[K];
        plan.kept.at(plan.last_kept ? group * N : group, start);
        gd_reduce_packs(total, t, packs, start, plan, in, reduction);
        t = (packs - t) & (plan.lanes - 1) ? end : packs; // the last step, if it is this lane's
    }
    gd_reduce_elements(total, t, end, group, plan, in, reduction);
}

template <class V, class Out, class Reduction>
__device__ inline void gd_reduce_store(Out *out, bool add, V total, int64_t r,
                                       const Reduction &reduction)
{
    const auto result = reduction.result(total, r);
    if constexpr (std::is_same_v<Out, int32_t>)
        out[r] = result;
    else
        out[r] = gd_store<Out>(add ? gd_load(out[r]) + result : result);
}

template <class T, class First, int K, int F, class Out, class Reduction>
__global__ void __launch_bounds__(gd_threads)
    gd_reduce_kernel(Out *out, bool add, gd_total<Reduction> *part, gd_reduce_plan<K> plan,
                     gd_operands<T, First, K, F> in, Reduction reduction)
{
    gd_in_turn();
    constexpr int N = gd_pack_size<T>;
    // Neighbouring threads read neighbouring packs.
    const int lanes = plan.lanes, bits = __ffs(lanes) - 1, side = gd_threads >> bits;
    const int me = threadIdx.x;
    const int beside = plan.last_kept ? me & (side - 1) : me >> bits;
    const int lane = plan.last_kept ? me / side : me & (lanes - 1);
    const int64_t results = plan.kept.count, piece = blockIdx.y;
    for (int64_t tile = (int64_t)blockIdx.x * side; tile < plan.groups;
         tile += (int64_t)gridDim.x * side) {
        const int64_t group = tile + beside;
        gd_total<Reduction> total[N];
#pragma unroll
        for (int j = 0; j < N; j++) total[j] = reduction.identity();
        if (group < plan.groups) gd_reduce_lane(total, group, piece, lane, plan, in, reduction);
        if (!plan.last_kept) { // all N are of one result
#pragma unroll
            for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
                for (int j = 0; j < half; j++)
                    total[j] = reduction.combine(total[j], total[j + half]);
            total[0] = gd_combine_row(total[0], lane, lanes, reduction);
        } else {
            gd_combine_lanes(total, lane, lanes, side, reduction);
        }
        if (lane != 0 || group >= plan.groups) continue;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int64_t r = plan.last_kept ? group * N + j : group;
            if (r >= results || (j > 0 && !plan.last_kept)) continue;
            if (plan.pieces > 1)
                part[piece * results + r] = total[j];
            else
                gd_reduce_store(out, add, total[j], r, reduction);
        }
    }
}

// The results of the pieces [pieces, results], combined in the same way.
template <class V, class Out, class Reduction>
__global__ void __launch_bounds__(gd_threads)
    gd_reduce_pieces_kernel(Out *out, bool add, const V *part, int64_t results, int64_t pieces,
                            int lanes, Reduction reduction)
{
    gd_in_turn();
    const int side = gd_threads / lanes, lane = threadIdx.x / side;
    for (int64_t tile = (int64_t)blockIdx.x * side; tile < results;
         tile += (int64_t)gridDim.x * side) {
        const int64_t r = tile + threadIdx.x % side;
        V total[1] = {reduction.identity()};
        for (int64_t p = lane; r < results && p < pieces; p += lanes)
            total[0] = reduction.combine(total[0], part[p * results + r]);
        gd_combine_lanes(total, lane, lanes, side, reduction);
        if (lane == 0 && r < results) gd_reduce_store(out, add, total[0], r, reduction);
    }
}

// ---- Launching ----------------------------------------------------------------------------------

// out[r] = (add ? out[r] : 0) + the reduction over `shape`, to which the operands are broadcast.
// `result` has the shape and strides of a packed array that is broadcast to `shape`, too: the axes
// along which it is repeated are reduced. The reduction over no elements is that of identity().
template <class T, class First = T, int F = 1, int K, class Out, class Reduction>
static inline gd_status gd_cuda_reduce_over(const gd_call *call, Out *out, bool add,
                                            const gd_layout &result, int ndim, const int64_t *shape,
                                            const gd_layout (&in)[K], Reduction reduction)
{
    constexpr int N = gd_pack_size<T>;
    using V = gd_total<Reduction>;
    gd_layout layout[K + 1] = {result};
    for (int k = 0; k < K; k++) layout[k + 1] = in[k];
    const auto walk = gd_cuda_walk_over(ndim, shape, layout);
    const auto operands = gd_operands_of<T, First, F>(in, walk, 1);

    gd_reduce_plan<K> plan = {};
    plan.kept = gd_reduce_axes<K>(walk, true);
    plan.reduced = gd_reduce_axes<K>(walk, false);
    const int64_t results = plan.kept.count, terms = plan.reduced.count;
    if (results == 0) return GD_OK;
    const int last = walk.ndim - 1;
    plan.last_kept = last >= 0 && walk.stride[0][last] != 0;
    const int axes = plan.last_kept ? plan.kept.ndim : plan.reduced.ndim;
    plan.packs = gd_packs_fit(operands, walk, 1) && (axes == 1 || walk.shape[last] % N == 0);
    plan.groups = plan.last_kept ? gd_ceil_div(results, N) : results;
    plan.steps = plan.last_kept ? terms : gd_ceil_div(terms, N);
    gd_reduce_divide(&plan);

    V *part = nullptr;
    if (plan.pieces > 1) {
        part = (V *)gd_call_scratch(call, (size_t)(plan.pieces * results) * sizeof(V));
        if (!part) return gd_error_status(call->context);
    }
    gd_grid grid = gd_grid_for(plan.groups, gd_threads / plan.lanes);
    grid.blocks.y = (unsigned)plan.pieces;
    const gd_status status = gd_launch(call, grid, gd_reduce_kernel<T, First, K, F, Out, Reduction>,
                                       out, add, part, plan, operands, reduction);
    if (status || plan.pieces == 1) return status;

    const int beside = gd_power_of_two(results, 32);
    const int lanes = gd_power_of_two(gd_ceil_div(plan.pieces, 4), gd_threads / beside);
    return gd_launch(call, gd_grid_for(results, gd_threads / lanes),
                     gd_reduce_pieces_kernel<V, Out, Reduction>, out, add, part, results,
                     plan.pieces, lanes, reduction);
}

// The same over the shape of `like`.
template <class T, class First = T, int F = 1, int K, class Out, class Reduction>
static inline gd_status gd_cuda_reduce(const gd_call *call, Out *out, bool add,
                                       const gd_layout &result, const gd_tensor *like,
                                       const gd_layout (&in)[K], Reduction reduction)
{
    return gd_cuda_reduce_over<T, First, F>(call, out, add, result, gd_tensor_ndim(like),
                                            gd_tensor_shape(like), in, reduction);
}

// dx of input k (+)= f over the shape of dy, summed over the axes along which it was broadcast.
template <class T, class First = T, int K, class Function>
static inline gd_status gd_cuda_broadcast_gradient(const gd_call *call, int k,
                                                   const gd_layout (&in)[K], Function f)
{
    const gd_tensor *dx = call->dinput[k], *dy = call->doutput[0];
    T *out = gd_ptr<T>(dx);
    if (gd_tensor_count(dx) == gd_tensor_count(dy))
        return gd_map<T, First>(call, out, call->accumulate[k], dy, in, f);
    const gd_sum_of<gd_compute<T>, Function> sum = {f};
    return gd_cuda_reduce<T, First>(call, out, call->accumulate[k], gd_cuda_layout(dx), dy, in,
                                    sum);
}

#endif
