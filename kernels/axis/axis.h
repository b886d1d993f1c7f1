/* axis.h - the arguments of the ops along one axis. */
#ifndef GRADUS_AXIS_H
#define GRADUS_AXIS_H

#include "arguments.h"
#include "gradus/ops.h"

typedef struct gd_axis_args {
    int axis;      /* 0 or more */
    bool smallest; /* topk, sort: the smallest first, not the largest */
    bool shared;   /* gather: index has one line, for all lines of x */
    bool unused[2];
    int64_t k; /* topk, sort: how many */
} gd_axis_args;

/* Arguments with an axis from the user, negative ones counted from the end of x; one that x does
 * not have is left unchanged, for the message. */
static inline gd_axis_args gd_axis_args_of(const gd_tensor *x, int axis)
{
    const int ndim = gd_tensor_ndim(x);
    const gd_axis_args args = {
        axis < 0 && axis + ndim >= 0 ? axis + ndim : axis, false, false, {false, false}, 0};
    return args;
}

/* Input 0 has the axis. */
extern const gd_option_range gd_axis_ranges[];

#endif
