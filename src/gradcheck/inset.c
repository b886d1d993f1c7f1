/* inset.c - two ops of gradcheck between a leaf and the function: a copy, which makes the
 * function's input a tensor of the tape, and an inset, which makes it strided. They use host memory
 * and the public interface, so they work on every device. */
#include <stdlib.h>

#include "gradcheck/check.h"

/* dx = dy, or dx += dy, both packed; of an inset dy is a part of dx, and the rest of dx counts as
 * zeros. */
static gd_status add_gradient(const gd_call *call)
{
    const gd_tensor *from = call->doutput[0];
    gd_tensor *to = call->dinput[0];
    if (!to || !from) return GD_OK;
    int64_t n = gd_tensor_count(from), m = gd_tensor_count(to);
    double *small = calloc((size_t)(n + m) + 1, sizeof(double)), *large = small + n;
    if (!small) return gd_call_fail(call, GD_ERROR_MEMORY, "out of memory: a copy of a gradient");
    gd_status status = gd_tensor_read_f64(from, small, n);
    if (!status && call->accumulate[0]) status = gd_tensor_read_f64(to, large, m);
    for (int64_t i = 0; i < n; i++)
        large[call->args ? gd_check_inset_at(call->args, i) : i] += small[i];
    if (!status) status = gd_tensor_write_f64(to, large, m);
    free(small);
    return status;
}

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

const gd_op gd_check_copy_op = {
    .name = "gradcheck_copy",
    .formula = "y = x",
    .inputs = 1,
    .outputs = 1,
    .shape = copy_shape,
    .forward = {[GD_CPU] = copy_forward, [GD_CUDA] = copy_forward},
    .backward = {[GD_CPU] = add_gradient, [GD_CUDA] = add_gradient},
};

/* ---- inset: y[i0, i1, ...] = x[1 + i0, 1 + i1, ...], where x may have its axes reversed -- */

gd_inset gd_check_inset(const gd_spec *spec, bool reversed)
{
    const int ndim = spec->ndim;
    gd_inset w = {.spec = *spec, .offset = ndim ? 0 : 1, .count = ndim ? 1 : 3};
    for (int i = 0; i < ndim; i++) {
        int axis = reversed ? i : ndim - 1 - i;
        w.strides[axis] = w.count;
        w.offset += w.count;
        w.count *= spec->shape[axis] + 2;
    }
    return w;
}

int64_t gd_check_inset_at(const gd_inset *w, int64_t element)
{
    int64_t at = w->offset;
    for (int axis = w->spec.ndim - 1; axis >= 0; axis--) {
        at += element % w->spec.shape[axis] * w->strides[axis];
        element /= w->spec.shape[axis];
    }
    return at;
}

static gd_status inset_shape(const gd_call *call, gd_shapes *out)
{
    out->output[0] = ((const gd_inset *)call->args)->spec;
    return GD_OK;
}

static bool inset_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_inset *w = call->args;
    for (int axis = 0; axis < w->spec.ndim; axis++) strides[axis] = w->strides[axis];
    *offset = w->offset;
    return true;
}

/* Reached only if the core could not make the view, which would defeat the purpose. */
static gd_status inset_forward(const gd_call *call)
{
    return gd_call_fail(call, GD_ERROR_UNSUPPORTED, "the output is always a view of the input");
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
    .backward = {[GD_CPU] = add_gradient, [GD_CUDA] = add_gradient},
};
