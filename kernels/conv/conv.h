/* conv.h - what unfold, fold, conv2d and conv_transpose2d share: their arguments, and the sizes of
 * a call. README.md has the derivation. */
#ifndef GRADUS_CONV_H
#define GRADUS_CONV_H

#include "kernel.h"

/* Pairs are down and across. */
typedef struct conv_args {
    int64_t kernel[2]; /* of unfold and fold; those of a convolution are the weight's */
    int64_t size[2];   /* H and W of fold's y */
    int64_t stride[2], padding[2], dilation[2];
    int64_t output_padding[2]; /* of conv_transpose2d */
    int64_t groups;
} conv_args;

/* An image [B, C, H, W], from which windows [KH, KW] are taken at OH x OW positions. Channels are
 * in `groups`; a product is with a weight [O / groups, C / groups, KH, KW] for each, and its other
 * side is [B, O, OH, OW]. */
typedef struct conv_sizes {
    int64_t B, C, H, W, O, OH, OW, KH, KW, groups;
    int64_t stride[2], padding[2], dilation[2];
} conv_sizes;

/* The elements of a window in the channels of a group: the terms of a product. */
static inline int64_t conv_terms(const conv_sizes *s)
{
    return s->C / s->groups * s->KH * s->KW;
}

static inline int64_t conv_positions(const conv_sizes *s)
{
    return s->OH * s->OW;
}

/* Whether the windows of an image are the image itself. */
static inline bool conv_is_pointwise(const conv_sizes *s)
{
    return s->KH == 1 && s->KW == 1 && s->OH == s->H && s->OW == s->W && s->stride[0] == 1 &&
           s->stride[1] == 1 && s->padding[0] == 0 && s->padding[1] == 0;
}

/* Whether a sum of a few products for each element is faster than a product of matrices: a group
 * has one channel, and its weight few rows. */
static inline bool conv_is_depthwise(const conv_sizes *s)
{
    return s->C == s->groups && s->O <= 4 * s->groups && !conv_is_pointwise(s);
}

/* The sizes of unfold and fold, from the image; its columns are [B, C KH KW, OH OW]. */
static inline conv_sizes conv_sizes_of_columns(const conv_args *args, const gd_tensor *image)
{
    conv_sizes s;
    s.B = gd_tensor_dim(image, 0), s.C = s.O = gd_tensor_dim(image, 1);
    s.H = gd_tensor_dim(image, 2), s.W = gd_tensor_dim(image, 3);
    s.KH = args->kernel[0], s.KW = args->kernel[1];
    s.groups = 1;
    int64_t out[2];
    for (int i = 0; i < 2; i++) {
        s.stride[i] = args->stride[i];
        s.padding[i] = args->padding[i];
        s.dilation[i] = args->dilation[i];
        out[i] = (gd_tensor_dim(image, 2 + i) + 2 * args->padding[i] -
                  args->dilation[i] * (args->kernel[i] - 1) - 1) /
                     args->stride[i] +
                 1;
    }
    s.OH = out[0], s.OW = out[1];
    return s;
}

/* The sizes of a convolution, from its image and the tensor on the other side: in conv2d x and y,
 * in conv_transpose2d y and x. */
static inline conv_sizes conv_sizes_of(const gd_call *call, const gd_tensor *image,
                                       const gd_tensor *other)
{
    const gd_tensor *weight = call->input[1];
    conv_args args = *(const conv_args *)call->args;
    for (int i = 0; i < 2; i++) args.kernel[i] = gd_tensor_dim(weight, 2 + i);
    conv_sizes s = conv_sizes_of_columns(&args, image);
    s.groups = args.groups;
    s.O = gd_tensor_dim(other, 1);
    s.OH = gd_tensor_dim(other, 2), s.OW = gd_tensor_dim(other, 3);
    return s;
}

#endif
