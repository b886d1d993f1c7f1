/* cross_entropy.h - what the losses of logits share: their arguments, and what they check. */
#ifndef GRADUS_CROSS_ENTROPY_H
#define GRADUS_CROSS_ENTROPY_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct gd_cross_entropy_args {
    gd_reduction reduction;
    int32_t ignore_index;
    bool use_ignore_index;
} gd_cross_entropy_args;

#ifdef __cplusplus
extern "C" {
#endif
/* Fails unless targets are int32 and have the shape of rows, `name`, without its last dimension,
 * and the reduction is one. */
gd_status cross_entropy_check(const gd_call *call, const char *name, const gd_tensor *rows,
                              const gd_tensor *targets);

/* NULL: the defaults. */
gd_cross_entropy_args cross_entropy_args_of(const gd_cross_entropy_options *options);
#ifdef __cplusplus
}
#endif

#endif
