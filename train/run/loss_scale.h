/* loss_scale.h - what keeps small gradients alive in float16.
 *
 * The smallest float16 above 0 is 6e-8; the gradient of a mean over 16,000 tokens has many elements
 * below it. Multiply the loss by s, and by the chain rule every gradient is multiplied by s; divide
 * those of the parameters, which are float32, by s again. The best s is just below where something
 * overflows, which nobody knows beforehand: so s is halved when a gradient is not finite, and that
 * step is left out; after many good steps it is doubled (Micikevicius et al. 2018,
 * arXiv:1710.03740). s is a power of two, so that nothing is rounded by it.
 */
#ifndef GRADUS_TRAIN_LOSS_SCALE_H
#define GRADUS_TRAIN_LOSS_SCALE_H

#include <stdbool.h>

#include "gradus/gradus.h"

typedef struct loss_scale {
    bool adapts;    /* otherwise factor is 1 for good */
    int64_t factor; /* at least 1 */
    int64_t good;   /* steps since it last changed */
} loss_scale;

/* Where a run begins: 65536 for float16. The others reach down to 1e-38 and are not scaled. */
loss_scale loss_scale_begin(gd_dtype dtype);

/* Whether float16's range may explain a gradient that is not finite. If so, halves the factor. */
bool loss_scale_overflowed(loss_scale *scale);

/* A step went well. */
void loss_scale_succeeded(loss_scale *scale);

#endif
