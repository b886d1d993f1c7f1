/* reshape.c - the elements in the same order under another shape: reshape, contiguous, cast. */
#include "derivation.h"
#include "gradus/ops.h"
#include "shape/shape.h"
#include "arguments.h"

GD_KERNEL_PAIR(same_order)
GD_KERNEL(cast_forward)

/* ---- reshape ------------------------------------------------------------------------------ */

static gd_status reshape_shape(const gd_call *call, gd_shapes *out)
{
    const gd_shape_args *args = call->args;
    const gd_tensor *x = call->input[0];
    int64_t product = 1;
    int open = -1; /* the dimension that is -1 */
    for (int d = 0; d < args->ndim; d++) {
        int64_t size = args->shape[d];
        if (size < -1 || (size == -1 && open >= 0))
            return gd_refuse(call, "dimension %d of the shape is %lld, wanted 0 or more, or one -1",
                             d, (long long)size);
        if (size == -1) open = d;
        if (size >= 0 && __builtin_mul_overflow(product, size, &product)) product = INT64_MAX;
    }
    out->output[0] = (gd_spec){.dtype = gd_tensor_dtype(x), .ndim = args->ndim};
    memcpy(out->output[0].shape, args->shape, sizeof out->output[0].shape);
    int64_t count = gd_tensor_count(x);
    if (open >= 0 && product > 0 && count % product == 0) {
        out->output[0].shape[open] = count / product;
        return GD_OK;
    }
    if (open < 0 && product == count) return GD_OK;
    return gd_refuse(
        call, "x %s has %lld elements, which %s", gd_shape_text(x).text, (long long)count,
        open < 0 ? "the shape does not have" : "the shape's other dimensions do not divide");
}

/* The shape with -1 filled in. Without elements the product of the sizes is not used, and -1 is
 * 0. */
static void resolved_shape(const gd_call *call, int64_t *shape)
{
    const gd_shape_args *args = call->args;
    int64_t known = 1, count = gd_tensor_count(call->input[0]);
    for (int d = 0; d < args->ndim && count; d++) {
        if (args->shape[d] != -1) known *= args->shape[d];
    }
    for (int d = 0; d < args->ndim; d++) {
        shape[d] = args->shape[d] == -1 ? count / known : args->shape[d];
    }
}

/* x's dimensions as the fewest possible runs, last one first: a run is one arithmetic progression
 * of `size` elements, `stride` apart. Returns their number. */
static int runs_of(const gd_tensor *x, int64_t *size, int64_t *stride)
{
    const int64_t *shape = gd_tensor_shape(x), *strides = gd_tensor_strides(x);
    int runs = 0;
    for (int d = gd_tensor_ndim(x) - 1; d >= 0; d--) {
        if (shape[d] == 1) continue;
        if (runs && strides[d] == stride[runs - 1] * size[runs - 1]) {
            size[runs - 1] *= shape[d];
        } else {
            size[runs] = shape[d];
            stride[runs++] = strides[d];
        }
    }
    return runs;
}

/* A view is possible if every run can be split into dimensions of y. */
static bool reshape_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    int64_t size[GD_MAX_DIMS], stride[GD_MAX_DIMS], wanted[GD_MAX_DIMS];
    const gd_shape_args *args = call->args;
    resolved_shape(call, wanted);
    *offset = 0;
    for (int d = 0; d < args->ndim; d++) strides[d] = 1;
    if (gd_tensor_count(call->input[0]) == 0) return true;
    int runs = runs_of(call->input[0], size, stride), d = args->ndim - 1;
    for (int r = 0; r < runs; r++) {
        while (size[r] > 1) {
            while (wanted[d] == 1) d--;
            if (size[r] % wanted[d]) return false;
            strides[d] = stride[r];
            stride[r] *= wanted[d];
            size[r] /= wanted[d--];
        }
    }
    return true;
}

static void reshape_derivative(const gd_call *call)
{
    call->dinput[0] = shaped_as(call->doutput[0], call->input[0]);
}

static const gd_shape_args to_6_2 = {.ndim = 2, .shape = {6, 2}},
                           to_any_3 = {.ndim = 2, .shape = {-1, 3}},
                           to_scalar = {.ndim = 0, .shape = {0}},
                           to_empty = {.ndim = 2, .shape = {0, 7}};

static const gd_case reshape_cases[] = {
    {"3x4_to_6x2", &to_6_2, GD_INPUTS({GD_DIMS(3, 4)})},
    {"2x3x3_to_any_x3", &to_any_3, GD_INPUTS({GD_DIMS(2, 3, 3)})},
    {"one_to_scalar", &to_scalar, GD_INPUTS({GD_DIMS(1)})},
    {"empty", &to_empty, GD_INPUTS({GD_DIMS(3, 0)}), .may_be_empty = true},
};

const gd_op gd_op_reshape = {
    .name = "reshape",
    .formula = "y = the elements of x in the same order, under another shape",
    .signature = "x:any -> y",
    GD_ARGS(gd_shape_args),
    .dinput_over_doutput = GD_BIT(0),
    .shape = reshape_shape,
    .view = reshape_view,
    .forward = GD_ON_DEVICES(same_order_forward),
    .backward = GD_ON_DEVICES(same_order_backward),
    GD_BUILT_IN,
    .derivative = reshape_derivative,
    GD_CASES(reshape_cases),
};

gd_tensor *gd_reshape(gd_tensor *x, int ndim, const int64_t *shape)
{
    gd_shape_args args = {.ndim = ndim};
    if (!x || !gd_shape_args_set(&args, "reshape", x, ndim, shape)) return NULL;
    return gd_apply(&gd_op_reshape, &x, 1, &args);
}

/* ---- contiguous --------------------------------------------------------------------------- */

/* The backward of contiguous and cast: what is rounded has the gradient of what is not. */
static void same_derivative(const gd_call *call)
{
    call->dinput[0] = call->doutput[0];
}

static bool contiguous_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_tensor *x = call->input[0];
    if (!gd_tensor_is_contiguous(x)) return false;
    memcpy(strides, gd_tensor_strides(x), (size_t)gd_tensor_ndim(x) * sizeof *strides);
    *offset = 0;
    return true;
}

static const gd_case contiguous_cases[] = {
    {"3x4", NULL, GD_INPUTS({GD_DIMS(3, 4)})},
    {"empty", NULL, GD_INPUTS({GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_contiguous = {
    .name = "contiguous",
    .formula = "y = x, packed",
    .signature = "x:any[...] -> y[...]",
    .dinput_over_doutput = GD_BIT(0),
    .strided = true,
    .view = contiguous_view,
    .forward = GD_ON_DEVICES(same_order_forward),
    .backward = GD_ON_DEVICES(same_order_backward),
    GD_BUILT_IN,
    .derivative = same_derivative,
    GD_CASES(contiguous_cases),
};

gd_tensor *gd_contiguous(gd_tensor *x) GD_APPLIES(contiguous, NULL, x)

/* ---- cast --------------------------------------------------------------------------------- */

static gd_status cast_shape(const gd_call *call, gd_shapes *out)
{
    const gd_cast_args *args = call->args;
    if (gd_dtype_size(args->dtype) == 0)
        return gd_refuse(call, "dtype is %d, wanted one of gd_dtype", (int)args->dtype);
    out->output[0] = gd_spec_like(call->input[0]);
    out->output[0].dtype = args->dtype;
    return GD_OK;
}

static const gd_cast_args to_f64 = {GD_FLOAT64}, to_f32 = {GD_FLOAT32};

static const gd_case cast_cases[] = {
    {"to_float64", &to_f64, GD_INPUTS({GD_DIMS(3, 5)})},
    {"empty", &to_f32, GD_INPUTS({GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_cast = {
    .name = "cast",
    .formula = "y = x, converted to another dtype",
    .signature = "x:any -> y",
    GD_ARGS(gd_cast_args),
    .dinput_float32 = GD_BIT(0),
    .mixed = GD_BIT(GD_CUDA),
    GD_BUILT_IN,
    .shape = cast_shape,
    .forward = GD_ON_DEVICES(cast_forward),
    .backward = GD_ON_DEVICES(same_order_backward),
    .derivative = same_derivative,
    GD_CASES(cast_cases),
};

gd_tensor *gd_cast(gd_tensor *x, gd_dtype dtype) GD_APPLIES(cast, &(gd_cast_args){dtype}, x)
