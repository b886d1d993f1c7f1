/* group_norm.h - the arguments of group_norm, and the shape that its kernels see. */
#ifndef GRADUS_GROUP_NORM_H
#define GRADUS_GROUP_NORM_H

#include "batch_norm/batch_norm.h"

typedef struct gd_group_norm_args {
    int64_t groups;
    double eps;
} gd_group_norm_args;

/* x as [rows, size]: a row is a group of `channels` channels of one example, of S places each. */
typedef struct gd_groups {
    int64_t rows, groups, channels, S, size;
} gd_groups;

static inline gd_groups gd_groups_of(const gd_call *call)
{
    const gd_group_norm_args *args = (const gd_group_norm_args *)call->args;
    const gd_channels x = gd_channels_of(call->input[0]);
    gd_groups g = {x.B * args->groups, args->groups, x.C / args->groups, x.S, 0};
    g.size = g.channels * g.S;
    return g;
}

#endif
