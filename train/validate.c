/* validate.c - see validate.h. */
#include "validate.h"
#include "stop.h"

#include <math.h>

/* The mean loss of `rows` windows from `first` on. */
static double validate_batch(model *m, const dataset *data, int64_t first, int64_t rows,
                             int64_t context)
{
    const int64_t shape[2] = {rows, context};
    gd_tensor *tokens = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    gd_tensor *targets = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    double loss = NAN;
    if (tokens && targets && !data_validation(data, first, tokens, targets)) {
        loss = gd_item(gd_cross_entropy(model_logits(m, tokens), targets));
    }
    gd_step_end(m->ctx);
    gd_tensor_free(tokens);
    gd_tensor_free(targets);
    return loss;
}

double validate(model *m, const dataset *data, int64_t batch, int64_t context, int64_t most)
{
    const int64_t windows = data->validation_windows, all = (windows + batch - 1) / batch;
    const int64_t taken = most > 0 && most < all ? most : all;
    double sum = 0;
    int64_t seen = 0;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    for (int64_t k = 0; k < taken && !gd_error(m->ctx) && !stop_asked(); k++) {
        int64_t first = (k * (all / taken) + k * (all % taken) / taken) * batch; /* k all / taken */
        int64_t rows = windows - first < batch ? windows - first : batch;
        sum += (double)rows * validate_batch(m, data, first, rows, context);
        seen += rows;
    }
    gd_no_grad_end(m->ctx);
    m->training = training;
    return gd_error(m->ctx) || stop_asked() ? NAN : sum / (double)seen;
}
