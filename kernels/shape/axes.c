/* axes.c - the same elements along other axes: permute, expand, slice, concat. */
#include "derivation.h"
#include "shape/shape.h"
#include "arguments.h"

GD_KERNEL(permute_backward)
GD_KERNEL(expand_backward)
GD_KERNEL(slice_backward)
GD_KERNEL_PAIR(concat)

/* In a record: all that an op has whose y is a view of x, but the formula. */
#define VIEW(op, args)                                                                             \
    .name = #op, .signature = "x:any -> y", GD_ARGS(args), .shape = op##_shape, .view = op##_view, \
    .backward = GD_ON_DEVICES(op##_backward), GD_BUILT_IN, .derivative = op##_derivative,          \
    GD_CASES(op##_cases)

/* ---- permute ------------------------------------------------------------------------------ */

static gd_status permute_shape(const gd_call *call, gd_shapes *out)
{
    const gd_permute_args *args = call->args;
    const gd_tensor *x = call->input[0];
    unsigned seen = 0;
    out->output[0] = gd_spec_like(x);
    for (int d = 0; d < gd_tensor_ndim(x); d++) {
        int axis = args->axes[d];
        if (axis < 0 || axis >= gd_tensor_ndim(x) || (seen >> axis & 1))
            return gd_refuse(call, "axes[%d] is %d, wanted each of the %d dimensions of x %s once",
                             d, axis, gd_tensor_ndim(x), gd_shape_text(x).text);
        seen |= 1u << axis;
        out->output[0].shape[d] = gd_tensor_shape(x)[axis];
    }
    return GD_OK;
}

static bool permute_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_permute_args *args = call->args;
    for (int d = 0; d < gd_tensor_ndim(call->input[0]); d++) {
        strides[d] = gd_tensor_strides(call->input[0])[args->axes[d]];
    }
    *offset = 0;
    return true;
}

/* The inverse permutation. */
static void permute_derivative(const gd_call *call)
{
    const gd_permute_args *args = call->args;
    int axes[GD_MAX_DIMS] = {0};
    for (int d = 0; d < gd_tensor_ndim(call->input[0]); d++) axes[args->axes[d]] = d;
    call->dinput[0] = gd_permute(call->doutput[0], axes);
}

static const gd_permute_args swap_two = {{1, 0}}, turn_three = {{2, 0, 1}};

static const gd_case permute_cases[] = {
    {"3x5", &swap_two, GD_INPUTS({GD_DIMS(3, 5)})},
    {"2x3x4_turned", &turn_three, GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {"empty", &swap_two, GD_INPUTS({GD_DIMS(0, 5)}), .may_be_empty = true},
};

const gd_op gd_op_permute = {
    .formula = "y[i_0, i_1, ...] = x with index i_k at dimension axes[k]",
    VIEW(permute, gd_permute_args),
};

gd_tensor *gd_permute(gd_tensor *x, const int *axes)
{
    gd_permute_args args = {{0}};
    if (!x) return NULL;
    if (!axes && gd_tensor_ndim(x)) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "permute: axes is NULL, wanted %d axes",
                gd_tensor_ndim(x));
        return NULL;
    }
    for (int d = 0; d < gd_tensor_ndim(x); d++) {
        args.axes[d] = axes[d] < 0 ? axes[d] + gd_tensor_ndim(x) : axes[d];
    }
    return gd_apply(&gd_op_permute, &x, 1, &args);
}

gd_tensor *gd_transpose(gd_tensor *x, int axis_a, int axis_b)
{
    int axes[GD_MAX_DIMS];
    if (!gd_resolve_axis("transpose", x, &axis_a) || !gd_resolve_axis("transpose", x, &axis_b))
        return NULL;
    for (int d = 0; d < gd_tensor_ndim(x); d++) axes[d] = d;
    axes[axis_a] = axis_b;
    axes[axis_b] = axis_a;
    return gd_permute(x, axes);
}

/* ---- slice -------------------------------------------------------------------------------- */

static gd_status slice_shape(const gd_call *call, gd_shapes *out)
{
    const gd_slice_args *args = call->args;
    const gd_tensor *x = call->input[0];
    int64_t size = gd_tensor_dim(x, args->axis);
    if (args->start < 0 || args->end < args->start || args->end > size)
        return gd_refuse(call,
                         "start is %lld and end is %lld, wanted 0 <= start <= end <= %lld, the "
                         "size of axis %d of x %s",
                         (long long)args->start, (long long)args->end, (long long)size, args->axis,
                         gd_shape_text(x).text);
    out->output[0] = gd_spec_like(x);
    out->output[0].shape[args->axis] = args->end - args->start;
    return GD_OK;
}

static bool slice_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_slice_args *args = call->args;
    const int64_t *from = gd_tensor_strides(call->input[0]);
    for (int d = 0; d < gd_tensor_ndim(call->input[0]); d++) strides[d] = from[d];
    *offset = args->start * from[args->axis];
    return true;
}

static void slice_derivative(const gd_call *call)
{
    const gd_slice_args *args = call->args;
    call->dinput[0] = among_zeros(call->doutput[0], call->input[0], args->axis, args->start);
}

static const gd_slice_args rows_1_3 = {.start = 1, .end = 3}, columns_0_2 = {.axis = 1, .end = 2},
                           nothing = {.start = 2, .end = 2};

static const gd_case slice_cases[] = {
    {"rows", &rows_1_3, GD_INPUTS({GD_DIMS(4, 3)})},
    {"columns", &columns_0_2, GD_INPUTS({GD_DIMS(3, 5, 2)})},
    {"nothing", &nothing, GD_INPUTS({GD_DIMS(4, 3)}), .may_be_empty = true},
};

const gd_op gd_op_slice = {
    .formula = "y = x[..., start : end, ...]",
    VIEW(slice, gd_slice_args),
};

gd_tensor *gd_slice(gd_tensor *x, int axis, int64_t start, int64_t end)
{
    if (!gd_resolve_axis("slice", x, &axis)) return NULL;
    gd_slice_args args = {.axis = axis, .start = start, .end = end};
    return gd_apply(&gd_op_slice, &x, 1, &args);
}

gd_tensor *gd_narrow(gd_tensor *x, int axis, int64_t start, int64_t length)
{
    if (!gd_resolve_axis("narrow", x, &axis)) return NULL;
    const int64_t size = gd_tensor_shape(x)[axis];
    if (start < 0 || length < 0 || start > size || length > size - start) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                "narrow: start is %lld and length is %lld, wanted at least 0 and together at most "
                "%lld, the size of axis %d of x %s",
                (long long)start, (long long)length, (long long)size, axis, gd_shape_text(x).text);
        return NULL;
    }
    return gd_slice(x, axis, start, start + length);
}

/* ---- expand ------------------------------------------------------------------------------- */

static gd_status expand_shape(const gd_call *call, gd_shapes *out)
{
    const gd_shape_args *args = call->args;
    const gd_tensor *x = call->input[0];
    int missing = args->ndim - gd_tensor_ndim(x);
    bool fits = missing >= 0;
    out->output[0] = (gd_spec){.dtype = gd_tensor_dtype(x), .ndim = args->ndim};
    for (int d = 0; d < args->ndim; d++) {
        int64_t size = d < missing || !fits ? 1 : gd_tensor_shape(x)[d - missing];
        fits = fits && args->shape[d] >= 0 && (size == 1 || size == args->shape[d]);
        out->output[0].shape[d] = args->shape[d];
    }
    if (fits) return GD_OK;
    return gd_refuse(call, "x %s does not broadcast to the wanted shape of %d dimensions",
                     gd_shape_text(x).text, args->ndim);
}

static bool expand_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)index;
    const gd_shape_args *args = call->args;
    const gd_tensor *x = call->input[0];
    int missing = args->ndim - gd_tensor_ndim(x);
    for (int d = 0; d < args->ndim; d++) {
        bool copies = d < missing || (gd_tensor_shape(x)[d - missing] == 1 && args->shape[d] != 1);
        strides[d] = copies ? 0 : gd_tensor_strides(x)[d - missing];
    }
    *offset = 0;
    return true;
}

static void expand_derivative(const gd_call *call)
{
    call->dinput[0] = sum_to(call->doutput[0], call->input[0]);
}

static const gd_shape_args to_4_3 = {.ndim = 2, .shape = {4, 3}},
                           to_2_3_5 = {.ndim = 3, .shape = {2, 3, 5}},
                           to_7 = {.ndim = 1, .shape = {7}}, to_0_3 = {.ndim = 2, .shape = {0, 3}};

static const gd_case expand_cases[] = {
    {"row_to_4x3", &to_4_3, GD_INPUTS({GD_DIMS(3)})},
    {"middle", &to_2_3_5, GD_INPUTS({GD_DIMS(2, 1, 5)})},
    {"both_ends", &to_2_3_5, GD_INPUTS({GD_DIMS(3, 1)})},
    {"scalar_to_7", &to_7, GD_INPUTS({GD_SCALAR})},
    {"to_nothing", &to_0_3, GD_INPUTS({GD_DIMS(3)}), .may_be_empty = true},
};

const gd_op gd_op_expand = {
    .formula = "y = x repeated along dimensions of size 1, without a copy",
    VIEW(expand, gd_shape_args),
};

gd_tensor *gd_expand(gd_tensor *x, int ndim, const int64_t *shape)
{
    gd_shape_args args = {.ndim = ndim};
    if (!x || !gd_shape_args_set(&args, "expand", x, ndim, shape)) return NULL;
    return gd_apply(&gd_op_expand, &x, 1, &args);
}

/* ---- concat ------------------------------------------------------------------------------- */

static gd_status concat_shape(const gd_call *call, gd_shapes *out)
{
    const gd_concat_args *args = call->args;
    const gd_tensor *first = call->input[0];
    out->output[0] = gd_spec_like(first);
    out->output[0].shape[args->axis] = 0;
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *t = call->input[i];
        bool fits = gd_tensor_ndim(t) == gd_tensor_ndim(first);
        for (int d = 0; fits && d < gd_tensor_ndim(t); d++) {
            fits = d == args->axis || gd_tensor_shape(t)[d] == gd_tensor_shape(first)[d];
        }
        if (!fits)
            return gd_refuse(call, "x[%d] is %s, wanted the shape of x[0] %s except along axis %d",
                             i, gd_kind(t).text, gd_shape_text(first).text, args->axis);
        if (__builtin_add_overflow(out->output[0].shape[args->axis], gd_tensor_dim(t, args->axis),
                                   &out->output[0].shape[args->axis]))
            return gd_refuse(call, "the sizes along axis %d overflow", args->axis);
    }
    return GD_OK;
}

static void concat_derivative(const gd_call *call)
{
    const gd_concat_args *args = call->args;
    int64_t start = 0, end = 0;
    for (int i = 0; i < call->inputs; i++, start = end) {
        end = start + gd_tensor_dim(call->input[i], args->axis);
        if (call->dinput[i]) call->dinput[i] = gd_slice(call->doutput[0], args->axis, start, end);
    }
}

static const gd_concat_args along_0 = {0}, along_1 = {1};

static const gd_case concat_cases[] = {
    {"rows", &along_0, GD_INPUTS({GD_DIMS(2, 3)}, {GD_DIMS(3, 3)})},
    {"three_columns", &along_1,
     GD_INPUTS({GD_DIMS(2, 1, 3)}, {GD_DIMS(2, 4, 3)}, {GD_DIMS(2, 2, 3)})},
    {"one", &along_0, GD_INPUTS({GD_DIMS(4)})},
    {"empty", &along_0, GD_INPUTS({GD_DIMS(0)}, {GD_DIMS(0)}), .may_be_empty = true},
};

const gd_op gd_op_concat = {
    .formula = "y = x[0], x[1], ... joined along an axis",
    .signature = "x:any+ -> y",
    GD_ARGS(gd_concat_args),
    GD_RANGES(GD_AXIS_RANGE(gd_concat_args, axis)),
    .shape = concat_shape,
    GD_KERNELS(concat),
    .derivative = concat_derivative,
    GD_CASES(concat_cases),
};

gd_tensor *gd_concat(gd_tensor *const *x, int count, int axis)
{
    const gd_concat_args args = {gd_axis_from_start(x && count > 0 ? x[0] : NULL, axis)};
    return gd_apply(&gd_op_concat, x, count, &args);
}

/* ---- unsqueeze, squeeze, stack: reshape and concat ---------------------------------------- */

/* The place of a new axis, negative ones counted from the end; false, with the error set, if x
 * cannot have one there. */
static bool resolve_place(const char *op, const gd_tensor *x, int *axis)
{
    const int ndim = gd_tensor_ndim(x), given = *axis;
    if (!gd_tensor_usable(x, op, "x")) return false;
    if (given < 0) *axis += ndim + 1;
    if (*axis >= 0 && *axis <= ndim && ndim < GD_MAX_DIMS) return true;
    gd_fail(
        gd_tensor_context(x), GD_ERROR_ARGUMENT,
        "%s: axis is %d and x is %s, wanted a place among its dimensions and at most %d of them",
        op, given, gd_shape_text(x).text, GD_MAX_DIMS - 1);
    return false;
}

gd_tensor *gd_unsqueeze(gd_tensor *x, int axis)
{
    if (!resolve_place("unsqueeze", x, &axis)) return NULL;
    int64_t shape[GD_MAX_DIMS];
    const int ndim = gd_tensor_ndim(x);
    for (int d = 0; d <= ndim; d++) {
        shape[d] = d == axis ? 1 : gd_tensor_shape(x)[d > axis ? d - 1 : d];
    }
    return gd_reshape(x, ndim + 1, shape);
}

gd_tensor *gd_squeeze(gd_tensor *x, int axis)
{
    if (!gd_resolve_axis("squeeze", x, &axis)) return NULL;
    int64_t shape[GD_MAX_DIMS];
    if (gd_tensor_shape(x)[axis] != 1) {
        gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                "squeeze: axis %d of x %s has size %lld, wanted 1", axis, gd_shape_text(x).text,
                (long long)gd_tensor_shape(x)[axis]);
        return NULL;
    }
    for (int d = 0; d + 1 < gd_tensor_ndim(x); d++) {
        shape[d] = gd_tensor_shape(x)[d < axis ? d : d + 1];
    }
    return gd_reshape(x, gd_tensor_ndim(x) - 1, shape);
}

gd_tensor *gd_stack(gd_tensor *const *x, int count, int axis)
{
    enum { FEW = 16 };
    static const gd_op stack = {.name = "stack", .signature = "x:any[...]+ -> y[...]"};
    if (!gd_accepts(&stack, x, count, NULL) || !resolve_place("stack", x[0], &axis)) return NULL;
    gd_tensor *few[FEW], *sum = NULL;
    for (int i = 0; i < count; i += FEW) { /* joined in groups, to allow any number */
        int n = 0;
        for (; n < FEW && i + n < count; n++) few[n] = gd_unsqueeze(x[i + n], axis);
        gd_tensor *group = gd_concat(few, n, axis);
        sum = sum ? gd_concat((gd_tensor *[]){sum, group}, 2, axis) : group;
    }
    return sum;
}

/* ---- Of slices ---------------------------------------------------------------------------- */

gd_tensor *gd_roll(gd_tensor *x, int axis, int64_t shift)
{
    if (!gd_resolve_axis("roll", x, &axis)) return NULL;
    const int64_t n = gd_tensor_dim(x, axis), by = n ? shift % n : 0;
    const int64_t cut = by > 0 ? n - by : -by; /* y begins with x[cut] */
    if (cut == 0) return gd_contiguous(x);
    gd_tensor *const parts[] = {gd_slice(x, axis, cut, n), gd_slice(x, axis, 0, cut)};
    return gd_concat(parts, 2, axis);
}

gd_status gd_split(gd_tensor *x, int axis, int count, const int64_t *sizes, gd_tensor **parts)
{
    for (int i = 0; parts && i < count; i++) parts[i] = NULL;
    if (!gd_resolve_axis("split", x, &axis)) return GD_ERROR_ARGUMENT;
    if (count > 0 && (!sizes || !parts))
        return gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT, "split: %s is NULL, wanted [%d]",
                       sizes ? "parts" : "sizes", count);
    int64_t left = gd_tensor_dim(x, axis);
    int fitting = 0;
    while (fitting < count && sizes[fitting] >= 0 && sizes[fitting] <= left)
        left -= sizes[fitting++];
    if (fitting != count || left)
        return gd_fail(gd_tensor_context(x), GD_ERROR_ARGUMENT,
                       "split: wanted sizes of at least 0 that add up to %lld, the size of axis %d "
                       "of x %s",
                       (long long)gd_tensor_dim(x, axis), axis, gd_shape_text(x).text);
    int64_t start = 0;
    for (int i = 0; i < count; start += sizes[i++])
        parts[i] = gd_slice(x, axis, start, start + sizes[i]);
    return count > 0 && !parts[count - 1] ? gd_error_status(gd_tensor_context(x)) : GD_OK;
}
