// plain.cu - forward and backward of what the other kernels do not take: float64, any mixture of
// dtypes, rows too long for them, sums into several gradients; and db.
//
// A block has a row: it sums up the squares, or h x, and reads the row again for y or dx. dw and db
// are sums over columns (column_sum.cuh). The kernels are compiled for packs of V numbers of the
// types S and B of kernels.cuh, aligned or spread, and for spread ones of types that are known when
// they run: S and B are void. They compute in A, double only if a tensor is.
#include <algorithm>

#include "rms_norm/kernels.cuh"

namespace gd_rms
{

constexpr int MOST_THREADS = 1024;

template <class A_, class S_, class B_, int V_, bool SPREAD_>
struct Types {
    using A = A_;
    using S = S_;
    using B = B_;
    static constexpr int V = V_;
    static constexpr bool SPREAD = SPREAD_;
};

// ---- A pack -------------------------------------------------------------------------------------

// body(T()), or of the dtype if T is void.
template <class T, class Body>
__device__ inline void by_type(gd_dtype dtype, Body body)
{
    if constexpr (std::is_void_v<T>)
        gd_by_real_dtype(dtype, body);
    else
        body(T());
}

// Element `at` of x and what follows, as far as there are n.
template <class T, bool SPREAD, class A, int V>
__device__ inline void get(A (&value)[V], const void *x, gd_dtype dtype, int64_t at, int n)
{
    by_type<T>(dtype, [&](auto zero) {
        using U = decltype(zero);
        const U *const from = (const U *)x + at;
        gd_pack<U, V> pack;
        if constexpr (SPREAD)
            pack = gd_load_spread<U, V>(from, n, U(0.0f)).elements();
        else
            pack = gd_raw<U, V>::load(from).elements();
#pragma unroll
        for (int k = 0; k < V; k++) value[k] = (A)gd_load(pack[k]);
    });
}

// Stores them, rounded once, or adds them to what is there.
template <class T, bool SPREAD, class A, int V>
__device__ inline void put(void *x, gd_dtype dtype, int64_t at, int n, bool accumulate,
                           const A (&value)[V])
{
    A sum[V] = {};
    if (accumulate) get<T, SPREAD>(sum, x, dtype, at, n);
    by_type<T>(dtype, [&](auto zero) {
        using U = decltype(zero);
        gd_pack<U, V> pack;
        gd_raw<U, V> raw;
#pragma unroll
        for (int k = 0; k < V; k++)
            pack[k] = gd_store<U>(accumulate ? sum[k] + value[k] : value[k]);
        memcpy(&raw, &pack, sizeof raw);
        if constexpr (SPREAD)
            gd_store_spread((U *)x + at, raw, n);
        else
            *(gd_raw<U, V> *)((U *)x + at) = raw;
    });
}

// Rounds them to the dtype and back.
template <class T, class A, int V>
__device__ inline void round_to(A (&value)[V], gd_dtype dtype)
{
    by_type<T>(dtype, [&](auto zero) {
#pragma unroll
        for (int k = 0; k < V; k++) value[k] = (A)gd_load(gd_store<decltype(zero)>(value[k]));
    });
}

// Of weight or bias, which is float or B; `absent` without it.
template <class B, bool SPREAD, class A, int V>
__device__ inline void get_param(A (&w)[V], const void *param, gd_dtype dtype, int64_t at, int n,
                                 A absent)
{
#pragma unroll
    for (int k = 0; k < V; k++) w[k] = absent;
    if (param && !std::is_void_v<B> && dtype == GD_FLOAT32)
        get<float, SPREAD>(w, param, dtype, at, n);
    else if (param)
        get<B, SPREAD>(w, param, dtype, at, n);
}

// ---- A block per row ----------------------------------------------------------------------------

// Calls body(j, n) for the thread's packs: the first column, and how many there are from it on.
template <class T, class Body>
__device__ inline void each_pack(const Problem &p, const gd_team<true> &team, Body body)
{
#pragma unroll 4
    for (int64_t j = column_of<T::SPREAD, T::V>(team.rank); j < p.cols; j += team.size * T::V)
        body(j, (int)min(p.cols - j, (int64_t)INT32_MAX));
}

template <class T>
__global__ void GD_LAUNCH_BOUNDS(MOST_THREADS, 1)
    plain_forward_kernel(const __grid_constant__ Forward a)
{
    using A = typename T::A;
    using S = typename T::S;
    using B = typename T::B;
    constexpr int V = T::V;
    constexpr bool SPREAD = T::SPREAD;
    __shared__ A shared[32];
    const gd_team<true> team;
    const A offset = a.weight ? (A)a.offset : 0;
    gd_in_turn();
    for (int64_t i = team.row; i < a.rows; i += team.step) {
        const Row row(a, i);
        A x[V], squares = 0;
        // x, or the sum as it is stored.
        const auto get_input = [&](int64_t j, int n) {
            if (!a.residual) return get<S, SPREAD>(x, a.x, a.dtype, row.at(a.x_stride) + j, n);
            A residual[V];
            get<B, SPREAD>(x, a.x, a.y_dtype, row.at(a.x_stride) + j, n);
            get<S, SPREAD>(residual, a.residual, a.dtype, row.at(a.residual_stride) + j, n);
#pragma unroll
            for (int k = 0; k < V; k++) x[k] += residual[k];
            round_to<S>(x, a.dtype);
        };
        each_pack<T>(a, team, [&](int64_t j, int n) {
            get_input(j, n);
#pragma unroll
            for (int k = 0; k < V; k++) squares += x[k] * x[k];
        });
        squares = team.sum(squares, shared);
        const A rstd = rsqrt((double)squares / (double)a.cols + a.eps);
        if (a.rstd && team.rank == 0) ((A *)a.rstd)[i] = rstd;
        each_pack<T>(a, team, [&](int64_t j, int n) {
            A w[V], bias[V];
            get_input(j, n);
            get_param<B, SPREAD>(w, a.weight, a.weight_dtype, row.weight + j, n, (A)1);
            get_param<B, SPREAD>(bias, a.bias, a.weight_dtype, row.weight + j, n, (A)0);
            if (a.residual) put<S, SPREAD>(a.sum, a.dtype, row.at(a.sum_stride) + j, n, false, x);
#pragma unroll
            for (int k = 0; k < V; k++) x[k] = rms_norm_xhat(x[k], rstd);
            if (a.round_before_weight) round_to<B>(x, a.y_dtype);
#pragma unroll
            for (int k = 0; k < V; k++) x[k] = rms_norm_y(x[k], w[k] + offset, bias[k]);
            put<B, SPREAD>(a.y, a.y_dtype, row.at(a.y_stride) + j, n, false, x);
        });
    }
}

// dx, plus dsum if there is one; it may overwrite dy or dsum: a thread writes its columns after it
// has read them.
template <class T>
__global__ void GD_LAUNCH_BOUNDS(MOST_THREADS, 1)
    plain_backward_kernel(const __grid_constant__ Backward a)
{
    using A = typename T::A;
    using S = typename T::S;
    using B = typename T::B;
    constexpr int V = T::V;
    constexpr bool SPREAD = T::SPREAD;
    __shared__ A shared[32];
    const gd_team<true> team;
    const A offset = a.weight ? (A)a.offset : 0;
    gd_in_turn();
    for (int64_t i = team.row; i < a.rows; i += team.step) {
        const Row row(a, i);
        A x[V], h[V], dot = 0;
        const auto get_input = [&](int64_t j, int n) {
            A w[V];
            get<S, SPREAD>(x, a.x, a.dtype, row.at(a.x_stride) + j, n);
            get<B, SPREAD>(h, a.dy, a.y_dtype, row.at(a.dy_stride) + j, n);
            get_param<B, SPREAD>(w, a.weight, a.weight_dtype, row.weight + j, n, (A)1);
#pragma unroll
            for (int k = 0; k < V; k++) h[k] = rms_norm_h(h[k], w[k] + offset);
        };
        each_pack<T>(a, team, [&](int64_t j, int n) {
            get_input(j, n);
#pragma unroll
            for (int k = 0; k < V; k++) dot += rms_norm_term(h[k], x[k]);
        });
        const A rstd = ((const A *)a.rstd)[i];
        const A c = rstd * rstd * (team.sum(dot, shared) * rstd / (A)a.cols);
        each_pack<T>(a, team, [&](int64_t j, int n) {
            A dx[V] = {};
            get_input(j, n);
            if (a.dsum) get<S, SPREAD>(dx, a.dsum, a.dtype, row.at(a.dsum_stride) + j, n);
#pragma unroll
            for (int k = 0; k < V; k++) dx[k] += rms_norm_dx(rstd, h[k], c, x[k]);
            if (a.dx)
                put<S, SPREAD>(a.dx, a.dtype, row.at(a.dx_stride) + j, n, a.accumulate_dx, dx);
            if (a.dbranch)
                put<B, SPREAD>(a.dbranch, a.y_dtype, row.at(a.dbranch_stride) + j, n,
                               a.accumulate_dbranch, dx);
        });
    }
}

// ---- Sums over tokens ---------------------------------------------------------------------------

// A token's term of dw, or of db, for column j of all its heads.
template <class A, class S, class B, bool BIAS>
struct Terms {
    Backward a;

    __device__ void add(int64_t token, int64_t j, A *sum) const
    {
        A x[1], dy[1];
        get<B, false>(dy, a.dy, a.y_dtype, token * a.dy_stride + j, 1);
        if (!BIAS) {
            get<S, false>(x, a.x, a.dtype, token * a.x_stride + j, 1);
            const int64_t row = token * a.heads + j / a.cols;
            x[0] = rms_norm_xhat(x[0], ((const A *)a.rstd)[row]);
            if (a.round_before_weight) round_to<B>(x, a.y_dtype);
        }
        sum[0] += BIAS ? dy[0] : rms_norm_dw(dy[0], x[0]);
    }
};

// Pieces of the tokens: of at least 64, and enough of them for all multiprocessors.
static int64_t piece_tokens(const Problem &p)
{
    const int64_t pieces = std::clamp<int64_t>((1 << 17) / (p.heads * p.cols + 1), 1, 256);
    return std::max<int64_t>(gd_ceil_div(p.rows / p.heads, pieces), 64);
}

int64_t plain_partials(const Problem &p)
{
    return gd_ceil_div(p.rows / p.heads, piece_tokens(p));
}

// ---- Launching ----------------------------------------------------------------------------------

// Calls body(Types()) for those of a call.
template <class Body>
static cudaError_t by_access(const Problem &p, Access by, Body body)
{
    if (by == ANY_DTYPE && p.is_double) return body(Types<double, void, void, 4, true>());
    if (by == ANY_DTYPE) return body(Types<float, void, void, 4, true>());
    return by_inputs(p, false, [&](auto s, auto b, auto) {
        using S = decltype(s);
        using B = decltype(b);
        return by_spread(by == SPREAD_PACKS, [&](auto spread) {
            return body(Types<float, S, B, pack_size<S, B>, decltype(spread)::value>());
        });
    });
}

// A block per row, with four packs or more for a thread. Of the largest, whose registers fill a
// multiprocessor, there are as many as run at a time (fewer are slower: bfloat16 65536 0.26 of the
// ceiling by 64, 0.36 by 132 of them).
template <class Call>
static cudaError_t run_rows(void (*kernel)(Call), int V, const Call &a, cudaStream_t stream)
{
    const int64_t warps = gd_ceil_div(a.cols, 32 * 4 * V);
    const unsigned threads = 32 * (unsigned)std::clamp<int64_t>(warps, 1, MOST_THREADS / 32);
    gd_grid grid = gd_grid_for(a.rows, 1, threads);
    if (threads == MOST_THREADS && a.rows > MULTIPROCESSORS) grid.blocks.x = MULTIPROCESSORS;
    return gd_launch_on(stream, grid, kernel, a);
}

cudaError_t plain_forward(const Forward &a, Access by, cudaStream_t stream)
{
    return by_access(a, by, [&](auto types) {
        return run_rows(plain_forward_kernel<decltype(types)>, types.V, a, stream);
    });
}

cudaError_t plain_backward(const Backward &a, Access by, cudaStream_t stream)
{
    return by_access(a, by, [&](auto types) {
        return run_rows(plain_backward_kernel<decltype(types)>, types.V, a, stream);
    });
}

cudaError_t plain_sums(const Backward &a, Access by, bool of_bias, cudaStream_t stream)
{
    return by_access(a, by, [&](auto types) {
        using A = typename decltype(types)::A;
        using S = typename decltype(types)::S;
        using B = typename decltype(types)::B;
        const auto run = [&](auto terms) {
            const int64_t cols = a.heads * a.cols;
            const gd_grid grid = {
                {(unsigned)gd_ceil_div(cols, GD_SUM_COLUMNS), (unsigned)plain_partials(a)},
                {GD_SUM_COLUMNS, GD_SUM_WARPS}};
            return gd_launch_on(stream, grid, gd_sum_columns<1, A, decltype(terms)>,
                                a.rows / a.heads, cols, piece_tokens(a), terms, (A *)a.workspace,
                                gd_sum_places<1>());
        };
        return of_bias ? run(Terms<A, S, B, true>{a}) : run(Terms<A, S, B, false>{a});
    });
}

} // namespace gd_rms
