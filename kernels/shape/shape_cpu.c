/* shape_cpu.c - the forwards and backwards of the ops that move elements without changing them.
 *
 * Each element of y is some element of x. So the backward sends each element of dy to where its
 * value came from, and adds up where an element of x went to several places (expand) :
 *
 *     dx[j] = sum over all i with y[i] = x[j] of dy[i]
 *
 * Everything here is a strided copy or a strided sum between two windows. */
#include "shape/shape.h"
#include "walk.h"

/* A window on packed memory: the shape and strides that walk through part of it. */
typedef struct window {
    REAL *data;
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
} window;

static window whole(const gd_tensor *t)
{
    window w = {.data = gd_tensor_data(t), .ndim = gd_tensor_ndim(t)};
    for (int d = 0; d < w.ndim; d++) {
        w.shape[d] = gd_tensor_shape(t)[d];
        w.strides[d] = gd_tensor_strides(t)[d];
    }
    return w;
}

/* dst = src, or dst += src where asked; the windows have one shape. */
static void move(window dst, window src, bool add, int threads)
{
    gd_walk walk = gd_walk_over(dst.ndim, dst.shape);
    gd_walk_add(&walk, dst.ndim, dst.shape, dst.strides);
    gd_walk_add(&walk, src.ndim, src.shape, src.strides);
    gd_walk_merge(&walk);
    int64_t total = gd_walk_count(&walk), step[GD_WALK_OPERANDS];
    int64_t n = gd_walk_take_last(&walk, step), rows = n ? total / n : 0;
#pragma omp parallel for num_threads(gd_threads_for(threads, total)) schedule(static) \
    firstprivate(walk)
    for (int64_t row = 0; row < rows; row++) {
        gd_walk_seek(&walk, row);
        REAL *to = dst.data + walk.offset[0];
        const REAL *from = src.data + walk.offset[1];
        if (add) {
            for (int64_t i = 0; i < n; i++) to[i * step[0]] += from[i * step[1]];
        } else {
            for (int64_t i = 0; i < n; i++) to[i * step[0]] = from[i * step[1]];
        }
    }
}

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
    gd_copy_cpu(y, x, call->threads); /* and converts the dtype, for a cast */
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
        gd_accumulate_cpu(dx, dtype, dy, dtype, n, call->threads);
    } else {
        memcpy(dx, dy, (size_t)n * sizeof *dx);
    }
    return GD_OK;
}

/* ---- permute ------------------------------------------------------------------------------ */

/* x [n0, n1, ...] seen with its dimensions in the order of y. */
static window permuted(const gd_tensor *x, const int *axes)
{
    window w = whole(x), v = w;
    for (int d = 0; d < w.ndim; d++) {
        v.shape[d] = w.shape[axes[d]];
        v.strides[d] = w.strides[axes[d]];
    }
    return v;
}

gd_status GD_REAL_NAME(permute_forward)(const gd_call *call)
{
    const gd_permute_args *args = call->args;
    move(whole(call->output[0]), permuted(call->input[0], args->axes), false, call->threads);
    return GD_OK;
}

/* dx, seen in y's order, is dy. */
gd_status GD_REAL_NAME(permute_backward)(const gd_call *call)
{
    const gd_permute_args *args = call->args;
    if (!call->dinput[0]) return GD_OK;
    move(permuted(call->dinput[0], args->axes), whole(call->doutput[0]), call->accumulate[0],
         call->threads);
    return GD_OK;
}

/* ---- slice and concat --------------------------------------------------------------------- */

/* t[..., start : start + size, ...] along one axis. */
static window part(const gd_tensor *t, int axis, int64_t start, int64_t size)
{
    window w = whole(t);
    if (w.data) w.data += start * w.strides[axis];
    w.shape[axis] = size;
    return w;
}

gd_status GD_REAL_NAME(slice_forward)(const gd_call *call)
{
    const gd_slice_args *args = call->args;
    move(whole(call->output[0]),
         part(call->input[0], args->axis, args->start, args->end - args->start), false,
         call->threads);
    return GD_OK;
}

/* What the slice left out gets no gradient: zeros around dy. */
gd_status GD_REAL_NAME(slice_backward)(const gd_call *call)
{
    const gd_slice_args *args = call->args;
    gd_tensor *dx = call->dinput[0];
    if (!dx || gd_tensor_count(dx) == 0) return GD_OK;
    if (!call->accumulate[0]) {
        gd_fill_cpu(gd_tensor_data(dx), gd_tensor_dtype(dx), 0, gd_tensor_count(dx), call->threads);
    }
    move(part(dx, args->axis, args->start, args->end - args->start), whole(call->doutput[0]),
         call->accumulate[0], call->threads);
    return GD_OK;
}

gd_status GD_REAL_NAME(concat_forward)(const gd_call *call)
{
    const gd_concat_args *args = call->args;
    int64_t start = 0;
    for (int i = 0; i < call->inputs; i++) {
        int64_t size = gd_tensor_dim(call->input[i], args->axis);
        move(part(call->output[0], args->axis, start, size), whole(call->input[i]), false,
             call->threads);
        start += size;
    }
    return GD_OK;
}

gd_status GD_REAL_NAME(concat_backward)(const gd_call *call)
{
    const gd_concat_args *args = call->args;
    int64_t start = 0;
    for (int i = 0; i < call->inputs; i++) {
        int64_t size = gd_tensor_dim(call->input[i], args->axis);
        if (call->dinput[i]) {
            move(whole(call->dinput[i]), part(call->doutput[0], args->axis, start, size),
                 call->accumulate[i], call->threads);
        }
        start += size;
    }
    return GD_OK;
}

/* ---- expand ------------------------------------------------------------------------------- */

/* x seen with y's shape: stride 0 along what is repeated. */
static window repeated(const gd_tensor *x, const gd_tensor *y)
{
    window w = whole(x), v = whole(y);
    int missing = v.ndim - w.ndim;
    v.data = w.data;
    for (int d = 0; d < v.ndim; d++) {
        bool copies = d < missing || (w.shape[d - missing] == 1 && v.shape[d] != 1);
        v.strides[d] = copies ? 0 : w.strides[d - missing];
    }
    return v;
}

gd_status GD_REAL_NAME(expand_forward)(const gd_call *call)
{
    move(whole(call->output[0]), repeated(call->input[0], call->output[0]), false, call->threads);
    return GD_OK;
}

/* dx[j] sums dy over the copies of x[j]. Split the dimensions of y into those of x (kept) and the
 * repeated ones, and walk the one inside the other. */
gd_status GD_REAL_NAME(expand_backward)(const gd_call *call)
{
    gd_tensor *dx = call->dinput[0];
    if (!dx) return GD_OK;
    window y = whole(call->doutput[0]), x = repeated(dx, call->doutput[0]);
    int64_t kept_shape[GD_MAX_DIMS], copy_shape[GD_MAX_DIMS];
    for (int d = 0; d < y.ndim; d++) {
        bool copies = x.strides[d] == 0 && y.shape[d] != 1;
        kept_shape[d] = copies ? 1 : y.shape[d];
        copy_shape[d] = copies ? y.shape[d] : 1;
    }
    gd_walk kept = gd_walk_over(y.ndim, kept_shape), copies = gd_walk_over(y.ndim, copy_shape);
    gd_walk_add(&kept, y.ndim, kept_shape, x.strides);
    gd_walk_add(&kept, y.ndim, kept_shape, y.strides);
    gd_walk_add(&copies, y.ndim, copy_shape, y.strides);
    gd_walk_merge(&kept);
    gd_walk_merge(&copies);
    int64_t places = gd_walk_count(&kept), count = gd_walk_count(&copies);
    int threads = gd_threads_for(call->threads, places * gd_max64(count, 1));
    bool add = call->accumulate[0];
#pragma omp parallel for num_threads(threads) schedule(static) firstprivate(kept, copies)
    for (int64_t i = 0; i < places; i++) {
        gd_walk_seek(&kept, i);
        gd_walk_seek(&copies, 0);
        double sum = 0;
        for (int64_t k = 0; k < count; k++) {
            sum += (double)y.data[kept.offset[1] + copies.offset[0]];
            gd_walk_next(&copies);
        }
        REAL *to = x.data + kept.offset[0];
        *to = (REAL)(add ? (double)*to + sum : sum);
    }
    return GD_OK;
}
