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

static inline gd_status conv_check_pair(const gd_call *call, const char *name,
                                        const int64_t pair[2], int64_t least, int axes)
{
    for (int i = 0; i < axes; i++) {
        if (pair[i] >= least && pair[i] <= CONV_LARGEST) continue;
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s[%d] is %lld, wanted %lld to %d", name, i,
                            (long long)pair[i], (long long)least, CONV_LARGEST);
    }
    return GD_OK;
}

static inline gd_status conv_check_pairs(const gd_call *call, int axes)
{
    const conv_args *args = call->args;
    if (conv_check_pair(call, "stride", args->stride, 1, axes)) return GD_ERROR_ARGUMENT;
    if (conv_check_pair(call, "padding", args->padding, 0, axes)) return GD_ERROR_ARGUMENT;
    if (conv_check_pair(call, "output_padding", args->output_padding, 0, axes))
        return GD_ERROR_ARGUMENT;
    return conv_check_pair(call, "dilation", args->dilation, 1, axes);
}

static inline gd_status conv_product(const gd_call *call, int64_t a, int64_t b, int64_t *product)
{
    if (b > 0 && a > INT64_MAX / b)
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "the output is too large");
    *product = a * b;
    return GD_OK;
}

/* How many windows of `kernel` elements there are along an axis of `n` elements. 0: H, 1: W, 2: the L of
 * conv1d, whose options are the first of each pair. */
static inline gd_status conv_check_windows(const gd_call *call, int64_t n, int64_t kernel, int axis,
                                           int64_t *count)
{
    const conv_args *args = call->args;
    static const char *const kernels[] = {"KH", "KW", "K"}, *const sizes[] = {"H", "W", "L"};
    const char *name = kernels[axis];
    const int place = axis % 2;
    if (kernel < 1 || kernel > CONV_LARGEST) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "%s is %lld, wanted 1 to %d", name,
                            (long long)kernel, CONV_LARGEST);
    }
    if (n > INT64_MAX / 4) return gd_call_fail(call, GD_ERROR_ARGUMENT, "the input is too large");
    const int64_t span = args->dilation[place] * (kernel - 1) + 1,
                  available = n + 2 * args->padding[place];
    if (span > available) {
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT,
            "%s is %lld, which spans %lld with dilation %lld, wanted at most %lld, %s "
            "with its padding",
            name, (long long)kernel, (long long)span, (long long)args->dilation[place],
            (long long)available, sizes[axis]);
    }
    *count = (available - span) / args->stride[place] + 1;
    return GD_OK;
}

#endif
