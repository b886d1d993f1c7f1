/* pad.c - the op pad, and upsampling, which needs no kernel. README.md has the derivation. */
#include "pad/pad.h"
#include "arguments.h"
#include "derivation.h"

GD_KERNEL_PAIR(pad)

/* Fails unless the padding along an axis of n places is possible. */
static gd_status check_padding(const gd_call *call, int a, int64_t n)
{
    const gd_pad_args *args = call->args;
    const int64_t before = args->before[a], after = args->after[a];
    const int64_t larger = gd_max64(before, after), most = INT64_MAX / 4;
    const char *name = a == PAD_ROWS ? "rows" : "columns";
    const gd_text shape = gd_shape_text(call->input[0]);
    if (gd_min64(before, after) < 0 || larger > most) {
        return gd_refuse(call, "%lld and %lld %s are to be added, wanted 0 or more",
                         (long long)before, (long long)after, name);
    }
    if (args->mode == GD_PAD_REFLECT && larger >= gd_max64(n, 1)) {
        return gd_refuse(call,
                         "%lld %s are to be reflected, but x %s has %lld, of which the outermost "
                         "is not repeated",
                         (long long)larger, name, shape.text, (long long)n);
    }
    if (args->mode == GD_PAD_REPLICATE && n == 0 && larger > 0) {
        return gd_refuse(call, "x %s has no %s to replicate", shape.text, name);
    }
    return GD_OK;
}

/* x [..., H, W] -> y [..., top + H + bottom, left + W + right] */
static gd_status pad_shape(const gd_call *call, gd_shapes *out)
{
    const gd_pad_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    const bool rows = args->before[PAD_ROWS] || args->after[PAD_ROWS];
    if (ndim < (rows ? 2 : 1)) {
        return gd_refuse(call, "x is %s, wanted %s", gd_shape_text(x).text,
                         rows ? "[..., H, W], to add rows" : "[..., W], to add columns");
    }
    for (int a = 0; a < PAD_AXES; a++) {
        const int d = ndim - PAD_AXES + a;
        if (d < 0) continue;
        const gd_status status = check_padding(call, a, out->output[0].shape[d]);
        if (status) return status;
        out->output[0].shape[d] += args->before[a] + args->after[a];
    }
    return GD_OK;
}

/* ---- By ops ------------------------------------------------------------------------------- */

/* `count` places beside x along an axis, before or after it. */
static gd_tensor *beside(const gd_call *call, gd_tensor *x, int axis, int64_t count, bool after)
{
    const gd_pad_args *args = call->args;
    const int64_t n = gd_tensor_dim(x, axis);
    int64_t shape[GD_MAX_DIMS];
    memcpy(shape, gd_tensor_shape(x), sizeof shape);
    shape[axis] = count;
    if (args->mode == GD_PAD_REFLECT) {
        const int64_t first = after ? n - 1 - count : 1;
        return gd_flip(gd_slice(x, axis, first, first + count), &axis, 1);
    }
    if (args->mode == GD_PAD_REPLICATE) {
        const int64_t edge = after ? n - 1 : 0;
        return gd_expand(gd_slice(x, axis, edge, edge + 1), gd_tensor_ndim(x), shape);
    }
    return gd_constant(call->context, call->dtype, gd_tensor_ndim(x), shape, args->value);
}

static void pad_definition(const gd_call *call)
{
    const gd_pad_args *args = call->args;
    gd_tensor *x = call->input[0];
    for (int a = 0; a < PAD_AXES && x; a++) {
        const int axis = gd_tensor_ndim(x) - PAD_AXES + a;
        gd_tensor *part[3], *y = x;
        int parts = 0;
        if (args->before[a]) part[parts++] = beside(call, y, axis, args->before[a], false);
        part[parts++] = y;
        if (args->after[a]) part[parts++] = beside(call, y, axis, args->after[a], true);
        if (parts > 1) x = gd_concat(part, parts, axis);
    }
    call->output[0] = x;
}

static const gd_pad_args constant = {{1, 2}, {0, 3}, GD_PAD_CONSTANT, 0.5},
                         reflect = {{2, 3}, {1, 4}, GD_PAD_REFLECT, 0},
                         both_sides = {{0, 3}, {0, 3}, GD_PAD_REFLECT, 0},
                         replicate = {{2, 1}, {3, 4}, GD_PAD_REPLICATE, 0},
                         mirrored = {{0, 2}, {0, 2}, GD_PAD_REFLECT, 0},
                         nothing = {{0, 0}, {0, 0}, GD_PAD_CONSTANT, 0};

static const gd_case pad_cases[] = {
    {"constant", &constant, GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {"reflect", &reflect, GD_INPUTS({GD_DIMS(2, 3, 5)})},
    {"reflect_every_column", &both_sides, GD_INPUTS({GD_DIMS(3, 4)})},
    {"replicate", &replicate, GD_INPUTS({GD_DIMS(2, 3, 4)})},
    {"replicate_one", &replicate, GD_INPUTS({GD_DIMS(2, 1, 1)})},
    {"one_row", &both_sides, GD_INPUTS({GD_DIMS(5)})},
    {"mirrored_row", &mirrored, GD_INPUTS({GD_DIMS(3)})},
    {"nothing_added", &nothing, GD_INPUTS({GD_DIMS(2, 3)})},
    {"no_planes", &constant, GD_INPUTS({GD_DIMS(0, 3, 4)}), .may_be_empty = true},
    {"nothing_in_the_frame", &constant, GD_INPUTS({GD_DIMS(2, 0, 4)}), .may_be_empty = true},
};

const gd_op gd_op_pad = {
    .formula = "y[i, j] = x[r(i), c(j)], or a value where there is none",
    .signature = "x[...] -> y[...]",
    GD_ARGS(gd_pad_args),
    GD_RANGES({"mode", GD_FIELD(gd_pad_args, mode), GD_PAD_CONSTANT, GD_PAD_REPLICATE,
               "one of gd_pad_mode"}),
    .shape = pad_shape,
    GD_KERNELS(pad),
    .definition = pad_definition,
    GD_CASES(pad_cases),
};

gd_tensor *gd_pad(gd_tensor *x, const gd_pad_options *options)
{
    gd_pad_args args = {{0, 0}, {0, 0}, GD_PAD_CONSTANT, 0};
    if (options) {
        args.before[PAD_ROWS] = gd_whole_option(options->top, 0);
        args.after[PAD_ROWS] = gd_whole_option(options->bottom, 0);
        args.before[PAD_COLS] = gd_whole_option(options->left, 0);
        args.after[PAD_COLS] = gd_whole_option(options->right, 0);
        args.mode = options->mode;
        args.value = gd_option(options->value, 0);
    }
    return gd_apply(&gd_op_pad, &x, 1, &args);
}

/* [..., H, W] -> [..., H, 1, W, 1] -> [..., H, rows, W, cols] -> [..., H rows, W cols] */
gd_tensor *gd_upsample_nearest(gd_tensor *x, int64_t rows, int64_t cols)
{
    if (!gd_tensor_usable(x, "upsample_nearest", "x")) return NULL;
    const int ndim = gd_tensor_ndim(x);
    gd_context *ctx = gd_tensor_context(x);
    if (ndim < 2 || ndim + 2 > GD_MAX_DIMS || rows < 1 || cols < 1) {
        gd_fail(
            ctx, GD_ERROR_ARGUMENT,
            "upsample_nearest: x %s is to be repeated %lld x %lld times, wanted [..., H, W] of 2 "
            "to %d dimensions, and 1 or more times",
            gd_shape_text(x).text, (long long)rows, (long long)cols, GD_MAX_DIMS - 2);
        return NULL;
    }
    int64_t apart[GD_MAX_DIMS], repeated[GD_MAX_DIMS], all[GD_MAX_DIMS];
    memcpy(apart, gd_tensor_shape(x), (size_t)ndim * sizeof *apart);
    memcpy(all, apart, sizeof all);
    const int64_t H = apart[ndim - 2], W = apart[ndim - 1];
    apart[ndim - 1] = 1, apart[ndim] = W, apart[ndim + 1] = 1;
    memcpy(repeated, apart, sizeof repeated);
    repeated[ndim - 1] = rows, repeated[ndim + 1] = cols;
    int64_t bytes = (int64_t)gd_dtype_size(gd_tensor_dtype(x));
    bool large = __builtin_mul_overflow(H, rows, &all[ndim - 2]) ||
                 __builtin_mul_overflow(W, cols, &all[ndim - 1]);
    for (int d = 0; d < ndim && !large; d++)
        large = __builtin_mul_overflow(bytes, gd_max64(all[d], 1), &bytes);
    if (large) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "upsample_nearest: x %s is to be repeated %lld x %lld times, which is too large",
                gd_shape_text(x).text, (long long)rows, (long long)cols);
        return NULL;
    }
    gd_tensor *y = gd_expand(gd_reshape(x, ndim + 2, apart), ndim + 2, repeated);
    /* In one copy: a reshape alone makes two of a view. */
    return gd_reshape(gd_contiguous(y), ndim, all);
}
