/* reduce.h - shared by the records and the kernels of the reductions. */
#ifndef GRADUS_REDUCE_H
#define GRADUS_REDUCE_H

#include "gradus/autograd.h"

typedef struct gd_reduce_args {
    bool all; /* over all axes; then `axes` is ignored */
    bool keep_dims, unused[2];
    int count;
    int axes[GD_MAX_DIMS]; /* [count], negative: from the end */
} gd_reduce_args;

/* The axes as bits: bit d is set if axis d of a tensor with ndim dimensions is reduced. */
static inline unsigned gd_reduced_axes(const gd_reduce_args *args, int ndim)
{
    unsigned mask = args->all ? (1u << ndim) - 1 : 0;
    for (int i = 0; !args->all && i < args->count; i++)
        mask |= 1u << (args->axes[i] < 0 ? args->axes[i] + ndim : args->axes[i]);
    return mask;
}

#endif
