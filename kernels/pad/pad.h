/* pad.h - the arguments of pad, and where each place of y comes from. */
#ifndef GRADUS_PAD_H
#define GRADUS_PAD_H

#include "gradus/autograd.h"
#include "gradus/ops.h"

#if defined(__CUDACC__)
#define GD_PAD_FUNCTION static inline __host__ __device__
#else
#define GD_PAD_FUNCTION static inline
#endif

enum { PAD_ROWS, PAD_COLS, PAD_AXES };

typedef struct gd_pad_args {
    int64_t before[PAD_AXES], after[PAD_AXES];
    int64_t mode; /* a gd_pad_mode; 64 bits wide, so that nothing is between the members */
    double value;
} gd_pad_args;

/* One axis: n places of x, and what is before and after them. */
typedef struct gd_pad_axis {
    int64_t n, before, after;
    int mode;
} gd_pad_axis;

/* The place of x that place `to` of y shows; -1: none. */
GD_PAD_FUNCTION int64_t gd_pad_source(const gd_pad_axis *axis, int64_t to)
{
    const int64_t i = to - axis->before, last = axis->n - 1;
    if (i >= 0 && i <= last) return i;
    if (axis->mode == GD_PAD_REFLECT) return i < 0 ? -i : 2 * last - i;
    if (axis->mode == GD_PAD_REPLICATE) return i < 0 ? 0 : last;
    return -1;
}

/* The places of y that show place i of x: ranges, the first in the middle of y. */
typedef struct gd_pad_range {
    int64_t first, end;
} gd_pad_range;

enum { PAD_RANGES = 3 };

GD_PAD_FUNCTION void gd_pad_images(const gd_pad_axis *axis, int64_t i,
                                   gd_pad_range range[PAD_RANGES])
{
    const int64_t last = axis->n - 1, before = axis->before, end = before + axis->n;
    range[0].first = before + i, range[0].end = before + i + 1;
    range[1].first = range[1].end = range[2].first = range[2].end = 0;
    if (axis->mode == GD_PAD_REFLECT) {
        const int64_t mirrored = 2 * last - i;
        if (i > 0 && i <= before) range[1].first = before - i, range[1].end = before - i + 1;
        if (i < last && mirrored <= last + axis->after)
            range[2].first = before + mirrored, range[2].end = before + mirrored + 1;
    } else if (axis->mode == GD_PAD_REPLICATE) {
        if (i == 0) range[1].end = before;
        if (i == last) range[2].first = end, range[2].end = end + axis->after;
    }
}

/* Planes of x and the two axes. */
typedef struct gd_pad_planes {
    int64_t planes;
    gd_pad_axis axis[PAD_AXES];
    double value;
} gd_pad_planes;

static inline gd_pad_planes gd_pad_planes_of(const gd_call *call, const gd_tensor *x)
{
    const gd_pad_args *args = (const gd_pad_args *)call->args;
    const int ndim = gd_tensor_ndim(x);
    gd_pad_planes p;
    p.planes = 1;
    p.value = args->value;
    for (int d = 0; d < ndim - PAD_AXES; d++) p.planes *= gd_tensor_shape(x)[d];
    for (int a = 0; a < PAD_AXES; a++) {
        const int d = ndim - PAD_AXES + a;
        p.axis[a].n = d < 0 ? 1 : gd_tensor_shape(x)[d]; /* x [N] has one row */
        p.axis[a].before = args->before[a];
        p.axis[a].after = args->after[a];
        p.axis[a].mode = (int)args->mode;
    }
    return p;
}

/* Columns or rows of y. */
GD_PAD_FUNCTION int64_t gd_pad_size(const gd_pad_axis *axis)
{
    return axis->before + axis->n + axis->after;
}

#endif
