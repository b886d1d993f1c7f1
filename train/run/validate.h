/* validate.h - the loss on the validation part. */
#ifndef GRADUS_TRAIN_VALIDATE_H
#define GRADUS_TRAIN_VALIDATE_H

#include "data.h"
#include "model.h"

/* The mean loss over the validation part, in adjacent windows, `batch` at a time, without dropout:
 * over `most` batches, evenly spread and always the same, or over all if `most` is 0 or there are
 * no more. NaN on error, and after a signal (stop.h). The ranks of a group share the batches; NULL:
 * there is one process. */
double validate(model *m, const dataset *data, gd_group *group, int64_t batch, int64_t context,
                int64_t most);

/* Checks the ids that it will read: one beyond the vocabulary would otherwise end a run at its
 * first validation. */
gd_status validate_ids(gd_context *ctx, const dataset *data, int64_t batch, int64_t context,
                       int64_t most);

#endif
