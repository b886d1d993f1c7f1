/* loss.h - shared by the records and the kernels of the losses. */
#ifndef GRADUS_LOSS_H
#define GRADUS_LOSS_H

#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "option.h"

typedef struct gd_loss_args {
    double p; /* of the row in loss.def */
    int32_t reduction, unused;
} gd_loss_args;

static inline double gd_loss_parameter(const gd_call *call)
{
    return gd_option_of_dtype(call->dtype, ((const gd_loss_args *)call->args)->p);
}

/* The divisor of the sum: the number of elements, that of examples, or 1. */
static inline double gd_loss_divisor(const gd_call *call)
{
    const gd_tensor *x = call->input[0];
    switch (((const gd_loss_args *)call->args)->reduction) {
    case GD_MEAN:
        return (double)gd_tensor_count(x);
    case GD_BATCHMEAN:
        return (double)gd_tensor_dim(x, 0);
    default:
        return 1;
    }
}

#endif
