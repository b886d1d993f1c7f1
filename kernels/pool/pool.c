/* pool.c - the ops max_pool2d and avg_pool2d. README.md has the derivations. */
#include "pool/pool.h"
#include "conv/check.h"
#include "derivation.h"

extern const gd_op gd_op_unfold, gd_op_fold;

GD_KERNEL_PAIR(max_pool2d)
GD_KERNEL_PAIR(avg_pool2d)

/* y [..., H', W'], by the rule of convolutions. */
static gd_status pool_shape(const gd_call *call, gd_shapes *out)
{
    const conv_args *args = call->args;
    int64_t *y = out->output[0].shape + out->output[0].ndim - POOL_AXES;
    for (int axis = 0; axis < POOL_AXES; axis++) {
        const int64_t kernel = args->kernel[axis];
        if (conv_check_windows(call, y[axis], kernel, axis, &y[axis])) return GD_ERROR_ARGUMENT;
        if (args->padding[axis] > kernel / 2)
            return gd_refuse(call, "padding[%d] is %lld, wanted at most half of the kernel's %lld",
                             axis, (long long)args->padding[axis], (long long)kernel);
    }
    return GD_OK;
}

/* Saves the place of each maximum in its plane. */
static gd_status max_pool2d_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *x = call->input[0];
    const gd_status status = pool_shape(call, out);
    if (status) return status;
    if (gd_tensor_dim(x, -2) > 0 && gd_tensor_dim(x, -1) > INT32_MAX / gd_tensor_dim(x, -2))
        return gd_refuse(call, "x is %s, wanted planes of at most 2^31 - 1 elements",
                         gd_shape_text(x).text);
    out->save[0] = out->output[0];
    out->save[0].dtype = GD_INT32;
    return GD_OK;
}

/* ---- By ops ------------------------------------------------------------------------------- */

/* Planes as images of one channel [planes, 1, H, W], H and W those of `of`. */
static gd_tensor *as_images(gd_tensor *x, const gd_tensor *of)
{
    return gd_reshape(x, GD_SHAPE(-1, 1, gd_tensor_dim(of, -2), gd_tensor_dim(of, -1)));
}

/* Of each window the first of its largest elements. */
static void max_pool2d_definition(const gd_call *call)
{
    conv_args windows = *(const conv_args *)call->args;
    const int64_t *padding = windows.padding;
    const gd_pad_options around = {.left = padding[POOL_COLS],
                                   .right = padding[POOL_COLS],
                                   .top = padding[POOL_ROWS],
                                   .bottom = padding[POOL_ROWS],
                                   .value = -INFINITY};
    gd_tensor *x = gd_pad(as_images(call->input[0], call->input[0]), &around);
    windows.padding[0] = windows.padding[1] = 0;
    gd_tensor *columns = gd_apply(&gd_op_unfold, &x, 1, &windows);
    gd_tensor *y = gd_gather(columns, 1, gd_argmax(columns, 1, true));
    call->output[0] = shaped_as(y, call->output[0]);
}

/* Each element of a window gets an equal part of dy. */
static void avg_pool2d_derivative(const gd_call *call)
{
    conv_args windows = *(const conv_args *)call->args;
    const gd_tensor *x = call->input[0];
    const int64_t size = windows.kernel[0] * windows.kernel[1];
    gd_tensor *part = gd_reshape(
        times(call->doutput[0], 1 / (double)size),
        GD_SHAPE(gd_tensor_count(x) / (gd_tensor_dim(x, -2) * gd_tensor_dim(x, -1)), 1, -1));
    gd_tensor *columns =
        gd_expand(part, GD_SHAPE(gd_tensor_dim(part, 0), size, gd_tensor_dim(part, 2)));
    windows.size[0] = gd_tensor_dim(x, -2), windows.size[1] = gd_tensor_dim(x, -1);
    call->dinput[0] = shaped_as(gd_apply(&gd_op_fold, &columns, 1, &windows), x);
}

/* ---- Records ------------------------------------------------------------------------------ */

#define POOL(k0, k1, s0, s1, p0, p1)                                      \
    {                                                                     \
        .kernel = {k0, k1}, CONV_PAIRS(s0, s1, p0, p1, 1, 1), .groups = 1 \
    }
static const conv_args halves = POOL(2, 2, 2, 2, 0, 0), overlapping = POOL(3, 3, 2, 2, 1, 1),
                       gaps = POOL(2, 1, 3, 2, 0, 0), dense = POOL(3, 5, 1, 1, 1, 2),
                       all = POOL(4, 7, 1, 1, 0, 0), one = POOL(1, 1, 1, 1, 0, 0),
                       corners = POOL(2, 2, 1, 1, 0, 0);

/* No two elements may be so close that a step of gradcheck changes which is the maximum. */
static const gd_case pool_cases[] = {
    {"halves", &halves, GD_INPUTS({GD_DISTINCT, GD_DIMS(2, 3, 4, 6)})},
    {"packs", &halves, GD_INPUTS({GD_DISTINCT, GD_DIMS(2, 4, 8)})},
    {"a_row_left_over", &halves, GD_INPUTS({GD_DISTINCT, GD_DIMS(3, 5, 7)})},
    {"overlapping", &overlapping, GD_INPUTS({GD_DISTINCT, GD_DIMS(2, 7, 8)})},
    {"gaps", &gaps, GD_INPUTS({GD_DISTINCT, GD_DIMS(2, 9, 5)})},
    {"dense", &dense, GD_INPUTS({GD_DISTINCT, GD_DIMS(1, 2, 5, 6)})},
    {"whole_planes", &all, GD_INPUTS({GD_DISTINCT, GD_DIMS(3, 4, 7)})},
    {"windows_of_one", &one, GD_INPUTS({GD_DISTINCT, GD_DIMS(3, 4)})},
    {"corners", &corners, GD_INPUTS({GD_DISTINCT, GD_DIMS(1, 3, 3)})},
    {"no_planes", &halves, GD_INPUTS({GD_DISTINCT, GD_DIMS(0, 4, 4)}), .may_be_empty = true},
};

const gd_op gd_op_max_pool2d = {
    .formula = "y[i, j] = max of x[i s + a - p, j s + b - p] over the kernel's a, b",
    .signature = "x[..., H, W] -> y[..., H, W]; places",
    GD_ARGS(conv_args),
    .ranges = conv_ranges,
    .shape = max_pool2d_shape,
    GD_KERNELS(max_pool2d),
    .definition = max_pool2d_definition,
    GD_CASES(pool_cases),
};

const gd_op gd_op_avg_pool2d = {
    .formula = "y[i, j] = mean of x[i s + a - p, j s + b - p] over the kernel's a, b",
    .signature = "x[..., H, W] -> y[..., H, W]",
    GD_ARGS(conv_args),
    .ranges = conv_ranges,
    .shape = pool_shape,
    GD_KERNELS(avg_pool2d),
    .derivative = avg_pool2d_derivative,
    GD_CASES(pool_cases),
};

static conv_args args_of(const gd_pool_options *options)
{
    conv_args args = conv_args_of(NULL);
    for (int axis = 0; options && axis < POOL_AXES; axis++) {
        args.kernel[axis] = options->kernel[axis];
        args.stride[axis] = gd_whole_option(options->stride[axis], options->kernel[axis]);
        args.padding[axis] = gd_whole_option(options->padding[axis], 0);
    }
    return args;
}

gd_tensor *gd_max_pool2d(gd_tensor *x, const gd_pool_options *options)
    GD_APPLIES(max_pool2d, (conv_args[]){args_of(options)}, x)

gd_tensor *gd_avg_pool2d(gd_tensor *x, const gd_pool_options *options)
    GD_APPLIES(avg_pool2d, (conv_args[]){args_of(options)}, x)
