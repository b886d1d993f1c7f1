/* targets.h - the targets of a loss on the CPU: which rows are not ignored, and a check that all
 * are in the vocabulary. */
#ifndef GRADUS_TARGETS_H
#define GRADUS_TARGETS_H

#include "cross_entropy/cross_entropy.h"

static inline bool target_counts(const gd_cross_entropy_args *args, int32_t target)
{
    return !(args->use_ignore_index && target == args->ignore_index);
}

/* A target outside the vocabulary is an error before anything is computed. *counting gets the
 * number of rows that are not ignored. */
static inline gd_status check_targets(const gd_call *call, const int32_t *targets, int64_t rows,
                                      int64_t vocab, int64_t *counting)
{
    const gd_cross_entropy_args *args = call->args;
    *counting = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (!target_counts(args, targets[i])) continue;
        if (targets[i] < 0 || targets[i] >= vocab) {
            return gd_call_fail(call, GD_ERROR_ARGUMENT, "targets[%lld] is %d, wanted 0 to %lld%s",
                                (long long)i, (int)targets[i], (long long)vocab - 1,
                                args->use_ignore_index ? " or the ignore index" : "");
        }
        ++*counting;
    }
    return GD_OK;
}

/* The factor of each row in the loss. */
static inline double target_factor(const gd_cross_entropy_args *args, int64_t counting)
{
    return args->reduction == GD_MEAN ? 1 / (double)counting : 1;
}

#endif
