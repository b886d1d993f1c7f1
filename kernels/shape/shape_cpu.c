/* shape_cpu.c - the forwards and backwards of the ops that move elements without changing them.
 *
 * Each element of y is some element of x. So the backward moves each element of dy to the place of
 * its value in x, and sums if an element of x has several copies (expand):
 *
 *     dx[j] = sum over all i with y[i] = x[j] of dy[i]
 *
 * Everything here is a strided copy or a strided sum between two views. */
#include "shape/view.h"
#include "reduce/reduction.h"
#include "loops.h"

typedef struct sum {
    gd_rows rows;
    REAL *dst;
    const REAL *src;
} sum;

static void add_piece(const void *work, int64_t i)
{
    const sum *w = work;
    const int64_t *step = w->rows.step;
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        REAL *to = w->dst + gd_piece_offset(&p, 0);
        const REAL *from = w->src + gd_piece_offset(&p, 1);
        for (int64_t k = 0; k < p.n; k++) to[k * step[0]] += from[k * step[1]];
    }
}

/* dst += src; the views have one shape. */
static void add_view(view dst, view src, gd_context *ctx)
{
    gd_walk walk = gd_walk_over(dst.ndim, dst.shape);
    gd_walk_add(&walk, dst.ndim, dst.shape, dst.strides);
    gd_walk_add(&walk, src.ndim, src.shape, src.strides);
    const sum w = {gd_rows_of(walk), dst.data, src.data};
    gd_for_each(gd_threads_for(gd_context_threads(ctx), gd_walk_count(&walk)), w.rows.pieces,
                add_piece, &w);
}

/* dst = src, or dst += src with `add`. */
static void move(view dst, view src, bool add, gd_context *ctx)
{
    if (add)
        add_view(dst, src, ctx);
    else
        gd_copy_cpu(view_layout(&dst), view_layout(&src), ctx);
}

#define ARGS(type) ((const type *)call->args)

/* ---- y holds the elements of x in the same order: reshape, contiguous, cast ------------------ */

gd_status GD_REAL_NAME(same_order_forward)(const gd_call *call)
{
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    gd_layout x = gd_layout_of(call->input[0]), y = gd_layout_of(call->output[0]);
    if (gd_tensor_is_contiguous(call->input[0])) { /* of another shape, for a reshape */
        x.ndim = y.ndim;
        x.shape = y.shape;
        x.strides = y.strides;
    }
    gd_copy_cpu(y, x, call->context); /* and converts the dtype, for a cast */
    return GD_OK;
}

/* The CPU computes 16-bit types in float32 and rounds what comes out. Not all whole numbers fit
 * into float32, and rounding twice would be wrong: they are converted to the 16-bit type first. */
gd_status GD_REAL_NAME(cast_forward)(const gd_call *call)
{
    const gd_cast_args *args = call->args;
    gd_layout x = gd_layout_of(call->input[0]), y = gd_layout_of(call->output[0]);
    if (x.dtype != GD_INT32 || y.dtype == args->dtype)
        return GD_REAL_NAME(same_order_forward)(call);
    int64_t n = gd_tensor_count(call->output[0]);
    gd_layout rounded = y;
    rounded.dtype = args->dtype;
    rounded.data = gd_call_scratch(call, (size_t)n * gd_dtype_size(args->dtype));
    if (!rounded.data) return gd_error_status(call->context);
    gd_copy_cpu(rounded, x, call->context);
    gd_copy_cpu(y, rounded, call->context);
    return GD_OK;
}

gd_status GD_REAL_NAME(same_order_backward)(const gd_call *call)
{
    const REAL *dy = gd_data(call->doutput[0]);
    REAL *dx = gd_data(call->dinput[0]);
    int64_t n = gd_tensor_count(call->dinput[0]);
    if (!dx || dx == dy) return GD_OK; /* dx took dy's memory */
    if (call->accumulate[0]) {
        gd_dtype dtype = gd_tensor_dtype(call->dinput[0]);
        gd_accumulate_cpu(dx, dtype, dy, dtype, n, call->context);
    } else {
        memcpy(dx, dy, (size_t)n * sizeof *dx); /* [reshape] [contiguous] [cast] */
    }
    return GD_OK;
}

/* ---- permute ------------------------------------------------------------------------------ */

/* dx, in y's order, is dy. For an addition dy is first copied to dx's order: only the copy has a
 * fast transposition. */
gd_status GD_REAL_NAME(permute_backward)(const gd_call *call)
{
    const gd_permute_args *args = call->args;
    gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    const int64_t n = gd_tensor_count(dx);
    const gd_dtype dtype = gd_tensor_dtype(dx);
    view target = permuted(dx, args->axes);
    if (call->accumulate[0]) {
        target.data = gd_call_scratch(call, (size_t)n * sizeof(REAL));
        if (!target.data) return gd_error_status(call->context);
    }
    move(target, whole(call->doutput[0]), false, call->context);
    if (call->accumulate[0])
        gd_accumulate_cpu(gd_tensor_data(dx), dtype, target.data, dtype, n, call->context);
    return GD_OK;
}

/* ---- slice and concat --------------------------------------------------------------------- */

/* Elements outside the slice get no gradient: zeros around dy. */
gd_status GD_REAL_NAME(slice_backward)(const gd_call *call)
{
    const gd_slice_args *args = call->args;
    gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    if (!call->accumulate[0])
        gd_fill_cpu(gd_tensor_data(dx), gd_tensor_dtype(dx), 0, gd_tensor_count(dx), call->context);
    const view of_dy = part(dx, args->axis, args->start, args->end - args->start);
    move(of_dy, whole(call->doutput[0]), call->accumulate[0], call->context);
    return GD_OK;
}

/* Each input is a part of y along the axis, and its gradient that part of dy. */
static gd_status concat(const gd_call *call, const gd_tensor *y, bool backward)
{
    const int axis = ARGS(gd_concat_args)->axis;
    int64_t start = 0;
    for (int i = 0; i < call->inputs; i++) {
        const int64_t size = gd_tensor_dim(call->input[i], axis);
        const view its = part(y, axis, start, size);
        if (!backward)
            move(its, whole(call->input[i]), false, call->context);
        else if (call->dinput[i])
            move(whole(call->dinput[i]), its, call->accumulate[i], call->context);
        start += size;
    }
    return GD_OK;
}

GD_KERNEL_OF_REAL(concat_forward, concat(call, call->output[0], false))
GD_KERNEL_OF_REAL(concat_backward, concat(call, call->doutput[0], true))

/* ---- expand ------------------------------------------------------------------------------- */

/* dx[j] sums dy over the copies of x[j]. */
gd_status GD_REAL_NAME(expand_backward)(const gd_call *call)
{
    const gd_tensor *dx = call->dinput[0], *dy = call->doutput[0];
    if (!dx) return GD_OK;
    gd_reduction r = {.walk = gd_walk_like(dy), .data = {NULL, gd_data(dy)}};
    const view copies = repeated(dx, dy);
    gd_walk_add(&r.walk, copies.ndim, copies.shape, copies.strides);
    gd_walk_add_tensor(&r.walk, dy);
    return gd_reduce_into(dx, call->accumulate[0], call, &r);
}

/* ---- flip --------------------------------------------------------------------------------- */

/* to (+)= from in reverse: in the backward each element goes back to where it came from. */
static gd_status flip(const gd_call *call, const gd_tensor *to, const gd_tensor *from)
{
    const uint32_t axes = ARGS(gd_flip_args)->axes;
    if (to) move(whole(to), flipped(from, axes), gd_adds(call, 0), call->context);
    return GD_OK;
}

GD_KERNELS_OF_REAL(flip, flip(call, call->output[0], call->input[0]),
                   flip(call, call->dinput[0], call->doutput[0]))

/* ---- tril and triu ------------------------------------------------------------------------ */

/* Rows of matrices, of elements that a kernel moves and adds as REAL, or moves as int32. */
typedef struct triangle {
    char *to;
    const char *from;
    int64_t M, N, diagonal;
    size_t size; /* of an element, in bytes */
    bool upper, add;
} triangle;

static void triangle_row(const void *work, int64_t row)
{
    const triangle *w = work;
    const size_t at = (size_t)(row * w->N) * w->size;
    const gd_kept_columns kept = gd_triangle_row(row % w->M, w->N, w->diagonal, w->upper);
    const size_t before = (size_t)kept.first * w->size, length = (size_t)(kept.end - kept.first);
    char *to = w->to + at;
    if (w->add) {
        REAL *sum = (REAL *)(void *)(to + before);
        const REAL *part = (const REAL *)(const void *)(w->from + at + before);
        for (size_t j = 0; j < length; j++) sum[j] += part[j];
        return;
    }
    memset(to, 0, before);
    memcpy(to + before, w->from + at + before, length * w->size);
    memset(to + before + length * w->size, 0, (size_t)(w->N - kept.end) * w->size);
}

/* to (+)= the triangle of from, both packed. */
static gd_status move_triangle(const gd_call *call, const gd_tensor *to, const gd_tensor *from,
                               bool upper, bool add)
{
    if (!to || gd_tensor_count(to) == 0) return GD_OK;
    const gd_triangle_args *args = call->args;
    const triangle w = {.to = gd_data(to),
                        .from = gd_data(from),
                        .M = gd_tensor_dim(to, -2),
                        .N = gd_tensor_dim(to, -1),
                        .diagonal = args->diagonal,
                        .size = gd_dtype_size(gd_tensor_dtype(to)),
                        .upper = upper,
                        .add = add};
    const int64_t count = gd_tensor_count(to);
    return gd_each_piece(call, count, count / w.N, triangle_row, &w);
}

GD_KERNEL_OF_REAL(tril_forward, move_triangle(call, call->output[0], call->input[0], false, false))
GD_KERNEL_OF_REAL(triu_forward, move_triangle(call, call->output[0], call->input[0], true, false))

/* What was replaced by 0 has no gradient. */
GD_KERNEL_OF_REAL(tril_backward, move_triangle(call, call->dinput[0], call->doutput[0], false,
                                               call->accumulate[0]))
GD_KERNEL_OF_REAL(triu_backward,
                  move_triangle(call, call->dinput[0], call->doutput[0], true, call->accumulate[0]))
