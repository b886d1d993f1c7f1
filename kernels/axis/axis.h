/* axis.h - the arguments of the ops along one axis. */
#ifndef GRADUS_AXIS_H
#define GRADUS_AXIS_H

#include "arguments.h"
#include "gradus/ops.h"

typedef struct gd_axis_args {
    int axis;      /* 0 or more */
    bool smallest; /* topk: the smallest, not the largest */
    bool unused[3];
    int64_t k; /* topk: how many */
} gd_axis_args;

/* Arguments with an axis from the user, negative ones counted from the end of x; one that x does
 * not have is left unchanged, for the message. */
static inline gd_axis_args gd_axis_args_of(const gd_tensor *x, int axis)
{
    const int ndim = gd_tensor_ndim(x);
    const gd_axis_args args = {
        axis < 0 && axis + ndim >= 0 ? axis + ndim : axis, false, {false}, 0};
    return args;
}

/* Fails unless input 0 is real and has the axis. */
static inline gd_status gd_check_axis(const gd_call *call)
{
    const int axis = ((const gd_axis_args *)call->args)->axis,
              ndim = gd_tensor_ndim(call->input[0]);
    if (gd_check_real(call, 0)) return GD_ERROR_ARGUMENT;
    if (axis >= 0 && axis < ndim) return GD_OK;
    return gd_call_fail(call, GD_ERROR_ARGUMENT,
                        "axis is %d, wanted one of the %d dimensions of x %s", axis, ndim,
                        gd_shape_text(call->input[0]).text);
}

#endif
