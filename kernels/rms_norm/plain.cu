// plain.cu - forward and backward for any size, alignment, stride and mixture of dtypes.
//   forward_kernel   a team of threads per row: the sum of squares, then y
//   rows_kernel      a team per row: the sum of h x; then dx, or it leaves the sum for ...
//   columns_kernel   ... a team per stripe of columns: dx and partial sums of dw; or those of db
//
// A thread has TILE numbers of a row at a time, which it loads together: where all tensors allow
// one pack, else every 32nd (of a short row, every fourth or so), so that neighbours read
// neighbours. Dtypes are chosen at run time, once for all of them. Numbers are computed on as A,
// double only if a tensor is.
#include "rms_norm/kernels.cuh"

namespace gd_rms
{

constexpr int TILE = 8;
constexpr int THREADS = 256;     // of a block, at most
constexpr int MOST_BLOCKS = 512; // of columns_kernel

// A thread's numbers of a row: PACKS packs of V from `first` on, `step` apart. They are there as
// long as `left`, counted from the first, is not used up.
template <bool PACKED>
struct Span {
    static constexpr int V = PACKED ? TILE : 1, PACKS = TILE / V;
    int64_t first;
    int step, left;

    // The thread `member` of `team`, which shares n numbers from `from` on.
    __device__ Span(int64_t from, int member, int team, int64_t n)
        : first(from + member * TILE), step(min(team, 32))
    {
        if (!PACKED) first = from + member / step * step * TILE + member % step;
        left = (int)min(n - first, (int64_t)INT32_MAX);
    }
    // Calls body(k) for the packs that are there.
    template <class Body>
    __device__ void each(Body body) const
    {
        if (left > (PACKS - 1) * step) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) body(k);
        } else {
#pragma unroll
            for (int k = 0; k < PACKS - 1; k++)
                if (k * step < left) body(k);
        }
    }
};

// Calls body(T()) for a dtype that is no wider than A.
template <class A, class Body>
__device__ inline void by_narrow_dtype(gd_dtype dtype, Body body)
{
    if (dtype == GD_FLOAT32)
        body(float());
    else if (dtype == GD_BFLOAT16)
        body(__nv_bfloat16());
    else if (dtype == GD_FLOAT16)
        body(__half());
    else
        body(A());
}

// Rounds value[] to dtype and back.
template <class A>
__device__ inline void round_to(A (&value)[TILE], gd_dtype dtype)
{
    by_narrow_dtype<A>(dtype, [&](auto zero) {
#pragma unroll
        for (int j = 0; j < TILE; j++) value[j] = (A)gd_load(gd_store<decltype(zero)>(value[j]));
    });
}

// A thread's numbers of a row as they are in memory: loaded first, and converted when those of
// other tensors are on their way, too.
template <class A>
struct RawTile {
    uint32_t word[TILE * sizeof(A) / 4] = {}; // of zeros beyond the row's end

    template <bool PACKED>
    __device__ RawTile(const void *x, gd_dtype dtype, int64_t row, const Span<PACKED> &at)
    {
        if (dtype == GD_BFLOAT16 || dtype == GD_FLOAT16)
            load<uint16_t>(x, row, at);
        else if (sizeof(A) == 4 || dtype == GD_FLOAT32)
            load<uint32_t>(x, row, at);
        else
            load<A>(x, row, at);
    }
    template <class U, bool PACKED>
    __device__ void load(const void *x, int64_t row, const Span<PACKED> &at)
    {
        using Raw = gd_raw<U, at.V>;
        const U *const from = (const U *)x + row + at.first;
        at.each([&](int k) {
            const Raw raw = *(const Raw *)(from + k * at.step);
            if constexpr (sizeof raw == 2)
                word[k] = raw.part[0];
            else
                memcpy(&word[k * (int)sizeof raw / 4], &raw, sizeof raw);
        });
    }
    template <bool PACKED>
    __device__ void get(A (&value)[TILE], gd_dtype dtype, const Span<PACKED> &) const
    {
        by_narrow_dtype<A>(dtype, [&](auto zero) {
            using T = decltype(zero);
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                T element;
                const uint16_t half = (uint16_t)(PACKED ? word[j / 2] >> j % 2 * 16 : word[j]);
                if constexpr (sizeof element == 2)
                    memcpy(&element, &half, sizeof element);
                else
                    memcpy(&element, &word[j * (int)sizeof element / 4], sizeof element);
                value[j] = (A)gd_load(element);
            }
        });
    }
};

template <bool PACKED, class A>
__device__ inline void get_tile(A (&value)[TILE], const void *x, gd_dtype dtype, int64_t row,
                                const Span<PACKED> &at)
{
    RawTile<A>(x, dtype, row, at).get(value, dtype, at);
}

// Stores them, rounded once, or adds them to what is there.
template <bool PACKED, class A>
__device__ inline void put_tile(void *x, gd_dtype dtype, int64_t row, const Span<PACKED> &at,
                                const A (&value)[TILE], bool accumulate = false)
{
    constexpr int V = at.V;
    A sum[TILE] = {};
    if (accumulate) get_tile(sum, x, dtype, row, at);
    by_narrow_dtype<A>(dtype, [&](auto zero) {
        using T = decltype(zero);
        using Raw = gd_raw<T, V>;
        T *const to = (T *)x + row + at.first;
        T element[TILE];
#pragma unroll
        for (int j = 0; j < TILE; j++)
            element[j] = gd_store<T>(accumulate ? sum[j] + value[j] : value[j]);
        Raw raw[at.PACKS];
        memcpy(raw, element, sizeof raw);
        at.each([&](int k) { *(Raw *)(to + k * at.step) = raw[k]; });
    });
}

// w of the tile; `row`: the offset of the row's weights.
template <bool PACKED, class A>
__device__ inline void get_w(A (&w)[TILE], const Problem &p, const void *weight, int64_t row,
                             const Span<PACKED> &at)
{
    if (weight) get_tile(w, weight, p.weight_dtype, row, at);
#pragma unroll
    for (int j = 0; j < TILE; j++) w[j] = weight ? w[j] + (A)p.offset : (A)1;
}

// ---- A team per row -----------------------------------------------------------------------------

// `team` lanes of a warp, or the whole block, share a row; blocks stride over the rows. Calls
// body(row index, whether there is such a row, the thread's number in the team) as often in all
// threads of a block.
template <class Body>
__device__ inline void each_row(const Problem &p, int team, Body body)
{
    const int64_t teams = blockDim.x / team, own = threadIdx.x / team;
    for (int64_t first = blockIdx.x * teams; first < p.rows; first += gridDim.x * teams)
        body(min(first + own, p.rows - 1), first + own < p.rows, (int)threadIdx.x % team);
}

// Calls body(span) for the thread's tiles of a row of n numbers.
template <bool PACKED, class Body>
__device__ inline void each_tile(int64_t n, int team, int member, Body body)
{
    for (int64_t from = 0; from < n; from += (int64_t)team * TILE)
        body(Span<PACKED>(from, member, team, n));
}

template <class A>
__device__ inline A team_sum(A v, int team)
{
    __shared__ A shared[32];
    return team <= 32 ? gd_sum(v, team) : gd_sum(v, shared);
}

__device__ inline double rstd_of(double sum, const Problem &p)
{
    return rsqrt(sum / (double)p.cols + p.eps);
}

// x, or the sum as it is stored.
template <bool PACKED, class A>
__device__ inline void get_input(A (&x)[TILE], const Forward &a, const Row &row,
                                 const Span<PACKED> &at)
{
    const bool adds = a.residual;
    get_tile(x, a.x, adds ? a.y_dtype : a.dtype, row.at(a.x_stride), at);
    if (!adds) return;
    A more[TILE];
    get_tile(more, a.residual, a.dtype, row.at(a.residual_stride), at);
#pragma unroll
    for (int j = 0; j < TILE; j++) x[j] += more[j];
    round_to(x, a.dtype);
}

template <class A, bool PACKED>
__global__ void GD_LAUNCH_BOUNDS(THREADS, sizeof(A) == 4 ? 3 : 1)
    forward_kernel(const __grid_constant__ Forward a, int team)
{
    gd_in_turn();
    const bool held = a.cols <= (int64_t)team * TILE; // one tile: it is not read again
    each_row(a, team, [&](int64_t i, bool here, int member) {
        const Row row(a, i);
        const int64_t n = here ? a.cols : 0;
        A x[TILE], squares = 0;
        each_tile<PACKED>(n, team, member, [&](const Span<PACKED> &at) {
            A sum = 0;
            get_input(x, a, row, at);
#pragma unroll
            for (int j = 0; j < TILE; j++) sum += x[j] * x[j];
            squares += sum;
        });
        const A rstd = rstd_of(team_sum(squares, team), a);
        if (a.rstd && member == 0 && here) ((A *)a.rstd)[i] = rstd;
        each_tile<PACKED>(n, team, member, [&](const Span<PACKED> &at) {
            A w[TILE], bias[TILE];
            if (!held) get_input(x, a, row, at);
            if (a.residual) put_tile(a.sum, a.dtype, row.at(a.sum_stride), at, x);
            get_w(w, a, a.weight, row.weight, at);
            if (a.bias) get_tile(bias, a.bias, a.weight_dtype, row.weight, at);
#pragma unroll
            for (int j = 0; j < TILE; j++) x[j] *= rstd;
            if (a.round_before_weight) round_to(x, a.y_dtype);
#pragma unroll
            for (int j = 0; j < TILE; j++) x[j] = x[j] * w[j] + (a.bias ? bias[j] : (A)0);
            put_tile(a.y, a.y_dtype, row.at(a.y_stride), at, x);
        });
    });
}

// ---- Backward -----------------------------------------------------------------------------------

// Stores dx, plus dsum if there is one.
// dx may overwrite dy or dsum: a thread writes its columns after it has read them.
template <bool PACKED, class A>
__device__ inline void put_gradient(const Backward &a, const Row &row, const Span<PACKED> &at,
                                    const A (&x)[TILE], const A (&dy)[TILE], const A (&w)[TILE],
                                    A rstd, A sum)
{
    A dx[TILE] = {};
    const A c = rstd * rstd * (sum * rstd / (A)a.cols);
    if (a.dsum) get_tile(dx, a.dsum, a.dtype, row.at(a.dsum_stride), at);
#pragma unroll
    for (int j = 0; j < TILE; j++) dx[j] += rms_norm_dx(rstd * dy[j], w[j], c, x[j]);
    if (a.dx) put_tile(a.dx, a.dtype, row.at(a.dx_stride), at, dx, a.accumulate_dx);
    if (a.dbranch)
        put_tile(a.dbranch, a.y_dtype, row.at(a.dbranch_stride), at, dx, a.accumulate_dbranch);
}

template <class A, bool PACKED>
__global__ void GD_LAUNCH_BOUNDS(THREADS, sizeof(A) == 4 ? 3 : 1)
    rows_kernel(const __grid_constant__ Backward a, int team)
{
    gd_in_turn();
    const bool held = a.cols <= (int64_t)team * TILE;
    each_row(a, team, [&](int64_t i, bool here, int member) {
        const Row row(a, i);
        const int64_t n = here ? a.cols : 0;
        A x[TILE], dy[TILE], w[TILE], dot = 0;
        const auto get = [&](const Span<PACKED> &at) {
            const RawTile<A> raw_x(a.x, a.dtype, row.at(a.x_stride), at);
            const RawTile<A> raw_dy(a.dy, a.y_dtype, row.at(a.dy_stride), at);
            raw_x.get(x, a.dtype, at), raw_dy.get(dy, a.y_dtype, at);
            get_w(w, a, a.weight, row.weight, at);
        };
        each_tile<PACKED>(n, team, member, [&](const Span<PACKED> &at) {
            A sum = 0;
            get(at);
#pragma unroll
            for (int j = 0; j < TILE; j++) sum += dy[j] * w[j] * x[j];
            dot += sum;
        });
        dot = team_sum(dot, team);
        if (a.row_sums) {
            if (member == 0 && here) ((A *)a.row_sums)[i] = dot;
            return;
        }
        const A rstd = ((const A *)a.rstd)[i];
        each_tile<PACKED>(n, team, member, [&](const Span<PACKED> &at) {
            if (!held) get(at);
            put_gradient(a, row, at, x, dy, w, rstd, dot);
        });
    });
}

// Blocks: [pieces of the tokens, heads * stripes of columns]. `lanes` threads have a stripe of one
// token, those behind them the next token.
template <class A, bool PACKED>
__global__ void GD_LAUNCH_BOUNDS(THREADS, sizeof(A) == 4 ? 3 : 1)
    columns_kernel(const __grid_constant__ Backward a, int lanes, int stripes, bool of_bias)
{
    gd_in_turn();
    using At = Span<PACKED>;
    __shared__ A shared[THREADS * TILE];
    const int lane = (int)threadIdx.x % lanes, group = (int)threadIdx.x / lanes;
    const int groups = THREADS / lanes, width = lanes * TILE;
    const int64_t tokens = a.rows / a.heads, head = blockIdx.x / stripes;
    const int64_t from = (int64_t)blockIdx.x % stripes * width;
    const At at(from, lane, lanes, a.cols);
    const bool gradient = !of_bias && (a.dx || a.dbranch);
    A w[TILE], dw[TILE] = {};
    if (gradient) get_w(w, a, a.weight, a.weight_per_head ? head * a.cols : 0, at);
    for (int64_t t = (int64_t)blockIdx.y * groups + group; t < tokens;
         t += (int64_t)gridDim.y * groups) {
        const Row row(a, t * a.heads + head);
        A x[TILE], dy[TILE], xhat[TILE];
        const RawTile<A> raw_dy(a.dy, a.y_dtype, row.at(a.dy_stride), at);
        if (of_bias) {
            raw_dy.get(dy, a.y_dtype, at);
#pragma unroll
            for (int j = 0; j < TILE; j++) dw[j] += dy[j];
            continue;
        }
        const RawTile<A> raw_x(a.x, a.dtype, row.at(a.x_stride), at);
        const A rstd = ((const A *)a.rstd)[t * a.heads + head];
        raw_x.get(x, a.dtype, at), raw_dy.get(dy, a.y_dtype, at);
#pragma unroll
        for (int j = 0; j < TILE; j++) xhat[j] = rms_norm_xhat(x[j], rstd);
        if (a.round_before_weight) round_to(xhat, a.y_dtype);
#pragma unroll
        for (int j = 0; j < TILE; j++) dw[j] += rms_norm_dw(dy[j], xhat[j]);
        if (gradient)
            put_gradient(a, row, at, x, dy, w, rstd, ((const A *)a.row_sums)[t * a.heads + head]);
    }
    // The groups' sums are added in their order.
#pragma unroll
    for (int j = 0; j < TILE; j++)
        shared[group * width + at.first - from + j / At::V * at.step + j % At::V] = dw[j];
    __syncthreads();
    A *const partial = (A *)a.workspace + (blockIdx.y * a.heads + head) * a.cols + from;
    for (int j = (int)threadIdx.x; j < width && from + j < a.cols; j += THREADS) {
        A sum = 0;
        for (int g = 0; g < groups; g++) sum += shared[g * width + j];
        partial[j] = sum;
    }
}

// ---- Launching ----------------------------------------------------------------------------------

// Threads for n numbers: the smallest power of two that has them in a tile each, 4 to THREADS.
static int team_for(int64_t n)
{
    int team = 4;
    while (team < THREADS && team * TILE < n) team *= 2;
    return team;
}

template <class Call>
static cudaError_t run_rows(void (*kernel)(Call, int), const Call &a, cudaStream_t stream)
{
    const int team = team_for(a.cols), threads = team > 32 ? team : THREADS;
    return gd_launch_on(stream, gd_grid_for(a.rows, threads / team, threads), kernel, a, team);
}

cudaError_t plain_forward(const Forward &a, bool packed, cudaStream_t stream)
{
    return run_rows(a.is_double
                        ? packed ? forward_kernel<double, true> : forward_kernel<double, false>
                    : packed ? forward_kernel<float, true>
                             : forward_kernel<float, false>,
                    a, stream);
}

cudaError_t plain_rows(const Backward &a, bool packed, cudaStream_t stream)
{
    return run_rows(a.is_double ? packed ? rows_kernel<double, true> : rows_kernel<double, false>
                    : packed ? rows_kernel<float, true>
                                : rows_kernel<float, false>,
                    a, stream);
}

static int64_t stripes_of(const Problem &p)
{
    return p.cols ? gd_ceil_div(p.cols, team_for(p.cols) * TILE) : 1;
}

// Enough pieces for all multiprocessors, each of eight steps or more of a block.
int64_t plain_partials(const Problem &p)
{
    const int64_t most = MOST_BLOCKS / (stripes_of(p) * p.heads) + 1;
    const int64_t pieces = gd_ceil_div(p.rows / p.heads, THREADS / team_for(p.cols) * 8);
    return pieces < most ? pieces : most;
}

cudaError_t plain_columns(const Backward &a, bool packed, bool of_bias, cudaStream_t stream)
{
    const int64_t stripes = stripes_of(a);
    const gd_grid grid = {{(unsigned)(stripes * a.heads), (unsigned)plain_partials(a)}, THREADS};
    const auto run = [&](auto zero) {
        using A = decltype(zero);
        const auto kernel = packed ? columns_kernel<A, true> : columns_kernel<A, false>;
        return gd_launch_on(stream, grid, kernel, a, team_for(a.cols), (int)stripes, of_bias);
    };
    return a.is_double ? run(double()) : run(float());
}

} // namespace gd_rms
