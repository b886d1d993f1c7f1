/* check.h - the checks of unfold, fold, conv2d and conv_transpose2d. */
#ifndef GRADUS_CONV_CHECK_H
#define GRADUS_CONV_CHECK_H

#include "arguments.h"
#include "conv/conv.h"
#include "gradus/ops.h"

/* The largest kernel, stride, padding or dilation, so that no sum of them overflows. */
#define CONV_LARGEST (1 << 30)

/* In the arguments of a case: stride, padding and dilation, down and across. */
#define CONV_PAIRS(s0, s1, p0, p1, d0, d1) \
    .stride = {s0, s1}, .padding = {p0, p1}, .dilation = {d0, d1}

static inline conv_args conv_args_of(const gd_conv_options *options)
{
    const gd_conv_options o = options ? *options : (gd_conv_options){.groups = 1};
    conv_args args = {.groups = gd_whole_option(o.groups, 1)};
    for (int i = 0; i < 2; i++) {
        args.stride[i] = gd_whole_option(o.stride[i], 1);
        args.dilation[i] = gd_whole_option(o.dilation[i], 1);
        args.padding[i] = gd_whole_option(o.padding[i], 0);
        args.output_padding[i] = gd_whole_option(o.output_padding[i], 0);
    }
    return args;
}

/* The options of windows along an axis, and those that an op has not. */
#define CONV_RANGE(field, low)                                                       \
    {                                                                                \
#field, GD_FIELD(conv_args, field), low, CONV_LARGEST, #low " to 1073741824" \
    }
#define CONV_WINDOW(i) \
    CONV_RANGE(stride[i], 1), CONV_RANGE(padding[i], 0), CONV_RANGE(dilation[i], 1)
#define CONV_UNSET(field, why)                              \
    {                                                       \
#field, GD_FIELD(conv_args, field), 0, 0, "0: " why \
    }
#define CONV_NO_OUTPUT_PADDING(i) CONV_UNSET(output_padding[i], "it is of conv_transpose2d")
static const gd_option_range conv_ranges[] = {
    CONV_WINDOW(1), CONV_WINDOW(0), CONV_NO_OUTPUT_PADDING(1), CONV_NO_OUTPUT_PADDING(0), {0}};

static inline gd_status conv_product(const gd_call *call, int64_t a, int64_t b, int64_t *product)
{
    if (b > 0 && a > INT64_MAX / b) return gd_refuse(call, "the output is too large");
    *product = a * b;
    return GD_OK;
}

/* How many windows of `kernel` elements there are along an axis of `n` elements. 0: H, 1: W, 2: the
 * L of conv1d, whose options are the first of each pair. */
static inline gd_status conv_check_windows(const gd_call *call, int64_t n, int64_t kernel, int axis,
                                           int64_t *count)
{
    const conv_args *args = call->args;
    static const char *const kernels[] = {"KH", "KW", "K"}, *const sizes[] = {"H", "W", "L"};
    const char *name = kernels[axis];
    const int place = axis % 2;
    if (kernel < 1 || kernel > CONV_LARGEST)
        return gd_refuse(call, "%s is %lld, wanted 1 to %d", name, (long long)kernel, CONV_LARGEST);
    if (n > INT64_MAX / 4) return gd_refuse(call, "the input is too large");
    const int64_t span = args->dilation[place] * (kernel - 1) + 1,
                  available = n + 2 * args->padding[place];
    if (span > available)
        return gd_refuse(call,
                         "%s is %lld, which spans %lld with dilation %lld, wanted at most %lld, %s "
                         "with its padding",
                         name, (long long)kernel, (long long)span, (long long)args->dilation[place],
                         (long long)available, sizes[axis]);
    *count = (available - span) / args->stride[place] + 1;
    return GD_OK;
}

#endif
