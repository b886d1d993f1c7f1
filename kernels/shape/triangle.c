/* triangle.c - the ops tril and triu: matrices of which a triangle is kept, and the rest is 0. */
#include "gradus/ops.h"
#include "shape/shape.h"
#include "kernel.h"

GD_KERNEL_PAIR(tril)
GD_KERNEL_PAIR(triu)

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

/* A diagonal beyond the matrix is as good as one just outside. */
static gd_triangle_args from(const gd_tensor *x, int64_t diagonal)
{
    const int64_t M = gd_tensor_dim(x, -2), N = gd_tensor_dim(x, -1);
    return (gd_triangle_args){gd_max64(-M - 1, gd_min64(N + 1, diagonal))};
}

#define TRIANGLE(op_name, op_formula)                       \
    const gd_op gd_op_##op_name = {                         \
        .formula = op_formula,                              \
        .signature = "x:any[..., M, N] -> y[..., M, N]",    \
        GD_ARGS(gd_triangle_args),                          \
        GD_KERNELS(op_name),                                \
        .derivative = triangle_derivative,                  \
        GD_CASES(cases),                                    \
    };                                                      \
    gd_tensor *gd_##op_name(gd_tensor *x, int64_t diagonal) \
        GD_APPLIES(op_name, ((gd_triangle_args[]){from(x, diagonal)}), x)
TRIANGLE(tril, "y[..., i, j] = x[..., i, j] where j - i <= diagonal, else 0")
TRIANGLE(triu, "y[..., i, j] = x[..., i, j] where j - i >= diagonal, else 0")
