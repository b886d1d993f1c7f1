/* inset.c - two ops of gradcheck between a leaf and the function: a copy, which makes the
 * function's input a tensor of the tape, and an inset, which makes it strided. They use host memory
 * and the public interface, so they work on every device. */
#include <stdlib.h>

#include "gradcheck/check.h"

/* ---- copy: y = x -------------------------------------------------------------------------- */

static gd_status copy_shape(const gd_call *call, gd_shapes *out)
{
    out->output[0] = gd_spec_like(call->input[0]);
    return GD_OK;
}

static gd_status copy_forward(const gd_call *call)
{
    return gd_tensor_copy(call->output[0], call->input[0]);
}

/* to = from, or to += from, both packed. With an inset `from` is its part of `to`, and the rest of
 * `to` counts as zeros. */
static gd_status send(const gd_call *call, gd_tensor *to, const gd_tensor *from,
                      const gd_inset *inset)
{
    int64_t n = gd_tensor_count(from), m = gd_tensor_count(to);
    double *small = calloc((size_t)n + 1, sizeof(double));
    double *large = calloc((size_t)m + 1, sizeof(double));
    gd_status status = GD_OK;
    if (!small || !large)
        status = gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: a copy of a gradient");
    if (!status) status = gd_tensor_read_f64(from, small, n);
    if (!status && call->accumulate[0]) status = gd_tensor_read_f64(to, large, m);
    if (!status) {
        for (int64_t i = 0; i < n; i++) large[inset ? gd_check_inset_at(inset, i) : i] += small[i];
        status = gd_tensor_write_f64(to, large, m);
    }
    free(small);
    free(large);
    return status;
}

static gd_status copy_backward(const gd_call *call)
{
    if (!call->dinput[0] || !call->doutput[0]) return GD_OK;
    return send(call, call->dinput[0], call->doutput[0], NULL);
}

const gd_op gd_check_copy_op = {
    .name = "gradcheck_copy",
    .formula = "y = x",
    .inputs = 1,
    .outputs = 1,
    .shape = copy_shape,
    .forward = {[GD_CPU] = copy_forward, [GD_CUDA] = copy_forward},
    .backward = {[GD_CPU] = copy_backward, [GD_CUDA] = copy_backward},
};

/* ---- inset: y[i0, i1, ...] = x[1 + i0, 1 + i1, ...], where x may have its axes reversed -- */

gd_inset gd_check_inset(int ndim, const int64_t *shape, bool reversed)
{
    gd_inset w = {.ndim = ndim, .offset = ndim ? 0 : 1, .count = ndim ? 1 : 3};
    for (int i = 0; i < ndim; i++) {
        int axis = reversed ? i : ndim - 1 - i;
        w.shape[axis] = shape[axis];
        w.strides[axis] = w.count;
        w.offset += w.count;
        w.count *= shape[axis] + 2;
    }
    return w;
}

int64_t gd_check_inset_at(const gd_inset *w, int64_t element)
{
    int64_t at = w->offset;
    for (int axis = w->ndim - 1; axis >= 0; axis--) {
        at += element % w->shape[axis] * w->strides[axis];
        element /= w->shape[axis];
    }
    return at;
}

static gd_status inset_shape(const gd_call *call, gd_shapes *out)
{
    const gd_inset *w = call->args;
    out->output[0].dtype = gd_tensor_dtype(call->input[0]);
    out->output[0].ndim = w->ndim;
    for (int axis = 0; axis < w->ndim; axis++) out->output[0].shape[axis] = w->shape[axis];
    return GD_OK;
}

static bool inset_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_inset *w = call->args;
    for (int axis = 0; axis < w->ndim; axis++) strides[axis] = w->strides[axis];
    *offset = w->offset;
    return true;
}

/* Reached only if the core could not make the view, which would defeat the purpose. */
static gd_status inset_forward(const gd_call *call)
{
    return gd_call_fail(call, GD_ERROR_UNSUPPORTED, "the output is always a view of the input");
}

static gd_status inset_backward(const gd_call *call)
{
    if (!call->dinput[0] || !call->doutput[0]) return GD_OK;
    return send(call, call->dinput[0], call->doutput[0], call->args);
}

const gd_op gd_check_inset_op = {
    .name = "gradcheck_inset",
    .formula = "y = the inside of x",
    .inputs = 1,
    .outputs = 1,
    .args_size = sizeof(gd_inset),
    .strided = true,
    .shape = inset_shape,
    .view = inset_view,
    .forward = {[GD_CPU] = inset_forward, [GD_CUDA] = inset_forward},
    .backward = {[GD_CPU] = inset_backward, [GD_CUDA] = inset_backward},
};
