/* loop.c - see loop.h. */
#include "loop.h"
#include "report.h"
#include "sample.h"

#include <math.h>

/* ---- Validation --------------------------------------------------------------------------- */

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

double loop_validate(model *m, const dataset *data, int64_t batch, int64_t context)
{
    int64_t windows = data->validation_windows;
    double sum = 0;
    m->training = false;
    gd_no_grad_begin(m->ctx);
    for (int64_t first = 0; first < windows && !gd_error(m->ctx); first += batch) {
        int64_t rows = windows - first < batch ? windows - first : batch;
        sum += (double)rows * validate_batch(m, data, first, rows, context);
    }
    gd_no_grad_end(m->ctx);
    m->training = true;
    return gd_error(m->ctx) ? NAN : sum / (double)windows;
}

/* ---- Training ----------------------------------------------------------------------------- */

typedef struct training {
    model *m;
    const dataset *data;
    const train_options *options;
    run_log *log;
    gd_optimizer *adamw;
    gd_schedule schedule;
    gd_tensor *tokens, *targets; /* [B, T] */
} training;

/* Adds the gradient of one batch's share of the step's loss, which is the mean over its batches.
 * Returns the loss of the batch. */
static double run_batch(training *t, int64_t batch)
{
    const train_options *o = t->options;
    data_draw(t->data, o->overfit_one_batch ? 0 : batch * o->batch, t->tokens, t->targets);
    gd_tensor *mean = gd_cross_entropy(model_logits(t->m, t->tokens), t->targets);
    gd_tensor *share = o->accumulate > 1 ? gd_scale(mean, 1 / (double)o->accumulate) : mean;
    gd_keep(mean);
    gd_backward(share);
    double loss = gd_item(mean);
    gd_step_end(t->m->ctx);
    return loss;
}

/* One step: forward and backward of each batch, clip, update. */
static gd_status run_step(training *t, int64_t step, double *loss, double *norm)
{
    const int64_t batches = t->options->accumulate;
    gd_context *ctx = t->m->ctx;
    *loss = 0;
    for (int64_t k = 0; k < batches; k++)
        *loss += run_batch(t, step * batches + k) / (double)batches;
    gd_clip_grad_norm(t->m->params, t->options->clip, norm);
    if (!gd_error(ctx) && !(isfinite(*loss) && isfinite(*norm))) {
        gd_fail(ctx, GD_ERROR_STATE,
                "train: step %lld: the loss is %g and the norm of the gradient %g, wanted finite "
                "numbers; a lower --lr may help",
                (long long)step, *loss, *norm);
    }
    gd_optimizer_step(t->adamw, gd_schedule_rate(&t->schedule, step));
    gd_params_clear_grads(t->m->params);
    gd_step_end(ctx);
    return gd_error_status(ctx);
}

/* All steps; the clock stands still during validation. */
static gd_status run_steps(training *t)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    report_clock clock = report_clock_start(0, o->steps, o->accumulate * o->batch * o->context);
    for (int64_t step = 0; step < o->steps; step++) {
        double loss, norm, val = NAN;
        if (run_step(t, step, &loss, &norm)) return gd_error_status(ctx);
        report_clock_step(&clock);
        bool last = step + 1 == o->steps || (o->max_seconds > 0 && clock.seconds >= o->max_seconds);
        if (!last && o->eval_every > 0 && (step + 1) % o->eval_every == 0) {
            val = loop_validate(t->m, t->data, o->batch, o->context);
            report_clock_resume(&clock);
        }
        if (last || !isnan(val) || (step + 1) % o->log_every == 0) {
            double lr = gd_schedule_rate(&t->schedule, step);
            report_step(&clock, t->log, ctx, step + 1, loss, val, norm, lr);
        }
        if (!last && o->sample_every > 0 && (step + 1) % o->sample_every == 0) {
            sample_text(t->m, &t->data->tokenizer, o->context, o->sample_length, o->temperature,
                        stdout);
            printf("\n");
            report_clock_resume(&clock);
        }
        if (last) break;
    }
    return gd_error_status(ctx);
}

static gd_status begin(training *t)
{
    const train_options *o = t->options;
    const int64_t shape[2] = {o->batch, o->context};
    const gd_adamw_options adamw = {
        .beta1 = 0.9, .beta2 = o->beta2, .weight_decay = o->weight_decay};
    t->schedule = (gd_schedule){.kind = o->schedule,
                                .rate = o->lr,
                                .final_rate = o->min_lr,
                                .steps = o->steps,
                                .warmup_steps = o->warmup,
                                .decay_steps = o->steps / 5};
    t->adamw = gd_adamw_create(t->m->params, &adamw);
    t->tokens = gd_tensor_create(t->m->ctx, GD_INT32, 2, shape);
    t->targets = gd_tensor_create(t->m->ctx, GD_INT32, 2, shape);
    t->m->training = true;
    return gd_error_status(t->m->ctx);
}

static void end(training *t)
{
    gd_tensor_free(t->tokens);
    gd_tensor_free(t->targets);
    gd_optimizer_free(t->adamw);
}

gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log)
{
    training t = {.m = m, .data = data, .options = options, .log = log};
    if (!begin(&t)) run_steps(&t);
    end(&t);
    return gd_error_status(m->ctx);
}

gd_status loop_try(model *m, const dataset *data, const train_options *options)
{
    training t = {.m = m, .data = data, .options = options};
    if (!begin(&t)) run_batch(&t, 0);
    end(&t);
    return gd_error_status(m->ctx);
}
