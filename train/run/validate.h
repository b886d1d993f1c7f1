/* validate.h - how well a model predicts a text that it did not learn. */
#ifndef GRADUS_TRAIN_VALIDATE_H
#define GRADUS_TRAIN_VALIDATE_H

#include "data.h"
#include "model.h"

/* The mean loss over the validation part, in windows side by side, `batch` at a time, without
 * dropout: over `most` batches, always the same, from the beginning to the end of it; over all,
 * where `most` is 0 or there are no more. NaN on error, and where a signal breaks it off
 * (stop.h). The ranks of a group, NULL: there is none, share out the batches. */
double validate(model *m, const dataset *data, gd_group *group, int64_t batch, int64_t context,
                int64_t most);

/* Looks at the ids that it will read, since one beyond the vocabulary would end a run at its first
 * validation, when there may be much to lose already. */
gd_status validate_ids(gd_context *ctx, const dataset *data, int64_t batch, int64_t context,
                       int64_t most);

#endif
