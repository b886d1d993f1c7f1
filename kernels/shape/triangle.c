/* triangle.c - the ops tril and triu: matrices of which a triangle is kept, and the rest is 0. */
#include "gradus/ops.h"
#include "shape/shape.h"
#include "arguments.h"

GD_KERNEL(tril_forward)
GD_KERNEL(tril_backward)
GD_KERNEL(triu_forward)
GD_KERNEL(triu_backward)

static gd_status triangle_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0];
    if (gd_tensor_ndim(x) < 2)
        return gd_refuse(call, "x is %s, wanted [..., M, N]", gd_shape_text(x).text);
    out->output[0] = gd_spec_like(x);
    return GD_OK;
}

static void triangle_derivative(const gd_call *call)
{
    call->dinput[0] = gd_apply(call->op, call->doutput, 1, call->args);
}

static const gd_triangle_args main_diagonal = {0}, above = {2}, below = {-1}, far_off = {9};

static const gd_case cases[] = {
    {"square", &main_diagonal, GD_INPUTS({GD_DIMS(4, 4)})},
    {"above", &above, GD_INPUTS({GD_DIMS(3, 7)})},
    {"below", &below, GD_INPUTS({GD_DIMS(5, 2)})},
    {"several", &below, GD_INPUTS({GD_DIMS(2, 3, 4, 3)})},
    {"all_or_nothing", &far_off, GD_INPUTS({GD_DIMS(3, 4)}), .may_be_empty = true},
    {"empty", &main_diagonal, GD_INPUTS({GD_DIMS(0, 5)}), .may_be_empty = true},
};

#define TRIANGLE(op_name, op_formula)                  \
    const gd_op gd_op_##op_name = {                    \
        .name = #op_name,                              \
        .formula = op_formula,                         \
        .inputs = 1,                                   \
        .input_names = {"x"},                          \
        .outputs = 1,                                  \
        .args_size = sizeof(gd_triangle_args),         \
        .plain_args = true,                            \
        .same_bits = true,                             \
        .shape = triangle_shape,                       \
        .forward = GD_ON_DEVICES(op_name##_forward),   \
        .backward = GD_ON_DEVICES(op_name##_backward), \
        .derivative = triangle_derivative,             \
        GD_CASES(cases),                               \
    };
TRIANGLE(tril, "y[..., i, j] = x[..., i, j] where j - i <= diagonal, else 0")
TRIANGLE(triu, "y[..., i, j] = x[..., i, j] where j - i >= diagonal, else 0")

/* A diagonal beyond the matrix is as good as one just outside. */
static gd_tensor *triangle(const gd_op *op, gd_tensor *x, int64_t diagonal)
{
    const int64_t M = gd_tensor_dim(x, -2), N = gd_tensor_dim(x, -1);
    const gd_triangle_args args = {gd_max64(-M - 1, gd_min64(N + 1, diagonal))};
    return gd_apply(op, &x, 1, &args);
}

gd_tensor *gd_tril(gd_tensor *x, int64_t diagonal)
{
    return triangle(&gd_op_tril, x, diagonal);
}

gd_tensor *gd_triu(gd_tensor *x, int64_t diagonal)
{
    return triangle(&gd_op_triu, x, diagonal);
}
