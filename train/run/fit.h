/* fit.h - whether a run fits into memory. */
#ifndef GRADUS_TRAIN_FIT_H
#define GRADUS_TRAIN_FIT_H

#include "data.h"
#include "model.h"
#include "train_options.h"

/* Call it before the declared model has memory: an error, after a line with the sizes, if its
 * parameters, gradients and optimizer need more than the CPU's memory has free. Linux would grant
 * it, and end the program later without a message. GPUs and several processes are not checked. */
gd_status fit_check(const model *m, const train_options *options);

/* --dry-run: measures a forward and backward, and prints its memory. Where that does not fit, the
 * memory is estimated from smaller batches, and the error says what would help. */
gd_status fit_try(model *m, const dataset *data, const train_options *options);

#endif
