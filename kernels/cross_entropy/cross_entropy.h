/* cross_entropy.h - shared by the losses of logits: their arguments, targets and checks. */
#ifndef GRADUS_CROSS_ENTROPY_H
#define GRADUS_CROSS_ENTROPY_H

#include "gradus/ops.h"
#include "kernel.h"

typedef struct gd_cross_entropy_args {
    gd_reduction reduction;
    int32_t ignore_index;
    bool use_ignore_index, unused[7];
    double smoothing;
} gd_cross_entropy_args;

/* Whether a call of cross_entropy has one target a row and nothing else, for which there are
 * shorter kernels. */
static inline bool cross_entropy_is_short(const gd_call *call)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
    return args->reduction != GD_NONE && args->smoothing == 0 && !call->input[2] &&
           gd_tensor_dtype(call->input[1]) == GD_INT32;
}

/* ---- Targets on the CPU: which rows are not ignored --------------------------------------- */

static inline bool target_counts(const gd_cross_entropy_args *args, int32_t target)
{
    return !(args->use_ignore_index && target == args->ignore_index);
}

/* A target outside the vocabulary is an error before anything is computed. *counting gets the
 * number of rows that are not ignored. */
static inline gd_status targets_counting(const gd_call *call, const int32_t *targets, int64_t rows,
                                         int64_t vocab, int64_t *counting)
{
    const gd_cross_entropy_args *args = (const gd_cross_entropy_args *)call->args;
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

/* ---- Shared by the records ------------------------------------------------------------------ */

#ifdef __cplusplus
extern "C" {
#endif
/* The ranges of a loss's arguments; `most` is that of the smoothing. */
#define CROSS_ENTROPY_RANGES(most, wanted)                                             \
    {"reduction", GD_FIELD(gd_cross_entropy_args, reduction), GD_MEAN, GD_NONE,        \
     "GD_MEAN, GD_SUM or GD_NONE"},                                                    \
    {                                                                                  \
        "label_smoothing", GD_FIELD(gd_cross_entropy_args, smoothing), 0, most, wanted \
    }
extern const gd_option_range cross_entropy_ranges[];

/* What the signature of a loss of rows does not say: it is one number, unless for GD_NONE, and
 * class weights have no gradient beside numbers of classes. It is float32 at least: in 16 bits a
 * loss of 4 would have steps of 1/32. */
gd_status cross_entropy_loss_shape(const gd_call *call, gd_shapes *out);

/* By ops: the rows that are ignored, int32 [...], or NULL for none; and the weights of the
 * targets [...], ones without weights, 0 for those that are ignored. *targets gets the targets, 0
 * for those. */
gd_tensor *cross_entropy_ignored(const gd_cross_entropy_args *args, gd_tensor *targets);
gd_tensor *cross_entropy_weights(const gd_call *call, gd_tensor *ignored, gd_tensor **targets);

/* By ops: the losses [...], their sum, or their mean by the sum of the weights; where no target
 * counts, this is NaN and its gradient 0. */
gd_tensor *cross_entropy_reduced(const gd_call *call, gd_tensor *loss, gd_tensor *weight,
                                 gd_tensor *ignored);

/* NULL: the defaults. */
gd_cross_entropy_args cross_entropy_args_of(const gd_cross_entropy_options *options);
#ifdef __cplusplus
}
#endif

#endif
