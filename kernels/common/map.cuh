// map.cuh - a function of each element, of operands with any strides:
//
//     out[i] = f(in0[i], in1[i], ...)         or, to add into a gradient,   out[i] += ...
//
// Memory moves fastest in packs of 16 bytes, 8 bfloat16 or 4 floats. So a thread has the elements
// of one pack. If the operands allow it, these are neighbours and are loaded at once; along an axis
// where an operand is repeated (stride 0), one element of it serves the pack. Otherwise a thread's
// elements are as far apart as the block has threads, so that neighbouring threads still access
// neighbouring elements.
#ifndef GD_MAP_CUH
#define GD_MAP_CUH

#include <utility>

#include "pack.cuh"

// ---- Packs ------------------------------------------------------------------------------------

// A condition (of where) as a number: 0 only for 0.
__device__ inline float gd_load(int32_t x)
{
    return (float)x;
}

// x[j] = from[j], of an aligned pack.
template <class A, int N, class V>
__device__ inline void gd_load_aligned(V (&x)[N], const A *from)
{
    const gd_raw<A, N> raw = *(const gd_raw<A, N> *)from;
    A value[N];
    memcpy(value, &raw, sizeof raw);
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = gd_load(value[j]);
}

// to[j] = (add ? to[j] : 0) + x[j], the same way.
template <class A, int N, class V>
__device__ inline void gd_store_aligned(A *to, bool add, const V (&x)[N])
{
    A value[N];
    V old[N] = {};
    if (add) gd_load_aligned(old, to);
#pragma unroll
    for (int j = 0; j < N; j++) value[j] = gd_store<A>(add ? old[j] + x[j] : x[j]);
    gd_raw<A, N> raw;
    memcpy(&raw, value, sizeof raw);
    *(gd_raw<A, N> *)to = raw;
}

// ---- Functions ----------------------------------------------------------------------------------

// A function of elements of one type, REAL, as a struct: GD_MAP_FUNCTION(difference, a - b,
// REAL a, REAL b)
#define GD_MAP_FUNCTION(name, value, ...)             \
    struct name {                                     \
        template <class REAL>                         \
        __device__ REAL operator()(__VA_ARGS__) const \
        {                                             \
            return value;                             \
        }                                             \
    };

// ---- Operands ---------------------------------------------------------------------------------

// The operands of a kernel: the first F are of type First, the others are of type T.
template <class T, class First, int K, int F>
struct gd_operands {
    const void *data[K];
    bool packed[K]; // neighbours along the innermost axis lie side by side; else they are the same

    // x[k][j] = the element of operand k at j places after offset[k]
    template <int N>
    __device__ void load(const int64_t (&offset)[K], gd_compute<T> (&x)[K][N]) const
    {
#pragma unroll
        for (int k = 0; k < F; k++) load_one<First>(k, offset[k], x[k]);
#pragma unroll
        for (int k = F; k < K; k++) load_one<T>(k, offset[k], x[k]);
    }

  private:
    template <class A, int N>
    __device__ void load_one(int k, int64_t offset, gd_compute<T> (&x)[N]) const
    {
        const A *from = (const A *)data[k] + offset;
        if (N == 1 || packed[k]) {
            gd_load_aligned(x, from);
        } else {
            const gd_compute<T> same = gd_load(*from);
#pragma unroll
            for (int j = 0; j < N; j++) x[j] = same;
        }
    }
};

// What a function with two results returns: the gradients of its two operands.
template <class V>
struct gd_two {
    V of[2];
};

// f of element j of each operand.
template <class V, int K, int N, class Function, size_t... OPERAND>
__device__ inline auto gd_evaluate(const Function &f, const V (&x)[K][N], int j,
                                   std::index_sequence<OPERAND...>)
{
    return f(x[OPERAND][j]...);
}
template <class V, int K, int N, class Function>
__device__ inline auto gd_evaluate(const Function &f, const V (&x)[K][N], int j)
{
    return gd_evaluate(f, x, j, std::make_index_sequence<K>());
}

// `in` as operands; they are number `first` and so on of the walk.
template <class T, class First, int F, int K, int W>
static inline gd_operands<T, First, K, F> gd_operands_of(const gd_layout (&in)[K],
                                                         const gd_cuda_walk<W> &walk, int first)
{
    gd_operands<T, First, K, F> operands = {};
    for (int k = 0; k < K; k++) {
        operands.data[k] = in[k].data;
        operands.packed[k] = walk.ndim && walk.stride[first + k][walk.ndim - 1] == 1;
    }
    return operands;
}

// Whether every gd_pack_size<T> neighbours along the innermost axis can be loaded at once. (The
// caller ensures that they are neighbours, and none is in the next row.)
template <class T, class First, int F, int K, int W>
static inline bool gd_packs_fit(const gd_operands<T, First, K, F> &in, const gd_cuda_walk<W> &walk,
                                int first)
{
    constexpr int N = gd_pack_size<T>;
    const int last = walk.ndim - 1;
    for (int k = 0; k < K; k++) {
        const int64_t *stride = walk.stride[first + k];
        const bool aligned =
            k < F ? gd_pack<First, N>::aligned(in.data[k]) : gd_pack<T, N>::aligned(in.data[k]);
        if (last < 0 || !(in.packed[k] ? aligned : stride[last] == 0)) return false;
        for (int d = 0; in.packed[k] && d < last; d++)
            if (stride[d] % N) return false;
    }
    return true;
}

// ---- The kernel -------------------------------------------------------------------------------

// The walk of operands that are all packed: element i is at i.
template <int K>
struct gd_flat_walk {
    int64_t count;

    __device__ void at(int64_t i, int64_t *offset) const
    {
#pragma unroll
        for (int k = 0; k < K; k++) offset[k] = i;
    }
};

// Where the results of a function are stored, or to what they are added.
template <class T, int R>
struct gd_results {
    T *out[R];
    bool add[R];

    template <int N>
    __device__ void store(int64_t i, const gd_compute<T> (&y)[N]) const
    {
        gd_store_aligned(out[0] + i, add[0], y);
    }
    template <int N>
    __device__ void store(int64_t i, const gd_two<gd_compute<T>> (&y)[N]) const
    {
        for (int r = 0; r < R; r++) {
            gd_compute<T> one[N];
#pragma unroll
            for (int j = 0; j < N; j++) one[j] = y[j].of[r];
            gd_store_aligned(out[r] + i, add[r], one);
        }
    }
};

// Elements i to i + N - 1. All are read before any is written: out may be an operand.
template <int N, class T, int R, class First, int K, int F, class Walk, class Function>
__device__ inline void gd_map_at(const gd_results<T, R> &to, int64_t i, const Walk &walk,
                                 const gd_operands<T, First, K, F> &in, const Function &f)
{
    int64_t offset[K];
    gd_compute<T> x[K][N];
    walk.at(i, offset);
    in.load(offset, x);
    decltype(gd_evaluate(f, x, 0)) y[N];
#pragma unroll
    for (int j = 0; j < N; j++) y[j] = gd_evaluate(f, x, j);
    to.store(i, y);
}

template <class T, int R, class First, int K, int F, class Walk, class Function>
__global__ void __launch_bounds__(gd_threads)
    gd_map_kernel(gd_results<T, R> to, Walk walk, gd_operands<T, First, K, F> in, bool packs,
                  Function f)
{
    gd_in_turn();
    constexpr int N = gd_pack_size<T>;
    const int64_t tile = (int64_t)gd_threads * N, n = walk.count;
    for (int64_t start = blockIdx.x * tile; start < n; start += gridDim.x * tile) {
        int64_t i = start + (packs ? (int)threadIdx.x * N : (int)threadIdx.x);
        if (packs && i + N <= n) {
            gd_map_at<N>(to, i, walk, in, f);
        } else {
            const int apart = packs ? 1 : gd_threads;
#pragma unroll 1
            for (int j = 0; j < N && i < n; j++, i += apart) gd_map_at<1>(to, i, walk, in, f);
        }
    }
}

template <class T, int R, class First, int K, int F, class Walk, class Function>
static inline gd_status gd_map_launch(const gd_call *call, const gd_results<T, R> &to,
                                      const Walk &walk, const gd_operands<T, First, K, F> &in,
                                      bool packs, Function f)
{
    for (T *out : to.out) packs = packs && gd_pack<T, gd_pack_size<T>>::aligned(out);
    const gd_grid grid = gd_grid_for(walk.count, gd_threads * gd_pack_size<T>);
    return gd_launch(call, grid, gd_map_kernel<T, R, First, K, F, Walk, Function>, to, walk, in,
                     packs, f);
}

// to.out[i] = (to.add ? to.out[i] : 0) + f(in[0][i], in[1][i], ...) over the shape of `like`, to
// which the operands are broadcast. What is stored is packed, and may be the memory of an operand
// of that shape.
template <class T, class First = T, int F = 1, int R, int K, class Function>
static inline gd_status gd_map(const gd_call *call, const gd_results<T, R> &to,
                               const gd_tensor *like, const gd_layout (&in)[K], Function f)
{
    const auto walk = gd_cuda_walk_over(gd_tensor_ndim(like), gd_tensor_shape(like), in);
    if (walk.count == 0) return GD_OK;
    const auto operands = gd_operands_of<T, First, F>(in, walk, 0);
    const bool packs = gd_packs_fit(operands, walk, 0) &&
                       (walk.ndim == 1 || walk.shape[walk.ndim - 1] % gd_pack_size<T> == 0);
    return gd_map_launch(call, to, walk, operands, packs, f);
}
template <class T, class First = T, int F = 1, int K, class Function>
static inline gd_status gd_map(const gd_call *call, T *out, bool add, const gd_tensor *like,
                               const gd_layout (&in)[K], Function f)
{
    return gd_map<T, First, F>(call, gd_results<T, 1>{{out}, {add}}, like, in, f);
}

// The same over n elements of operands that are all packed.
template <class T, int K, class Function>
static inline gd_status gd_map_flat(const gd_call *call, T *out, bool add, int64_t n,
                                    const T *const (&in)[K], Function f)
{
    constexpr int N = gd_pack_size<T>;
    gd_operands<T, T, K, 1> operands = {};
    bool packs = true;
    for (int k = 0; k < K; k++) {
        operands.data[k] = in[k];
        operands.packed[k] = true;
        packs = packs && gd_pack<T, N>::aligned(in[k]);
    }
    return gd_map_launch(call, gd_results<T, 1>{{out}, {add}}, gd_flat_walk<K>{n}, operands, packs,
                         f);
}

// ---- Functions of one packed input --------------------------------------------------------------

// Number i of the arguments, if these are numbers; 0 where there is none.
static inline double gd_map_number(const gd_call *call, int i)
{
    return call->args ? gd_option_of_dtype(call->dtype, ((const double *)call->args)[i]) : 0;
}

// to (+)= the function of the operands.
template <template <class> class Function, int K>
static gd_status gd_map_packed(const gd_call *call, gd_tensor *to, bool add,
                               const gd_tensor *const (&from)[K])
{
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        const Function<gd_compute<T>> f = {(gd_compute<T>)gd_map_number(call, 0),
                                           (gd_compute<T>)gd_map_number(call, 1)};
        const T *in[K];
        for (int k = 0; k < K; k++) in[k] = gd_ptr<T>(from[k]);
        return gd_map_flat(call, gd_ptr<T>(to), add, gd_tensor_count(to), in, f);
    });
}

template <template <class> class Value>
static gd_status gd_map_forward(const gd_call *call)
{
    return gd_map_packed<Value, 1>(call, call->output[0], false, {call->input[0]});
}

// The record says what the backward reads; if it reads only dy, dy is passed for it.
template <template <class> class Gradient>
static gd_status gd_map_backward(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    const gd_tensor *dy = call->doutput[0], *read = dy;
    if (call->op->backward_reads_inputs) read = call->input[0];
    if (call->op->backward_reads_outputs) read = call->output[0];
    return gd_map_packed<Gradient, 2>(call, call->dinput[0], call->accumulate[0], {dy, read});
}

// Both kernels of an op, as loops.h has them for the CPU: `x` of a gradient is x or y.
#define GD_MAP_OP(name, value, gradient)                               \
    template <class REAL>                                              \
    struct name##_value {                                              \
        REAL p, q;                                                     \
        __device__ REAL operator()(REAL x) const                       \
        {                                                              \
            return value;                                              \
        }                                                              \
    };                                                                 \
    template <class REAL>                                              \
    struct name##_gradient {                                           \
        REAL p, q;                                                     \
        __device__ REAL operator()(REAL dy, REAL x) const              \
        {                                                              \
            [[maybe_unused]] const REAL y = x;                         \
            return gradient;                                           \
        }                                                              \
    };                                                                 \
    GD_CUDA_KERNEL(name##_forward, gd_map_forward<name##_value>(call)) \
    GD_CUDA_KERNEL(name##_backward, gd_map_backward<name##_gradient>(call))

#endif
