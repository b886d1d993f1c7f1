/* loop.c - see loop.h. */
#include "loop.h"
#include "console.h"
#include "report.h"
#include "sample.h"
#include "stop.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>

/* ---- Training ----------------------------------------------------------------------------- */

typedef struct training {
    model *m;
    const dataset *data;
    const train_options *options;
    run_log *log;
    gd_optimizer *adamw;
    loss_scale scale;
    gd_schedule schedule;
    gd_tensor *tokens, *targets; /* [B, T] */
    int64_t skipped;             /* steps left out */
} training;

/* The mean loss of a batch, on the tape. */
static gd_tensor *batch_loss(training *t, int64_t batch)
{
    const train_options *o = t->options;
    data_draw(t->data, o->overfit_one_batch ? 0 : batch * o->batch, t->tokens, t->targets);
    return model_loss(t->m, t->tokens, t->targets);
}

/* Adds the gradient of one batch's share of the step's loss, which is the mean over its batches,
 * times the loss scale. Returns the loss of the batch. */
static double run_batch(training *t, int64_t batch)
{
    const train_options *o = t->options;
    gd_tensor *mean = batch_loss(t, batch);
    const double factor = (double)t->scale.factor / (double)o->accumulate;
    gd_tensor *share = factor != 1 ? gd_scale(mean, factor) : mean;
    gd_keep(mean);
    gd_backward(share);
    double loss = gd_item(mean);
    gd_step_end(t->m->ctx);
    return loss;
}

/* Does the forward of a step again, with the same random numbers, to see what op began it. */
static void find_nonfinite(training *t, int64_t step, gd_random_state begun, char *text,
                           size_t size)
{
    const int64_t batches = t->options->accumulate;
    gd_context *ctx = t->m->ctx;
    gd_random_state now = gd_random_get(ctx);
    int64_t node = -1;
    snprintf(text, size, "every op of the forward gave finite numbers, so a backward did not");
    gd_random_set(ctx, begun);
    for (int64_t k = 0; k < batches && node < 0 && !gd_error(ctx); k++) {
        char op[128];
        batch_loss(t, step * batches + k);
        node = gd_tape_find_nonfinite(ctx, op, sizeof op);
        if (node >= 0) snprintf(text, size, "the first op whose output is not finite is %s", op);
        gd_step_end(ctx);
    }
    gd_random_set(ctx, now);
}

/* A loss or a gradient that is not finite: no update. */
static gd_status refuse_step(training *t, int64_t step, gd_random_state begun, double loss,
                             double norm)
{
    const double shown[2] = {console_number(loss), console_number(norm)};
    const long long number = step + 1; /* as the lines count them */
    char why[192];
    gd_params_clear_grads(t->m->params);
    gd_step_end(t->m->ctx);
    find_nonfinite(t, step, begun, why, sizeof why);
    if (t->skipped++ < t->options->skip_nonfinite) {
        console_message("step %lld is left out: the loss is %g, the norm %g; %s", number, shown[0],
                        shown[1], why);
        return gd_error_status(t->m->ctx);
    }
    return gd_fail(t->m->ctx, GD_ERROR_STATE,
                   "step %lld: the loss is %g and the norm of the gradient %g, wanted finite "
                   "numbers; a lower --lr may help; %s",
                   number, shown[0], shown[1], why);
}

/* A gradient overflowed float16, which is no fault: no update either, but a smaller scale. */
static gd_status shrink_scale(training *t, int64_t step)
{
    gd_params_clear_grads(t->m->params);
    gd_step_end(t->m->ctx);
    console_message("step %lld is left out: a gradient overflows float16; the loss is multiplied "
                    "by %lld from here on",
                    (long long)step + 1, (long long)t->scale.factor);
    return gd_error_status(t->m->ctx);
}

/* One step: forward and backward of each batch, clip, update. */
static gd_status run_step(training *t, int64_t step, double *loss, double *norm)
{
    const int64_t batches = t->options->accumulate;
    gd_context *ctx = t->m->ctx;
    gd_random_state begun = gd_random_get(ctx);
    *loss = *norm = 0;
    for (int64_t k = 0; k < batches; k++)
        *loss += run_batch(t, step * batches + k) / (double)batches;
    if (t->scale.factor > 1) {
        gd_params_scale_grads(t->m->params, 1 / (double)t->scale.factor);
    }
    gd_clip_grad_norm(t->m->params, t->options->clip, norm);
    if (!gd_error(ctx) && isfinite(*loss) && !isfinite(*norm) && loss_scale_overflowed(&t->scale)) {
        return shrink_scale(t, step);
    }
    if (!gd_error(ctx) && !(isfinite(*loss) && isfinite(*norm))) {
        return refuse_step(t, step, begun, *loss, *norm);
    }
    gd_optimizer_step(t->adamw, gd_schedule_rate(&t->schedule, step));
    loss_scale_succeeded(&t->scale);
    gd_params_clear_grads(t->m->params);
    gd_step_end(ctx);
    return gd_error_status(ctx);
}

/* Training goes on as if there had been no sample. */
static void sample(const training *t)
{
    const train_options *o = t->options;
    gd_random_state before = gd_random_get(t->m->ctx);
    console_erase();
    const sample_options options = {
        .length = o->sample_length, .context = o->context, .temperature = o->temperature};
    gd_status status = sample_text(t->m, &t->data->tokenizer, &options, stdout, NULL);
    printf("\n");
    if (status == GD_ERROR_STATE) {
        console_message("the sample ends here: %s; training goes on", gd_error(t->m->ctx));
        gd_error_clear(t->m->ctx);
    }
    gd_random_set(t->m->ctx, before);
}

/* Saves step `done`. Before the last one a failure is no reason to lose what is in memory, unless
 * one wants it to be. */
static void save(const training *t, int64_t done, bool last)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    const checkpoint_progress progress = {.step = done, .skipped = t->skipped, .scale = t->scale};
    if (!checkpoint_save(t->m, t->data, o, t->adamw, &progress)) {
        console_erase();
        char path[FOLDER_PATH] = "";
        checkpoint_path(path, o->out, done);
        printf("saved %s\n", path);
        fflush(stdout);
    } else if (!last && o->on_save_error == SAVE_ERROR_CONTINUE) {
        console_message("%s; training goes on", gd_error(ctx));
        gd_error_clear(ctx);
    }
}

static bool due(int64_t every, int64_t done)
{
    return every > 0 && done % every == 0;
}

/* What comes after a step. Only Ctrl-C leaves the last one without a validation. */
static void conclude_step(training *t, report_clock *clock, report_values *now, bool last)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    if (last ? !stop_asked() : due(o->eval_every, now->step)) {
        now->val = validate(t->m, t->data, o->batch, o->context, o->eval_batches);
    }
    if (last || !isnan(now->val) || due(o->log_every, now->step)) {
        report_step(clock, t->log, ctx, now);
    }
    if (!last && due(o->sample_every, now->step)) sample(t);
    if (o->out && !gd_error(ctx) && (last || due(o->checkpoint_every, now->step))) {
        save(t, now->step, last);
    }
}

/* All steps from `first` on; the clock stands still while no step is being done. */
static gd_status run_steps(training *t, int64_t first, double *val)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    report_clock clock = report_clock_start(t->m, o, first);
    bool last = false;
    for (int64_t step = first; step < o->steps && !last && !gd_error(ctx); step++) {
        report_values now = {
            .step = step + 1, .val = NAN, .lr = gd_schedule_rate(&t->schedule, step)};
        if (run_step(t, step, &now.loss, &now.norm)) break;
        report_clock_step(&clock);
        report_progress(&clock, ctx, &now);
        last = now.step == o->steps || (o->max_seconds > 0 && clock.seconds >= o->max_seconds) ||
               stop_asked();
        conclude_step(t, &clock, &now, last);
        *val = now.val;
        report_clock_resume(&clock);
    }
    console_erase();
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
    t->scale = loss_scale_begin(o->dtype);
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

gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log,
                     const checkpoint *from, double *val)
{
    training t = {
        .m = m, .data = data, .options = options, .log = log, .skipped = from->progress.skipped};
    *val = NAN;
    begin(&t);
    checkpoint_load_state(from, m, t.adamw);
    if (t.scale.adapts && from->progress.scale.adapts) t.scale = from->progress.scale;
    if (!gd_error(m->ctx)) {
        report_memory_at_rest(m->ctx);
        stop_watch(); /* before, there was nothing to save: a signal just ended the program */
        run_steps(&t, from->progress.step, val);
    }
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
