/* validate.c - see validate.h. */
#include "validate.h"
#include "platform/clock.h"
#include "console.h"
#include "stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* What one rank has of a validation. */
typedef struct sums {
    double loss;
    int64_t rows, stopped, unreadable;
} sums;

/* ---- Their loss ---------------------------------------------------------------------------- */

void read_failure_take(read_failure *failure, gd_context *ctx)
{
    failure->any = true;
    failure->status = gd_error_status(ctx);
    snprintf(failure->why, sizeof failure->why, "%s", gd_error(ctx));
    gd_error_clear(ctx);
}

/* Adds the loss of `rows` windows from `first` on. */
static void validate_batch(model *m, const dataset *data, int64_t first, int64_t rows,
                           int64_t context, sums *own)
{
    const int64_t shape[2] = {rows, context};
    gd_tensor *tokens = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    gd_tensor *targets = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    own->unreadable = tokens && targets && data_validation(data, first, tokens, targets) &&
                      gd_error_status(m->ctx) != GD_ERROR_MEMORY;
    if (!gd_error(m->ctx)) own->loss += (double)rows * gd_item(model_loss(m, tokens, targets));
    own->rows += rows;
    gd_step_end(m->ctx);
    gd_tensor_free(tokens);
    gd_tensor_free(targets);
}

/* The mean over all ranks' batches; NaN where one was asked to stop, or could not read. */
static double mean_of_all(const model *m, gd_group *group, sums own, read_failure *failure)
{
    const int ranks = gd_group_ranks(group);
    sums *all = malloc((size_t)ranks * sizeof *all), whole = {0};
    if (!all) gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: a validation");
    const bool there = all && !gd_group_all_gather_bytes(group, &own, sizeof own, all);
    for (int i = 0; there && i < ranks; i++) {
        whole.loss += all[i].loss;
        whole.rows += all[i].rows;
        whole.stopped += all[i].stopped;
        whole.unreadable += all[i].unreadable;
    }
    free(all);
    if (failure && whole.unreadable) failure->any = true;
    return gd_error(m->ctx) || whole.stopped || whole.unreadable ? NAN
                                                                 : whole.loss / (double)whole.rows;
}

/* A validation may take as long as hundreds of steps. */
static void draw_progress(const sums *own, int64_t done, int64_t all, double begun)
{
    if (console_live_columns() == 0) return;
    const double left = (gd_os_now() - begun) * (double)(all - done) / (double)done;
    console_draw(gd_format("validation %lld/%lld | loss %.4f | eta %s", (long long)done,
                           (long long)all, console_number(own->loss / (double)own->rows),
                           console_duration(left).text)
                     .text);
}

double validate(model *m, const dataset *data, gd_group *group, int64_t batch, int64_t context,
                int64_t most, read_failure *failure)
{
    const batches b = choose(data, batch, most);
    const double begun = gd_os_now();
    sums own = {0};
    int64_t rows;
    bool training = m->training;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    for (int64_t k = gd_group_rank(group); k < b.taken && !gd_error(m->ctx) && !stop_asked();
         k += gd_group_ranks(group)) {
        int64_t first = first_window(&b, k, &rows);
        validate_batch(m, data, first, rows, context, &own);
        draw_progress(&own, k + 1, b.taken, begun);
    }
    console_erase();
    own.stopped = stop_asked();
    gd_no_grad_end(m->ctx);
    m->training = training;
    if (own.unreadable && failure) read_failure_take(failure, m->ctx);
    return mean_of_all(m, group, own, failure);
}
