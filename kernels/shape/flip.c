/* flip.c - the op flip: the elements in reverse along some axes. */
#include "gradus/ops.h"
#include "shape/shape.h"

GD_KERNEL_PAIR(flip)

static void flip_derivative(const gd_call *call)
{
    call->dinput[0] = gd_apply(call->op, call->doutput, 1, call->args);
}

static const gd_flip_args first = {1}, second = {2}, outer_two = {5};

static const gd_case cases[] = {
    {"rows", &second, GD_INPUTS({GD_DIMS(3, 5)})},
    {"columns", &first, GD_INPUTS({GD_DIMS(4, 3)})},
    {"outer_two", &outer_two, GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {"one", &first, GD_INPUTS({GD_DIMS(1)})},
    {"empty", &first, GD_INPUTS({GD_DIMS(0, 5)}), .may_be_empty = true},
};

const gd_op gd_op_flip = {
    .formula = "y[..., i, ...] = x[..., n - 1 - i, ...]",
    .signature = "x:any[...] -> y[...]",
    GD_ARGS(gd_flip_args),
    .strided = true,
    GD_KERNELS(flip),
    .derivative = flip_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_flip(gd_tensor *x, const int *axes, int count)
{
    if (!x) return NULL;
    const int ndim = gd_tensor_ndim(x);
    gd_flip_args args = {axes ? 0 : (UINT32_C(1) << ndim) - 1};
    for (int i = 0; axes && i < count; i++) {
        int axis = axes[i];
        if (!gd_resolve_axis("flip", x, &axis)) return NULL;
        if (args.axes >> axis & 1) {
            gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                    "flip: axis %d of x %s is listed twice", axes[i], gd_shape_text(x).text);
            return NULL;
        }
        args.axes |= UINT32_C(1) << axis;
    }
    return gd_apply(&gd_op_flip, &x, 1, &args);
}
