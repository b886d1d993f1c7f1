/* conv.c - the ops conv2d and conv_transpose2d, and conv1d as a conv2d of one row (README.md). */
#include "conv/check.h"
#include "derivation.h"

GD_KERNEL_PAIR(conv2d)
GD_KERNEL_PAIR(conv_transpose2d)

/* What the groups make of the channels. Along `axes` axes: two, or conv1d's one. */
static gd_status check_groups(const gd_call *call, int weight_outputs, int axes)
{
    const gd_tensor *x = call->input[0], *weight = call->input[1], *bias = call->input[2];
    const conv_args *args = call->args;
    const int64_t C = gd_tensor_dim(x, 1);
    if (args->groups < 1 || C % args->groups)
        return gd_refuse(call, "groups is %lld, wanted a divisor of the %lld channels of x %s",
                         (long long)args->groups, (long long)C, gd_shape_text(x).text);
    if (weight_outputs == 0 && gd_tensor_dim(weight, 1) != C / args->groups)
        return gd_refuse(call,
                         "weight has shape %s, wanted [O, C / groups, %s] with C %lld of x %s%s",
                         gd_shape_text(weight).text, axes == 1 ? "K" : "KH, KW", (long long)C,
                         gd_shape_text(x).text, args->groups > 1 ? " in groups" : "");
    int64_t O = gd_tensor_dim(weight, weight_outputs);
    if (weight_outputs == 1 && conv_product(call, O, args->groups, &O)) return GD_ERROR_ARGUMENT;
    if (O % args->groups)
        return gd_refuse(call, "groups is %lld, wanted a divisor of the %lld outputs of weight %s",
                         (long long)args->groups, (long long)O, gd_shape_text(weight).text);
    if (bias && gd_tensor_dim(bias, 0) != O)
        return gd_refuse(call, "bias has shape %s, wanted [%lld] for weight %s",
                         gd_shape_text(bias).text, (long long)O, gd_shape_text(weight).text);
    return GD_OK;
}

static gd_status conv2d_shape(const gd_call *call, gd_shapes *out)
{
    if (check_groups(call, 0, 2)) return GD_ERROR_ARGUMENT;
    const gd_tensor *x = call->input[0], *weight = call->input[1];
    for (int i = 0; i < 2; i++) {
        if (conv_check_windows(call, gd_tensor_dim(x, 2 + i), gd_tensor_dim(weight, 2 + i), i,
                               &out->output[0].shape[2 + i]))
            return GD_ERROR_ARGUMENT;
    }
    return GD_OK;
}

/* conv2d makes the size of x of y's: (H - 1) stride - 2 padding + span + output_padding. */
static gd_status conv_transpose2d_shape(const gd_call *call, gd_shapes *out)
{
    if (check_groups(call, 1, 2)) return GD_ERROR_ARGUMENT;
    const gd_tensor *x = call->input[0], *weight = call->input[1];
    const conv_args *args = call->args;
    out->output[0].shape[1] = gd_tensor_dim(weight, 1) * args->groups;
    for (int i = 0; i < 2; i++) {
        const int64_t n = gd_tensor_dim(x, 2 + i), kernel = gd_tensor_dim(weight, 2 + i);
        const int64_t extra = args->output_padding[i];
        if (kernel < 1 || kernel > CONV_LARGEST)
            return gd_refuse(call, "%s is %lld, wanted 1 to %d", i ? "KW" : "KH", (long long)kernel,
                             CONV_LARGEST);
        if (extra >= args->stride[i] && extra >= args->dilation[i])
            return gd_refuse(
                call, "output_padding[%d] is %lld, wanted less than stride %lld or dilation %lld",
                i, (long long)extra, (long long)args->stride[i], (long long)args->dilation[i]);
        if (n < 1 || n > INT64_MAX / 4 / args->stride[i])
            return gd_refuse(
                call, "x has shape %s, wanted H and W of at least 1, and a y that is not too large",
                gd_shape_text(x).text);
        const int64_t size = (n - 1) * args->stride[i] - 2 * args->padding[i] +
                             args->dilation[i] * (kernel - 1) + 1 + extra;
        if (size < 1)
            return gd_refuse(call,
                             "padding[%d] is %lld, which leaves y no %s for x %s and weight %s", i,
                             (long long)args->padding[i], i ? "columns" : "rows",
                             gd_shape_text(x).text, gd_shape_text(weight).text);
        out->output[0].shape[2 + i] = size;
    }
    return GD_OK;
}

/* ---- By ops ------------------------------------------------------------------------------- */

static gd_conv_options windows_of(const conv_args *args)
{
    return (gd_conv_options){.stride = {args->stride[0], args->stride[1]},
                             .padding = {args->padding[0], args->padding[1]},
                             .dilation = {args->dilation[0], args->dilation[1]}};
}

static gd_tensor *with_bias(const gd_call *call, gd_tensor *y)
{
    gd_tensor *bias = call->input[2];
    return bias ? add(y, by_channel(bias, y)) : y;
}

/* y = weight unfold(x) + bias, in each group */
static void conv2d_definition(const gd_call *call)
{
    const conv_args *args = call->args;
    const gd_conv_options windows = windows_of(args);
    gd_tensor *x = call->input[0], *weight = call->input[1];
    const int64_t G = args->groups, O = gd_tensor_dim(weight, 0);
    gd_tensor *columns = gd_unfold(x, gd_tensor_dim(weight, 2), gd_tensor_dim(weight, 3), &windows);
    columns = gd_reshape(columns, GD_SHAPE(gd_tensor_dim(x, 0), G, gd_tensor_dim(columns, 1) / G,
                                           gd_tensor_dim(columns, 2)));
    gd_tensor *rows = gd_reshape(weight, GD_SHAPE(G, O / G, gd_tensor_dim(columns, 2)));
    call->output[0] = with_bias(call, shaped_as(gd_matmul(rows, columns), call->output[0]));
}

/* y = fold(weight^T x) + bias, in each group. Where output_padding is a stride or more, y has
 * windows beyond those of x, which are zeros. */
static void conv_transpose2d_definition(const gd_call *call)
{
    const conv_args *args = call->args;
    const gd_conv_options windows = windows_of(args);
    const gd_pad_options beyond = {.bottom = args->output_padding[0] / args->stride[0],
                                   .right = args->output_padding[1] / args->stride[1]};
    gd_tensor *x = call->input[0], *weight = call->input[1], *y = call->output[0];
    const int64_t B = gd_tensor_dim(x, 0), G = args->groups, C = gd_tensor_dim(x, 1) / G,
                  KH = gd_tensor_dim(weight, 2), KW = gd_tensor_dim(weight, 3),
                  n = gd_tensor_dim(weight, 1) * KH * KW;
    if (beyond.bottom || beyond.right) x = gd_pad(x, &beyond);
    const int64_t P = gd_tensor_dim(x, 2) * gd_tensor_dim(x, 3);
    gd_tensor *rows = gd_reshape(weight, GD_SHAPE(G, C, n));
    gd_tensor *columns = gd_matmul_with(rows, gd_reshape(x, GD_SHAPE(B, G, C, P)), true, false);
    gd_tensor *image = gd_fold(gd_reshape(columns, GD_SHAPE(B, G * n, P)), gd_tensor_dim(y, 2),
                               gd_tensor_dim(y, 3), KH, KW, &windows);
    call->output[0] = with_bias(call, image);
}

/* ---- Records ------------------------------------------------------------------------------ */

static const conv_args plain = {CONV_PAIRS(1, 1, 0, 0, 1, 1), .groups = 1},
                       padded = {CONV_PAIRS(1, 1, 1, 2, 1, 1), .groups = 1},
                       strided = {CONV_PAIRS(2, 3, 1, 0, 1, 1), .groups = 1},
                       dilated = {CONV_PAIRS(1, 1, 2, 1, 2, 3), .groups = 1},
                       in_groups = {CONV_PAIRS(1, 1, 1, 1, 1, 1), .groups = 2},
                       depthwise = {CONV_PAIRS(1, 1, 1, 1, 1, 1), .groups = 4},
                       all_at_once = {CONV_PAIRS(2, 1, 1, 2, 1, 2), .groups = 2},
                       longer = {CONV_PAIRS(3, 2, 1, 0, 1, 1), .output_padding = {2, 1},
                                 .groups = 1},
                       dilated_longer = {CONV_PAIRS(1, 1, 0, 0, 3, 1), .output_padding = {2, 0},
                                         .groups = 1};

static const gd_case conv2d_cases[] = {
    {"one_window", &plain, GD_INPUTS({GD_DIMS(1, 1, 2, 3)}, {GD_DIMS(1, 1, 2, 3)}, {GD_DIMS(1)})},
    {"k2x2", &plain, GD_INPUTS({GD_DIMS(1, 1, 3, 3)}, {GD_DIMS(1, 1, 2, 2)}, {GD_DIMS(1)})},
    {"k3x2", &plain, GD_INPUTS({GD_DIMS(2, 3, 5, 6)}, {GD_DIMS(4, 3, 3, 2)}, {GD_DIMS(4)})},
    {"no_bias", &plain, GD_INPUTS({GD_DIMS(2, 2, 4, 4)}, {GD_DIMS(3, 2, 2, 2)}, GD_ABSENT)},
    {"padded", &padded, GD_INPUTS({GD_DIMS(2, 2, 4, 3)}, {GD_DIMS(3, 2, 3, 3)}, {GD_DIMS(3)})},
    {"strided", &strided, GD_INPUTS({GD_DIMS(1, 2, 7, 8)}, {GD_DIMS(3, 2, 3, 2)}, {GD_DIMS(3)})},
    {"dilated", &dilated, GD_INPUTS({GD_DIMS(1, 2, 6, 7)}, {GD_DIMS(2, 2, 3, 2)}, {GD_DIMS(2)})},
    {"groups", &in_groups, GD_INPUTS({GD_DIMS(2, 4, 4, 5)}, {GD_DIMS(6, 2, 3, 3)}, {GD_DIMS(6)})},
    {"depthwise", &depthwise,
     GD_INPUTS({GD_DIMS(2, 4, 5, 4)}, {GD_DIMS(4, 1, 3, 3)}, {GD_DIMS(4)})},
    {"depthwise_twice", &depthwise,
     GD_INPUTS({GD_DIMS(1, 4, 3, 3)}, {GD_DIMS(8, 1, 2, 3)}, {GD_DIMS(8)})},
    {"all_at_once", &all_at_once,
     GD_INPUTS({GD_DIMS(2, 4, 6, 5)}, {GD_DIMS(4, 2, 3, 2)}, {GD_DIMS(4)})},
    {"points", &plain, GD_INPUTS({GD_DIMS(2, 5, 4, 3)}, {GD_DIMS(3, 5, 1, 1)}, {GD_DIMS(3)})},
    {"one_row", &plain, GD_INPUTS({GD_DIMS(2, 3, 1, 11)}, {GD_DIMS(4, 3, 1, 3)}, {GD_DIMS(4)})},
    {"pieces", &plain, GD_INPUTS({GD_DIMS(1, 24, 21, 23)}, {GD_DIMS(2, 24, 5, 5)}, {GD_DIMS(2)})},
    {"no_images", &plain, GD_INPUTS({GD_DIMS(0, 2, 4, 4)}, {GD_DIMS(3, 2, 2, 2)}, {GD_DIMS(3)}),
     .may_be_empty = true},
};

static const gd_case conv_transpose2d_cases[] = {
    {"one_window", &plain, GD_INPUTS({GD_DIMS(1, 1, 1, 1)}, {GD_DIMS(1, 1, 2, 3)}, {GD_DIMS(1)})},
    {"k2x2", &plain, GD_INPUTS({GD_DIMS(1, 1, 2, 2)}, {GD_DIMS(1, 1, 2, 2)}, {GD_DIMS(1)})},
    {"k3x2", &plain, GD_INPUTS({GD_DIMS(2, 3, 3, 4)}, {GD_DIMS(3, 4, 3, 2)}, {GD_DIMS(4)})},
    {"no_bias", &plain, GD_INPUTS({GD_DIMS(2, 2, 4, 4)}, {GD_DIMS(2, 3, 2, 2)}, GD_ABSENT)},
    {"padded", &padded, GD_INPUTS({GD_DIMS(2, 2, 4, 5)}, {GD_DIMS(2, 3, 3, 3)}, {GD_DIMS(3)})},
    {"strided", &strided, GD_INPUTS({GD_DIMS(1, 2, 3, 4)}, {GD_DIMS(2, 3, 3, 2)}, {GD_DIMS(3)})},
    {"longer", &longer, GD_INPUTS({GD_DIMS(1, 2, 3, 2)}, {GD_DIMS(2, 3, 3, 2)}, {GD_DIMS(3)})},
    {"dilated", &dilated, GD_INPUTS({GD_DIMS(1, 2, 4, 3)}, {GD_DIMS(2, 2, 3, 2)}, {GD_DIMS(2)})},
    {"dilated_longer", &dilated_longer,
     GD_INPUTS({GD_DIMS(1, 2, 2, 3)}, {GD_DIMS(2, 2, 2, 2)}, {GD_DIMS(2)})},
    {"groups", &in_groups, GD_INPUTS({GD_DIMS(2, 4, 4, 5)}, {GD_DIMS(4, 3, 3, 3)}, {GD_DIMS(6)})},
    {"depthwise", &depthwise,
     GD_INPUTS({GD_DIMS(2, 4, 3, 4)}, {GD_DIMS(4, 1, 3, 3)}, {GD_DIMS(4)})},
    {"points", &plain, GD_INPUTS({GD_DIMS(2, 5, 4, 3)}, {GD_DIMS(5, 3, 1, 1)}, {GD_DIMS(3)})},
    {"pieces", &plain, GD_INPUTS({GD_DIMS(1, 2, 17, 19)}, {GD_DIMS(2, 24, 5, 5)}, {GD_DIMS(24)})},
    {"no_images", &plain, GD_INPUTS({GD_DIMS(0, 2, 4, 4)}, {GD_DIMS(2, 3, 2, 2)}, {GD_DIMS(3)}),
     .may_be_empty = true},
};

const gd_op gd_op_conv2d = {
    .formula = "y = weight unfold(x) + bias",
    .signature = "x[B, C, H, W] weight[O, I, K, L] bias[O]? -> y[B, O, H, W]",
    GD_ARGS(conv_args),
    .ranges = conv_ranges,
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    .shape = conv2d_shape,
    GD_KERNELS(conv2d),
    .definition = conv2d_definition,
    GD_CASES(conv2d_cases),
};

const gd_op gd_op_conv_transpose2d = {
    .formula = "y = fold(weight^T x) + bias",
    .signature = "x[B, C, H, W] weight[C, O, K, L] bias[N]? -> y[B, C, H, W]",
    GD_ARGS(conv_args),
    GD_RANGES(CONV_WINDOW(1), CONV_WINDOW(0), CONV_RANGE(output_padding[1], 0),
              CONV_RANGE(output_padding[0], 0)),
    .backward_reads_inputs = GD_BIT(0) | GD_BIT(1),
    .dinput_float32 = GD_BIT(1) | GD_BIT(2),
    .shape = conv_transpose2d_shape,
    GD_KERNELS(conv_transpose2d),
    .definition = conv_transpose2d_definition,
    GD_CASES(conv_transpose2d_cases),
};

gd_tensor *gd_conv2d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                     const gd_conv_options *options)
    GD_APPLIES(conv2d, ((conv_args[]){conv_args_of(options)}), x, weight, bias)

static const gd_option_range conv1d_ranges[] = {CONV_WINDOW(0),
                                                CONV_NO_OUTPUT_PADDING(0),
                                                CONV_UNSET(stride[1], "there is one axis"),
                                                CONV_UNSET(padding[1], "there is one axis"),
                                                CONV_UNSET(dilation[1], "there is one axis"),
                                                CONV_UNSET(output_padding[1], "there is one axis"),
                                                {0}};

static gd_status conv1d_shape(const gd_call *call, gd_shapes *out)
{
    if (check_groups(call, 0, 1)) return GD_ERROR_ARGUMENT;
    return conv_check_windows(call, gd_tensor_dim(call->input[0], 2),
                              gd_tensor_dim(call->input[1], 2), 2, out->output->shape);
}

gd_tensor *gd_conv1d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                     const gd_conv_options *options)
{
    static const gd_op conv1d = {.name = "conv1d",
                                 .signature = "x[B, C, L] weight[O, I, K] bias[O]?",
                                 .ranges = conv1d_ranges,
                                 .shape = conv1d_shape};
    conv_args args = conv_args_of(options);
    args.stride[1] = options ? gd_whole_option(options->stride[1], 0) : 0;
    args.dilation[1] = options ? gd_whole_option(options->dilation[1], 0) : 0;
    if (!gd_accepts(&conv1d, (gd_tensor *[]){x, weight, bias}, 3, &args)) return NULL;
    args.stride[1] = args.stride[0], args.padding[1] = args.padding[0];
    args.dilation[1] = args.dilation[0];
    args.stride[0] = args.dilation[0] = 1, args.padding[0] = 0;
    gd_tensor *const inputs[] = {gd_unsqueeze(x, 2), gd_unsqueeze(weight, 2), bias};
    return gd_squeeze(gd_apply(&gd_op_conv2d, inputs, 3, &args), 2);
}

gd_tensor *gd_conv_transpose2d(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                               const gd_conv_options *options)
    GD_APPLIES(conv_transpose2d, ((conv_args[]){conv_args_of(options)}), x, weight, bias)
