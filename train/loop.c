/* loop.c - see loop.h. */
#include "loop.h"
#include "report.h"

#include <math.h>

/* ---- Validation --------------------------------------------------------------------------- */

/* The mean loss of `rows` windows from `first` on. */
static double validate_batch(model *m, const text_data *data, int64_t first, int64_t rows,
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

double loop_validate(model *m, const text_data *data, int64_t batch, int64_t context)
{
    int64_t windows = data_validation_windows(data, context);
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
    const text_data *data;
    const train_options *options;
    gd_optimizer *adamw;
    gd_schedule schedule;
    gd_tensor *tokens, *targets; /* [B, T] */
} training;

/* One step: forward, backward, clip, update. */
static gd_status run_step(training *t, int64_t step, double *loss, double *norm)
{
    gd_context *ctx = t->m->ctx;
    data_draw(t->data, t->tokens, t->targets);
    gd_tensor *mean = gd_cross_entropy(model_logits(t->m, t->tokens), t->targets);
    gd_backward(mean);
    gd_clip_grad_norm(t->m->params, t->options->clip, norm);
    *loss = gd_item(mean); /* the host has waited for the device already, for the norm */
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
    report_clock clock = report_clock_start(o->steps, o->batch * o->context);
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
            report_step(&clock, step + 1, loss, val, norm, gd_schedule_rate(&t->schedule, step));
        }
        if (last) break;
    }
    return gd_error_status(ctx);
}

gd_status loop_train(model *m, const text_data *data, const train_options *o)
{
    const int64_t shape[2] = {o->batch, o->context};
    const gd_adamw_options adamw = {
        .beta1 = 0.9, .beta2 = o->beta2, .weight_decay = o->weight_decay};
    training t = {.m = m, .data = data, .options = o};
    t.schedule = (gd_schedule){.kind = GD_SCHEDULE_COSINE,
                               .rate = o->lr,
                               .final_rate = o->min_lr,
                               .steps = o->steps,
                               .warmup_steps = o->warmup};
    t.adamw = gd_adamw_create(m->params, &adamw);
    t.tokens = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    t.targets = gd_tensor_create(m->ctx, GD_INT32, 2, shape);
    m->training = true;
    if (!gd_error(m->ctx)) run_steps(&t);
    gd_tensor_free(t.tokens);
    gd_tensor_free(t.targets);
    gd_optimizer_free(t.adamw);
    return gd_error_status(m->ctx);
}
