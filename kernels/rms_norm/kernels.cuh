// kernels.cuh - shared by the CUDA kernels of RMSNorm: the problem that they are given, the types
// they are compiled for, and the arithmetic of one pack of a row.
//
// rms_norm.cu checks a call and chooses its kernels by plan.cuh; CUDA.md says what each is for.
#ifndef GD_RMS_NORM_KERNELS_CUH
#define GD_RMS_NORM_KERNELS_CUH

#include "async.cuh"
#include "column_sum.cuh"
#include "gradus/kernels.h"
#include "rms_norm/formula.h"
#include "rms_norm/plan.cuh"
#include "team.cuh"

namespace gd_rms
{

// ---- The problem as the kernels get it ----------------------------------------------------------

// Rows are counted by token and head; without heads, which are 1 then, every row is a token.
struct Problem : gd_rms_norm_problem {
    bool is_double;                         // sums and rstd are
    bool keep;                              // inputs should outlive results in L2 (async.cuh)
    float float_eps, float_offset, per_col; // enough for the fast kernels; per_col: 1 / cols
};

struct Forward : Problem, gd_rms_norm_values {
};

// The workspace is [P, heads, cols]: partial sums of dweight or dbias, float or double.
struct Backward : Problem, gd_rms_norm_gradients {
};

// The offset of a row in a tensor: token * stride + column.
struct Row {
    int64_t token, column;
    int64_t weight; // the offset of its weights

    // Where there are no heads.
    __device__ explicit Row(int64_t row) : token(row), column(0), weight(0) {}

    // Index: int in the fast kernels, since 32-bit divisions are several times faster.
    template <class Index>
    __device__ Row(const Problem &p, Index row) : token(row), column(0), weight(0)
    {
        if (p.heads == 1) return;
        const Index heads = (Index)p.heads, t = row / heads;
        token = t;
        column = (row - t * heads) * p.cols;
        if (p.weight_per_head) weight = column;
    }
    __device__ int64_t at(int64_t stride) const
    {
        return token * stride + column;
    }
    // What is read is not written.
    template <class T>
    __device__ T *of(const void *tensor, int64_t stride) const
    {
        return (T *)tensor + at(stride);
    }
};

// ---- Types --------------------------------------------------------------------------------------

// S is the type of the normalised tensor (x, or the sum), B that of y and dy, and of x when it is
// added to a residual. A thread handles a pack of V elements of each at a time: 16 bytes of the
// narrower type, and so 16 or 32 of the other.
template <class S, class B>
constexpr int pack_size = 16 / (int)(sizeof(S) < sizeof(B) ? sizeof(S) : sizeof(B));

// Calls body(S(), B(), ADD) for what the fast kernels are compiled for. ADD, std::true_type or
// std::false_type: there is one more input, the residual or dsum.
template <class Body>
static cudaError_t by_inputs(const Problem &p, bool adds, Body body)
{
    const auto with = [&](auto s, auto b) {
        return adds ? body(s, b, std::true_type()) : body(s, b, std::false_type());
    };
    if (p.dtype == GD_BFLOAT16) return with(__nv_bfloat16(), __nv_bfloat16());
    if (p.dtype == GD_FLOAT16) return with(__half(), __half());
    if (p.y_dtype == GD_BFLOAT16) return with(float(), __nv_bfloat16());
    if (p.y_dtype == GD_FLOAT16) return with(float(), __half());
    return with(float(), float());
}

// Whether rows are not aligned, or not whole packs. Then a warp's packs are spread: the elements of
// each are 32 apart (pack.cuh), so that lanes read neighbours, and packs are counted in warps.
template <class Body>
static cudaError_t by_spread(bool spread, Body body)
{
    return spread ? body(std::true_type()) : body(std::false_type());
}

// The packs of a row; its columns may end in some of the last 32.
template <bool SPREAD, int V>
__device__ inline int packs_of(int64_t cols)
{
    return SPREAD ? ((int)cols + 32 * V - 1) / (32 * V) * 32 : (int)(cols / V);
}

// The first column of pack i.
template <bool SPREAD, int V>
__device__ inline int column_of(int i)
{
    return SPREAD ? i * V - i % 32 * (V - 1) : i * V;
}

// Calls body(std::integral_constant<int, n>()), n being one of NUMBERS.
template <int... NUMBERS, class Body>
static cudaError_t by_number(int n, Body body)
{
    cudaError_t error = cudaErrorInvalidConfiguration;
    ((n == NUMBERS ? (void)(error = body(std::integral_constant<int, NUMBERS>())) : (void)0), ...);
    return error;
}

// The same inside a kernel for the weight, which is float or B. Must enclose the loops over a row:
// inside them the branch would keep their loads from overlapping.
template <class B, class Body>
__device__ __forceinline__ void by_weight(gd_dtype dtype, Body body)
{
    if (sizeof(B) == 4 || dtype == GD_FLOAT32)
        body(float());
    else
        body(B());
}

// ---- One pack -----------------------------------------------------------------------------------

// Pack i of a row, past L1; zeros beyond its columns.
template <bool SPREAD, int V, class T>
__device__ inline gd_raw<T, V> load_pack(const T *row, int i, int64_t cols, uint64_t policy)
{
    const int at = column_of<SPREAD, V>(i);
    if constexpr (SPREAD)
        return gd_load_spread<T, V>(row + at, (int)cols - at, T(0.0f));
    else
        return gd_raw<T, V>::load_streaming(row, i, policy);
}

template <bool SPREAD, int V, class T>
__device__ inline void store_pack(T *row, int i, int64_t cols, const gd_raw<T, V> &raw)
{
    const int at = column_of<SPREAD, V>(i);
    if constexpr (SPREAD)
        gd_store_spread(row + at, raw, (int)cols - at);
    else
        raw.store(row, i);
}

// Pack i of weight or bias; ones if it is absent. NOW: by a volatile load, which the compiler does
// not move down to where the values are used.
template <class W, int V, bool SPREAD = false, bool NOW = false>
__device__ inline gd_raw<W, V> load_weight(const W *weight, int64_t i, int64_t cols = 0)
{
    constexpr unsigned ONE = std::is_same_v<W, float>    ? 0x3f800000u
                             : std::is_same_v<W, __half> ? 0x3c003c00u
                                                         : 0x3f803f80u;
    const int at = column_of<SPREAD, V>((int)i);
    gd_raw<W, V> raw;
    if (SPREAD) raw = gd_load_spread<W, V>(weight + at, weight ? (int)cols - at : 0, W(1.0f));
#pragma unroll
    for (int k = 0; !SPREAD && k < (int)sizeof raw / 16; k++) {
        uint4 &v = raw.part[k];
        const uint4 *const from = (const uint4 *)(weight + i * V) + k;
        v = make_uint4(ONE, ONE, ONE, ONE);
        if (weight && NOW)
            asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"(from));
        else if (weight)
            v = __ldg(from);
    }
    return raw;
}

// w = weight + offset. Without a weight the pack is ones, and offset must be 0.
template <class W, int V>
__device__ inline void w_of(float (&w)[V], const gd_raw<W, V> &weight, float offset)
{
    weight.widen(w);
    if (offset != 0)
#pragma unroll
        for (int j = 0; j < V; j++) w[j] += offset;
}

// The w of all packs of this thread, `first`, first + step, ... behind element `from`; zeros beyond
// `count` of them.
template <class B, bool SPREAD = false, int V, int CHUNKS>
__device__ inline void load_w(float (&w)[CHUNKS][V], const Problem &p, const void *weight,
                              int64_t from, int first, int step, int count)
{
    by_weight<B>(p.weight_dtype, [&](auto zero) {
        using W = decltype(zero);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            gd_raw<W, V> raw = {};
            if (c < count)
                raw = load_weight<W, V, SPREAD>(weight ? (const W *)weight + from : nullptr,
                                                first + c * step, p.cols);
            w_of<W>(w[c], raw, weight ? p.float_offset : 0.0f);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (c >= count) w[c][j] = 0;
        }
    });
}

// v rounded to T and back.
template <class T>
__device__ inline float rounded(float v)
{
    return gd_load(gd_store<T>(v));
}

// sum += x: of the bias to y, and of dsum to dx.
template <class T, int V>
__device__ inline void add_pack(float (&sum)[V], const gd_raw<T, V> &raw)
{
    float x[V];
    raw.widen(x);
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] += x[j];
}

// x + residual as the sum is stored.
template <class S, class B, int V>
__device__ inline gd_raw<S, V> sum_pack(const gd_raw<S, V> &residual, const gd_raw<B, V> &x)
{
    float sum[V];
    residual.widen(sum);
    add_pack(sum, x);
    return gd_raw<S, V>::narrow(sum);
}

template <class S, int V>
__device__ inline float add_squares(float sum, const gd_raw<S, V> &raw)
{
    float x[V];
    raw.widen(x);
#pragma unroll
    for (int j = 0; j < V; j++) sum = fmaf(x[j], x[j], sum);
    return sum;
}

// formula.h's rstd, 1 / sqrt(sum / N + eps): the fast approximation, accurate to two units in
// the last place, and one Newton step. If the approximation is 0, infinite or NaN, it is
// returned as it is.
__device__ inline float rstd_of(float sum, const Problem &p)
{
    const float v = fmaf(sum, p.per_col, p.float_eps);
    const float r = rsqrtf(v), error = fmaf(-v * r, r, 1.0f);
    return fabsf(error) < 0.5f ? fmaf(0.5f * r, error, r) : r;
}

// y = x rstd w of one pack.
template <class S, class B, int V>
__device__ inline void norm_pack(float (&y)[V], gd_raw<S, V> x, float rstd, bool round,
                                 const float (&w)[V])
{
    x.forget();
    x.widen(y);
#pragma unroll
    for (int j = 0; j < V; j++) y[j] = rms_norm_xhat(y[j], rstd);
    if (sizeof(B) == 2 && round)
#pragma unroll
        for (int j = 0; j < V; j++) y[j] = rounded<B>(y[j]);
#pragma unroll
    for (int j = 0; j < V; j++) y[j] *= w[j];
}

// sum += h * x of one pack. This is dot / rstd of formula.h; the caller multiplies by rstd once per
// row. Written out, since in backward_cluster.cu calls of the formulas compile to other code.
template <class S, class B, int V>
__device__ inline float add_products(float sum, const gd_raw<S, V> &x_raw,
                                     const gd_raw<B, V> &dy_raw, const float (&w)[V])
{
    float x[V], dy[V];
    x_raw.widen(x), dy_raw.widen(dy);
#pragma unroll
    for (int j = 0; j < V; j++) sum = fmaf(dy[j] * w[j], x[j], sum);
    return sum;
}

// dx = u w - c x and dw += u x of one pack, with u = dy rstd and c = rstd^2 m: four operations
// per number; formula.h's dx and dw, written out for the same reason.
template <class S, class B, int V>
__device__ inline void gradient_pack(float (&dx)[V], float (&dw)[V], gd_raw<S, V> x_raw,
                                     gd_raw<B, V> dy_raw, const float (&w)[V], float rstd, float c,
                                     bool round)
{
    float x[V], dy[V];
    x_raw.forget(), dy_raw.forget();
    x_raw.widen(x), dy_raw.widen(dy);
    if (sizeof(B) == 2 && round) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            dw[j] = fmaf(dy[j], rounded<B>(x[j] * rstd), dw[j]);
            dx[j] = fmaf(dy[j] * rstd, w[j], -x[j] * c);
        }
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float u = dy[j] * rstd;
            dw[j] = fmaf(u, x[j], dw[j]);
            dx[j] = fmaf(u, w[j], -x[j] * c);
        }
    }
}

// Pack i of dx, plus dsum if there is one, to the rows where it is wanted.
template <class S, class B, bool ADD, bool SPREAD = false, int V>
__device__ inline void store_gradient(const Backward &a, S *dx_row, B *dbranch_row, int i,
                                      float (&dx)[V], const gd_raw<S, V> &dsum)
{
    if (ADD) add_pack(dx, dsum);
    if (a.dx) store_pack<SPREAD, V>(dx_row, i, a.cols, gd_raw<S, V>::narrow(dx));
    if (a.dbranch) store_pack<SPREAD, V>(dbranch_row, i, a.cols, gd_raw<B, V>::narrow(dx));
}

// Partial sums of dw: pack i of a row of them.
template <bool SPREAD = false, int V>
__device__ inline void store_sums(float *sums, int64_t i, const float (&dw)[V], int64_t cols = 0)
{
    if (SPREAD) store_pack<SPREAD, V>(sums, (int)i, cols, gd_raw<float, V>::narrow(dw));
#pragma unroll
    for (int j = 0; !SPREAD && j < V; j += 4)
        *(float4 *)(sums + i * V + j) = make_float4(dw[j], dw[j + 1], dw[j + 2], dw[j + 3]);
}

// ---- Launching ----------------------------------------------------------------------------------

// Each launches its kernel on the stream.
cudaError_t forward_registers(const Forward &a, const ForwardPlan &plan, bool spread,
                              cudaStream_t stream);
cudaError_t forward_cluster(const Forward &a, const ClusterPlan &plan, cudaStream_t stream);
cudaError_t backward_few(const Backward &a, cudaStream_t stream);
cudaError_t backward_block(const Backward &a, const BlockPlan &plan, bool spread,
                           cudaStream_t stream);
cudaError_t backward_cluster(const Backward &a, const ClusterPlan &plan, cudaStream_t stream);

// plain.cu takes packs of the fast kernels' dtypes, aligned or spread, or spread ones of any.
enum Access { PACKS, SPREAD_PACKS, ANY_DTYPE };
cudaError_t plain_forward(const Forward &a, Access by, cudaStream_t stream);
cudaError_t plain_backward(const Backward &a, Access by, cudaStream_t stream); // dx
// Partial sums of dy xhat, or of dy alone, and rows of them.
cudaError_t plain_sums(const Backward &a, Access by, bool of_bias, cudaStream_t stream);
int64_t plain_partials(const Problem &p);

} // namespace gd_rms
#endif
