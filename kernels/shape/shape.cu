// shape.cu - the ops that move elements, on a GPU: strided copies and strided sums between views,
// as shape_cpu.c has them.
#include "reduce/reduce.cuh"
#include "shape/view.h"

extern "C" gd_copy_service gd_add_cuda; // kernels/copy: dst += src, of one real dtype

// dst = src, or dst += src where asked.
static gd_status move(const gd_call *call, const view &dst, const view &src, bool add)
{
    (add ? gd_add_cuda : gd_copy_cuda)(view_layout(&dst), view_layout(&src), call->context);
    return gd_error_status(call->context);
}

// ---- y holds the elements of x in the same order: reshape, contiguous, cast ---------------------

extern "C" gd_status same_order_forward_cuda(const gd_call *call)
{
    const gd_tensor *x = call->input[0], *y = call->output[0];
    if (gd_tensor_is_contiguous(x)) // of another shape, for a reshape; of another dtype, for a cast
        return move(call, in_a_row(y), in_a_row(x), false);
    return move(call, whole(y), whole(x), false);
}

// Here the record says mixed: every dtype is converted to every other at once.
GD_CUDA_KERNEL(cast_forward, same_order_forward_cuda(call))

extern "C" gd_status same_order_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx || gd_tensor_data(dx) == gd_tensor_data(dy)) return GD_OK; // dx took dy's memory
    if (!call->accumulate[0]) return move(call, in_a_row(dx), in_a_row(dy), false);
    gd_accumulate_cuda(gd_tensor_data(dx), gd_tensor_dtype(dx), gd_tensor_data(dy),
                       gd_tensor_dtype(dy), gd_tensor_count(dx), call->context);
    return gd_error_status(call->context);
}

// ---- permute ----------------------------------------------------------------------------------

// dx, seen in y's order, is dy. To be added, dy is brought to dx's order first: the copy turns it
// by tiles.
extern "C" gd_status permute_backward_cuda(const gd_call *call)
{
    const gd_permute_args *args = (const gd_permute_args *)call->args;
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    const int64_t n = gd_tensor_count(dx);
    view target = permuted(dx, args->axes);
    if (call->accumulate[0]) {
        target.data = gd_call_scratch(call, (size_t)n * gd_dtype_size(target.dtype));
        if (!target.data) return gd_error_status(call->context);
    }
    if (move(call, target, whole(dy), false)) return gd_error_status(call->context);
    if (call->accumulate[0])
        gd_accumulate_cuda(gd_tensor_data(dx), target.dtype, target.data, target.dtype, n,
                           call->context);
    return gd_error_status(call->context);
}

// ---- slice and concat -------------------------------------------------------------------------

// What the slice left out gets no gradient: zeros around dy.
extern "C" gd_status slice_backward_cuda(const gd_call *call)
{
    const gd_slice_args *args = (const gd_slice_args *)call->args;
    const gd_tensor *dx = call->dinput[0];
    if (!dx) return GD_OK;
    gd_begin_gradient(call, 0);
    const view taken = part(dx, args->axis, args->start, args->end - args->start);
    return move(call, taken, whole(call->doutput[0]), call->accumulate[0]);
}

extern "C" gd_status concat_forward_cuda(const gd_call *call)
{
    const gd_concat_args *args = (const gd_concat_args *)call->args;
    int64_t start = 0;
    for (int i = 0; i < call->inputs; i++) {
        const int64_t size = gd_tensor_dim(call->input[i], args->axis);
        const view target = part(call->output[0], args->axis, start, size);
        if (move(call, target, whole(call->input[i]), false)) break;
        start += size;
    }
    return gd_error_status(call->context);
}

extern "C" gd_status concat_backward_cuda(const gd_call *call)
{
    const gd_concat_args *args = (const gd_concat_args *)call->args;
    int64_t start = 0;
    for (int i = 0; i < call->inputs; i++) {
        const int64_t size = gd_tensor_dim(call->input[i], args->axis);
        const gd_tensor *dx = call->dinput[i];
        const view taken = part(call->doutput[0], args->axis, start, size);
        if (dx && move(call, whole(dx), taken, call->accumulate[i])) break;
        start += size;
    }
    return gd_error_status(call->context);
}

// ---- expand -----------------------------------------------------------------------------------

// Two copies of one element that are neighbours in dy are read as one number: their sum.
template <class T>
struct alignas(2 * sizeof(T)) pair_of {
    T a, b;
};
template <class T>
struct gd_compute_type<pair_of<T>> : gd_compute_type<T> {
};
template <class T>
__device__ inline gd_compute<T> gd_load(const pair_of<T> &copies)
{
    return gd_load(copies.a) + gd_load(copies.b);
}

// dx[j] sums dy over the copies of x[j]: over Terms of n elements.
template <class Term, class T>
static gd_status sum_copies(const gd_call *call, T *dx, int n)
{
    int64_t strides[GD_MAX_DIMS];
    gd_layout result = gd_cuda_layout(call->dinput[0]);
    gd_layout terms[] = {gd_cuda_layout(call->doutput[0])};
    for (int d = 0; d < terms->ndim; d++) strides[d] = terms->strides[d] / n;
    terms->strides = strides, terms->ndim -= n - 1, result.ndim -= n - 1;
    return gd_cuda_reduce_over<Term>(call, dx, call->accumulate[0], result, terms->ndim,
                                     terms->shape, terms, gd_sum_of<gd_compute<T>, gd_itself>{});
}

extern "C" gd_status expand_backward_cuda(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    const bool pairs =
        gd_tensor_ndim(dx) > 0 && gd_tensor_dim(dx, -1) == 1 && gd_tensor_dim(dy, -1) == 2;
    return gd_by_kernel_dtype(call, [&](auto zero) {
        using T = decltype(zero);
        if (pairs && gd_pack<T, 2>::aligned(gd_tensor_data(dy)))
            return sum_copies<pair_of<T>>(call, gd_ptr<T>(dx), 2);
        return sum_copies<T>(call, gd_ptr<T>(dx), 1);
    });
}

// ---- flip --------------------------------------------------------------------------------------

extern "C" gd_status flip_forward_cuda(const gd_call *call)
{
    const gd_flip_args *args = (const gd_flip_args *)call->args;
    return move(call, whole(call->output[0]), flipped(call->input[0], args->axes), false);
}

// Each element goes back to where it came from.
extern "C" gd_status flip_backward_cuda(const gd_call *call)
{
    const gd_flip_args *args = (const gd_flip_args *)call->args;
    const gd_tensor *dx = call->dinput[0];
    if (!dx) return GD_OK;
    const view dy = flipped(call->doutput[0], args->axes);
    return move(call, whole(dx), dy, call->accumulate[0]);
}

// ---- tril and triu ------------------------------------------------------------------------------

constexpr int triangle_side = 32, triangle_rows = 8; // a block of threads

// A warp has a row. Unit: a number of type T, or where nothing is added any type of that size.
template <class Unit, bool ADD>
static __global__ void triangle_kernel(Unit *to, const Unit *from, int64_t rows, int64_t M,
                                       int64_t N, int64_t diagonal, bool upper)
{
    gd_in_turn();
    for (int64_t row = (int64_t)blockIdx.x * triangle_rows + threadIdx.y; row < rows;
         row += (int64_t)gridDim.x * triangle_rows) {
        const gd_kept_columns kept = gd_triangle_row(row % M, N, diagonal, upper);
        for (int64_t j = threadIdx.x; j < N; j += triangle_side) {
            const bool inside = j >= kept.first && j < kept.end;
            Unit *out = to + row * N + j;
            if constexpr (ADD) {
                if (inside) *out = gd_store<Unit>(gd_load(*out) + gd_load(from[row * N + j]));
            } else {
                *out = inside ? from[row * N + j] : Unit();
            }
        }
    }
}

template <class Unit, bool ADD>
static gd_status launch_triangle(const gd_call *call, const gd_tensor *to, const gd_tensor *from,
                                 bool upper)
{
    const int64_t M = gd_tensor_dim(to, -2), N = gd_tensor_dim(to, -1);
    const int64_t rows = gd_tensor_count(to) / N;
    return gd_launch(call, gd_grid_for(rows, triangle_rows, {triangle_side, triangle_rows}),
                     triangle_kernel<Unit, ADD>, gd_ptr<Unit>(to), gd_ptr<const Unit>(from), rows,
                     M, N, ((const gd_triangle_args *)call->args)->diagonal, upper);
}

static gd_status move_triangle(const gd_call *call, const gd_tensor *to, const gd_tensor *from,
                               bool upper, bool add)
{
    if (!to || gd_tensor_count(to) == 0) return GD_OK;
    if (add) {
        return gd_by_dtype(gd_tensor_dtype(to), [&](auto zero) {
            return launch_triangle<decltype(zero), true>(call, to, from, upper);
        });
    }
    switch (gd_dtype_size(gd_tensor_dtype(to))) {
    case 2:
        return launch_triangle<uint16_t, false>(call, to, from, upper);
    case 4:
        return launch_triangle<uint32_t, false>(call, to, from, upper);
    default:
        return launch_triangle<uint64_t, false>(call, to, from, upper);
    }
}

GD_CUDA_KERNEL(tril_forward, move_triangle(call, call->output[0], call->input[0], false, false))
GD_CUDA_KERNEL(triu_forward, move_triangle(call, call->output[0], call->input[0], true, false))

// What was replaced by 0 has no gradient.
GD_CUDA_KERNEL(tril_backward,
               move_triangle(call, call->dinput[0], call->doutput[0], false, call->accumulate[0]))
GD_CUDA_KERNEL(triu_backward,
               move_triangle(call, call->dinput[0], call->doutput[0], true, call->accumulate[0]))
