/* validate.c - see validate.h. */
#include "validate.h"
#include "stop.h"

#include <math.h>

/* ---- Which windows ------------------------------------------------------------------------- */

typedef struct batches {
    int64_t windows, batch, all, taken; /* taken <= all */
} batches;

static batches choose(const dataset *data, int64_t batch, int64_t most)
{
    const int64_t windows = data->validation_windows, all = (windows + batch - 1) / batch;
    return (batches){windows, batch, all, most > 0 && most < all ? most : all};
}

/* The first window of the k-th batch to be read, and how many windows it has. */
static int64_t first_window(const batches *b, int64_t k, int64_t *rows)
{
    /* k all / taken, which might overflow */
    const int64_t number = k * (b->all / b->taken) + k * (b->all % b->taken) / b->taken;
    const int64_t first = number * b->batch;
    *rows = b->windows - first < b->batch ? b->windows - first : b->batch;
    return first;
}

/* ---- Their loss ---------------------------------------------------------------------------- */

/* The mean loss of `rows` windows from `first` on. */
static double validate_batch(model *m, const dataset *data, int64_t first, int64_t rows,
                             int64_t context)
{
    const int64_t shape[2] = {rows, context};
    gd_tensor *tokens = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    gd_tensor *targets = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    double loss = NAN;
    if (tokens && targets && !data_validation(data, first, tokens, targets)) {
        loss = gd_item(model_loss(m, tokens, targets));
    }
    gd_step_end(m->ctx);
    gd_tensor_free(tokens);
    gd_tensor_free(targets);
    return loss;
}

double validate(model *m, const dataset *data, int64_t batch, int64_t context, int64_t most)
{
    const batches b = choose(data, batch, most);
    double sum = 0;
    int64_t seen = 0, rows;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    for (int64_t k = 0; k < b.taken && !gd_error(m->ctx) && !stop_asked(); k++) {
        int64_t first = first_window(&b, k, &rows);
        sum += (double)rows * validate_batch(m, data, first, rows, context);
        seen += rows;
    }
    gd_no_grad_end(m->ctx);
    m->training = training;
    return gd_error(m->ctx) || stop_asked() ? NAN : sum / (double)seen;
}

gd_status validate_ids(gd_context *ctx, const dataset *data, int64_t batch, int64_t context,
                       int64_t most)
{
    const batches b = choose(data, batch, most);
    const int64_t shape[2] = {1, context};
    gd_tensor *tokens = gd_tensor_create(ctx, GD_INT32, 2, shape);
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, 2, shape);
    if (data->tokenizer.kind == TOKENIZER_NONE) {
        for (int64_t k = 0, rows = 0; k < b.taken && !gd_error(ctx); k++) {
            int64_t first = first_window(&b, k, &rows);
            for (int64_t i = 0; i < rows && !gd_error(ctx); i++)
                data_validation(data, first + i, tokens, targets);
        }
    }
    gd_tensor_free(tokens);
    gd_tensor_free(targets);
    return gd_error_status(ctx);
}
