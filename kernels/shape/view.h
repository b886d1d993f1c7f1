/* view.h - views on packed memory, with a shape and strides: the sources and targets of this
 * folder's kernels, on every device. */
#ifndef GRADUS_SHAPE_WINDOW_H
#define GRADUS_SHAPE_WINDOW_H

#include "shape/shape.h"

/* Data that is only moved may be whole numbers too; gradients, which are added, are real. */
typedef struct view {
    void *data;
    gd_dtype dtype;
    int ndim;
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS];
} view;

static inline gd_layout view_layout(const view *w)
{
    gd_layout layout = {w->data, w->dtype, w->ndim, w->shape, w->strides};
    return layout;
}

static inline view whole(const gd_tensor *t)
{
    view w;
    w.data = gd_tensor_data(t);
    w.dtype = gd_tensor_dtype(t);
    w.ndim = gd_tensor_ndim(t);
    for (int d = 0; d < w.ndim; d++) {
        w.shape[d] = gd_tensor_shape(t)[d];
        w.strides[d] = gd_tensor_strides(t)[d];
    }
    return w;
}

/* All of a packed tensor, as one row. */
static inline view in_a_row(const gd_tensor *t)
{
    view w;
    w.data = gd_tensor_data(t);
    w.dtype = gd_tensor_dtype(t);
    w.ndim = 1;
    w.shape[0] = gd_tensor_count(t);
    w.strides[0] = 1;
    return w;
}

/* x [n0, n1, ...] seen with its dimensions in the order of y. */
static inline view permuted(const gd_tensor *x, const int *axes)
{
    view w = whole(x), v = w;
    for (int d = 0; d < w.ndim; d++) {
        v.shape[d] = w.shape[axes[d]];
        v.strides[d] = w.strides[axes[d]]; /* [permute] */
    }
    return v;
}

/* t[..., start : start + size, ...] along one axis. */
static inline view part(const gd_tensor *t, int axis, int64_t start, int64_t size)
{
    view w = whole(t);
    const int64_t at = start * w.strides[axis]; /* [slice] [concat] */
    if (w.data) w.data = (char *)w.data + at * (int64_t)gd_dtype_size(w.dtype);
    w.shape[axis] = size;
    return w;
}

/* t with the axes whose bits are set in reverse: the strides are negative, from the last
 * element on. */
static inline view flipped(const gd_tensor *t, uint32_t axes)
{
    view w = whole(t);
    for (int d = 0; d < w.ndim; d++) {
        if (!(axes >> d & 1) || !w.data || w.shape[d] == 0) continue;
        const int64_t last = (w.shape[d] - 1) * w.strides[d];
        w.data = (char *)w.data + last * (int64_t)gd_dtype_size(w.dtype);
        w.strides[d] = -w.strides[d]; /* [flip] */
    }
    return w;
}

/* x seen with y's shape: stride 0 along what is repeated. */
static inline view repeated(const gd_tensor *x, const gd_tensor *y)
{
    view w = whole(x), v = whole(y);
    int missing = v.ndim - w.ndim;
    v.data = w.data;
    for (int d = 0; d < v.ndim; d++) {
        bool copies = d < missing || (w.shape[d - missing] == 1 && v.shape[d] != 1);
        v.strides[d] = copies ? 0 : w.strides[d - missing]; /* [expand] */
    }
    return v;
}

#endif
