/* validate.h - the loss on the validation part. */
#ifndef GRADUS_TRAIN_VALIDATE_H
#define GRADUS_TRAIN_VALIDATE_H

#include "data.h"
#include "model.h"

/* An error of reading a file, put aside so that the run can save before it ends with it. */
typedef struct read_failure {
    bool any; /* of any rank's */
    gd_status status;
    char why[512]; /* "": of another rank */
} read_failure;

/* Takes the error of the context. */
void read_failure_take(read_failure *failure, gd_context *ctx);

/* The mean loss over the validation part, in adjacent windows, `batch` at a time, without dropout:
 * over `most` batches, evenly spread and always the same, or over all if `most` is 0 or there are
 * no more. NaN on error, and after a signal (stop.h). The ranks of a group share the batches; NULL:
 * there is one process. With `failure` it takes the error where a batch of any rank
 * cannot be read. */
double validate(model *m, const dataset *data, gd_group *group, int64_t batch, int64_t context,
                int64_t most, read_failure *failure);

#endif
