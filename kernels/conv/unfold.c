/* unfold.c - the ops unfold and fold: windows of an image as columns, and their sum. README.md has
 * the derivation. */
#include "conv/check.h"
#include "gradus/ops.h"

extern const gd_op gd_op_unfold, gd_op_fold;

GD_KERNEL_PAIR(unfold)
GD_KERNEL_PAIR(fold)

/* The sizes of the columns of an image [B, C, H, W]: n = C KH KW and P = OH OW. */
static gd_status check_columns(const gd_call *call, int64_t C, const int64_t image[2], int64_t *n,
                               int64_t *P)
{
    const conv_args *args = call->args;
    int64_t out[2];
    for (int i = 0; i < 2; i++)
        if (conv_check_windows(call, image[i], args->kernel[i], i, &out[i]))
            return GD_ERROR_ARGUMENT;
    if (conv_product(call, args->kernel[0], args->kernel[1], n)) return GD_ERROR_ARGUMENT;
    if (conv_product(call, *n, C, n)) return GD_ERROR_ARGUMENT;
    return conv_product(call, out[0], out[1], P);
}

static gd_status unfold_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0];
    return check_columns(call, gd_tensor_dim(x, 1), gd_tensor_shape(x) + 2,
                         &out->output[0].shape[1], &out->output[0].shape[2]);
}

static gd_status fold_shape(const gd_call *call, gd_shapes *out)
{
    const conv_args *args = call->args;
    const gd_tensor *x = call->input[0];
    int64_t window, P;
    for (int i = 0; i < 2; i++)
        if (args->size[i] < 0 || args->size[i] > CONV_LARGEST)
            return gd_refuse(call, "%s is %lld, wanted 0 to %d", i ? "width" : "height",
                             (long long)args->size[i], CONV_LARGEST);
    if (check_columns(call, 1, args->size, &window, &P)) return GD_ERROR_ARGUMENT;
    if (gd_tensor_dim(x, 1) % window || gd_tensor_dim(x, 2) != P)
        return gd_refuse(
            call, "x has shape %s, wanted [B, C %lld, %lld], the windows of [B, C, %lld, %lld]",
            gd_shape_text(x).text, (long long)window, (long long)P, (long long)args->size[0],
            (long long)args->size[1]);
    int64_t *y = out->output[0].shape;
    y[1] = gd_tensor_dim(x, 1) / window, y[2] = args->size[0], y[3] = args->size[1];
    return GD_OK;
}

/* Each is the adjoint of the other, with the same windows. */
static void unfold_derivative(const gd_call *call)
{
    conv_args args = *(const conv_args *)call->args;
    const gd_tensor *x = call->input[0];
    args.size[0] = gd_tensor_dim(x, 2), args.size[1] = gd_tensor_dim(x, 3);
    call->dinput[0] = gd_apply(&gd_op_fold, call->doutput, 1, &args);
}

static void fold_derivative(const gd_call *call)
{
    call->dinput[0] = gd_apply(&gd_op_unfold, call->doutput, 1, call->args);
}

static const conv_args two = {.kernel = {2, 2}, .size = {3, 3}, CONV_PAIRS(1, 1, 0, 0, 1, 1)},
                       padded = {.kernel = {3, 2}, .size = {4, 5}, CONV_PAIRS(1, 1, 2, 1, 1, 1)},
                       strided = {.kernel = {2, 3}, .size = {7, 8}, CONV_PAIRS(2, 3, 0, 0, 1, 1)},
                       dilated = {.kernel = {3, 2}, .size = {8, 7}, CONV_PAIRS(1, 2, 1, 2, 2, 3)},
                       far = {.kernel = {2, 2}, .size = {2, 2}, CONV_PAIRS(2, 2, 3, 3, 1, 1)},
                       point = {.kernel = {1, 1}, .size = {4, 6}, CONV_PAIRS(1, 1, 0, 0, 1, 1)},
                       wide = {.kernel = {3, 3}, .size = {19, 37}, CONV_PAIRS(1, 1, 1, 1, 1, 1)};

static const gd_case unfold_cases[] = {
    {"two_by_two", &two, GD_INPUTS({GD_DIMS(1, 1, 3, 3)})},
    {"padded", &padded, GD_INPUTS({GD_DIMS(2, 3, 4, 5)})},
    {"strided", &strided, GD_INPUTS({GD_DIMS(2, 2, 7, 8)})},
    {"dilated", &dilated, GD_INPUTS({GD_DIMS(1, 2, 8, 7)})},
    {"windows_of_padding", &far, GD_INPUTS({GD_DIMS(1, 2, 2, 2)})},
    {"point", &point, GD_INPUTS({GD_DIMS(2, 3, 4, 6)})},
    {"wide", &wide, GD_INPUTS({GD_DIMS(1, 2, 19, 37)})},
    {"no_images", &two, GD_INPUTS({GD_DIMS(0, 1, 3, 3)}), .may_be_empty = true},
};

static const gd_case fold_cases[] = {
    {"two_by_two", &two, GD_INPUTS({GD_DIMS(1, 4, 4)})},
    {"padded", &padded, GD_INPUTS({GD_DIMS(2, 18, 36)})},
    {"strided", &strided, GD_INPUTS({GD_DIMS(2, 12, 6)})},
    {"dilated", &dilated, GD_INPUTS({GD_DIMS(1, 12, 24)})},
    {"windows_of_padding", &far, GD_INPUTS({GD_DIMS(1, 8, 16)})},
    {"point", &point, GD_INPUTS({GD_DIMS(2, 3, 24)})},
    {"wide", &wide, GD_INPUTS({GD_DIMS(1, 18, 703)})},
    {"no_images", &two, GD_INPUTS({GD_DIMS(0, 4, 4)}), .may_be_empty = true},
};

const gd_op gd_op_unfold = {
    .formula = "y[b, (c KH + i) KW + j, p] = x[b, c, h, w], the element (i, j) of window p",
    .signature = "x[B, C, H, W] -> y[B, 1, 1]",
    GD_ARGS(conv_args),
    .ranges = conv_ranges,
    .shape = unfold_shape,
    GD_KERNELS(unfold),
    .derivative = unfold_derivative,
    GD_CASES(unfold_cases),
};

const gd_op gd_op_fold = {
    .formula =
        "y[b, c, h, w] = sum of x[b, (c KH + i) KW + j, p] with (h, w) the element (i, j) of "
        "window p",
    .signature = "x[B, N, P] -> y[B, 1, 1, 1]",
    GD_ARGS(conv_args),
    .ranges = conv_ranges,
    .shape = fold_shape,
    GD_KERNELS(fold),
    .derivative = fold_derivative,
    GD_CASES(fold_cases),
};

gd_tensor *gd_unfold(gd_tensor *x, int64_t height, int64_t width, const gd_conv_options *options)
{
    conv_args args = conv_args_of(options);
    args.kernel[0] = height, args.kernel[1] = width;
    return gd_apply(&gd_op_unfold, &x, 1, &args);
}

gd_tensor *gd_fold(gd_tensor *x, int64_t H, int64_t W, int64_t height, int64_t width,
                   const gd_conv_options *options)
{
    conv_args args = conv_args_of(options);
    args.size[0] = H, args.size[1] = W;
    args.kernel[0] = height, args.kernel[1] = width;
    return gd_apply(&gd_op_fold, &x, 1, &args);
}
