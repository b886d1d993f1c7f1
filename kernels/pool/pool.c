/* pool.c - the ops max_pool2d and avg_pool2d. README.md has the derivations. */
#include "pool/pool.h"
#include "arguments.h"
#include "derivation.h"

GD_KERNEL_PAIR(max_pool2d)
GD_KERNEL_PAIR(avg_pool2d)

/* y [..., H', W'] */
static gd_status pool_shape(const gd_call *call, gd_shapes *out)
{
    const gd_pool_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int ndim = gd_tensor_ndim(x);
    for (int axis = 0; axis < POOL_AXES; axis++) {
        const int64_t kernel = args->kernel[axis], stride = args->stride[axis],
                      padding = args->padding[axis], n = gd_tensor_dim(x, axis - POOL_AXES);
        const char *name = axis ? "columns" : "rows";
        if (kernel < 1 || stride < 1 || kernel > INT32_MAX || stride > INT32_MAX)
            return gd_refuse(call,
                             "the kernel has %lld %s and a stride of %lld, wanted 1 to 2147483647",
                             (long long)kernel, name, (long long)stride);
        if (padding < 0 || padding > kernel / 2)
            return gd_refuse(call, "padding is %lld %s, wanted 0 to half of the kernel's %lld",
                             (long long)padding, name, (long long)kernel);
        if (n + 2 * padding < kernel)
            return gd_refuse(call, "the kernel has %lld %s, but x %s with its padding only %lld",
                             (long long)kernel, name, gd_shape_text(x).text,
                             (long long)(n + 2 * padding));
        out->output[0].shape[ndim - POOL_AXES + axis] = (n + 2 * padding - kernel) / stride + 1;
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

/* The windows of the planes of x, padded, are the columns of an image of one channel [planes,
 * 1, H, W]. */
static gd_tensor *as_image(gd_tensor *x, const gd_tensor *of)
{
    return gd_reshape(x, GD_SHAPE(-1, 1, gd_tensor_dim(of, -2), gd_tensor_dim(of, -1)));
}

/* Of each window the first of its largest elements. */
static void max_pool2d_definition(const gd_call *call)
{
    const gd_pool_args *args = call->args;
    const gd_pad_options around = {.left = args->padding[POOL_COLS],
                                   .right = args->padding[POOL_COLS],
                                   .top = args->padding[POOL_ROWS],
                                   .bottom = args->padding[POOL_ROWS],
                                   .value = -INFINITY};
    const gd_conv_options windows = {.stride = {args->stride[0], args->stride[1]}};
    gd_tensor *x = gd_pad(as_image(call->input[0], call->input[0]), &around);
    gd_tensor *columns = gd_unfold(x, args->kernel[0], args->kernel[1], &windows);
    gd_tensor *y = gd_gather(columns, 1, gd_argmax(columns, 1, true));
    call->output[0] = shaped_as(y, call->output[0]);
}

/* Each element of a window gets an equal part of dy. */
static void avg_pool2d_derivative(const gd_call *call)
{
    const gd_pool_args *args = call->args;
    const gd_tensor *x = call->input[0];
    const int64_t size = args->kernel[0] * args->kernel[1];
    const gd_conv_options windows = {.stride = {args->stride[0], args->stride[1]},
                                     .padding = {args->padding[0], args->padding[1]}};
    gd_tensor *part = gd_reshape(
        times(call->doutput[0], 1 / (double)size),
        GD_SHAPE(gd_tensor_count(x) / (gd_tensor_dim(x, -2) * gd_tensor_dim(x, -1)), 1, -1));
    gd_tensor *columns =
        gd_expand(part, GD_SHAPE(gd_tensor_dim(part, 0), size, gd_tensor_dim(part, 2)));
    gd_tensor *dx = gd_fold(columns, gd_tensor_dim(x, -2), gd_tensor_dim(x, -1), args->kernel[0],
                            args->kernel[1], &windows);
    call->dinput[0] = shaped_as(dx, x);
}

/* ---- Records ------------------------------------------------------------------------------ */

static const gd_pool_args halves = {{2, 2}, {2, 2}, {0, 0}}, overlapping = {{3, 3}, {2, 2}, {1, 1}},
                          gaps = {{2, 1}, {3, 2}, {0, 0}}, dense = {{3, 5}, {1, 1}, {1, 2}},
                          all = {{4, 7}, {1, 1}, {0, 0}}, one = {{1, 1}, {1, 1}, {0, 0}},
                          corners = {{2, 2}, {1, 1}, {0, 0}};

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
    .name = "max_pool2d",
    .formula = "y[i, j] = max of x[i s + a - p, j s + b - p] over the kernel's a, b",
    .signature = "x[..., H, W] -> y[..., H, W]",
    GD_OF_X(gd_pool_args),
    .saves = 1,
    GD_BUILT_IN,
    .shape = max_pool2d_shape,
    GD_KERNELS(max_pool2d),
    .definition = max_pool2d_definition,
    GD_CASES(pool_cases),
};

const gd_op gd_op_avg_pool2d = {
    .name = "avg_pool2d",
    .formula = "y[i, j] = mean of x[i s + a - p, j s + b - p] over the kernel's a, b",
    .signature = "x[..., H, W] -> y[..., H, W]",
    GD_OF_X(gd_pool_args),
    GD_BUILT_IN,
    .shape = pool_shape,
    GD_KERNELS(avg_pool2d),
    .derivative = avg_pool2d_derivative,
    GD_CASES(pool_cases),
};

static gd_pool_args args_of(const gd_pool_options *options)
{
    gd_pool_args args = {{0, 0}, {0, 0}, {0, 0}};
    for (int axis = 0; options && axis < POOL_AXES; axis++) {
        args.kernel[axis] = options->kernel[axis];
        args.stride[axis] = gd_whole_option(options->stride[axis], options->kernel[axis]);
        args.padding[axis] = gd_whole_option(options->padding[axis], 0);
    }
    return args;
}

gd_tensor *gd_max_pool2d(gd_tensor *x, const gd_pool_options *options)
    GD_APPLIES(max_pool2d, (gd_pool_args[]){args_of(options)}, x)

gd_tensor *gd_avg_pool2d(gd_tensor *x, const gd_pool_options *options)
    GD_APPLIES(avg_pool2d, (gd_pool_args[]){args_of(options)}, x)
