/* loop.c - see loop.h. */
#include "loop.h"
#include "console.h"
#include "launch.h"
#include "optimizer.h"
#include "report.h"
#include "sample.h"
#include "stop.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Steps ---------------------------------------------------------------------------------- */

/* The host queues steps ahead of the device and reads their outcomes later (optim.h). So a step is
 * first submitted, then done; as many as the optimizer allows are in flight. */
enum { SUBMITTED_MOST = 16, LAG = 4, NAME = 128 };

typedef struct training {
    model *m;
    const dataset *data;
    const train_options *options;
    run_log *log;
    checkpoint *run;
    gd_optimizer *optimizer;
    gd_graph *graph;
    gd_schedule schedule;
    gd_tensor *tokens, *targets;               /* [B, T] */
    int64_t submitted, done;                   /* steps of the run; reports arrive in this order */
    gd_random_state random_at[SUBMITTED_MOST]; /* where submitted steps start */
    uint64_t words;  /* random numbers per batch; set with several ranks */
    int64_t skipped; /* steps skipped */
    checkpoint_best best;
    checkpoint_losses losses;
    int64_t saved;    /* the step of the newest checkpoint; 0: none */
    bool read_failed; /* a batch could not be read */
    bool stopped;     /* by a signal to any rank */
    /* A signal stopped the run before a due validation; the resumed run makes it. */
    bool unvalidated;
} training;

static void draw_batch(training *t, int64_t batch)
{
    const train_options *o = t->options;
    if (data_draw(t->data, o->overfit_one_batch ? 0 : batch * o->batch, t->tokens, t->targets)) {
        t->read_failed = true;
    }
}

/* The mean loss of the batch, on the tape. */
static gd_tensor *batch_loss(training *t)
{
    return model_loss(t->m, t->tokens, t->targets);
}

/* Adds the gradient of one batch's part of the step's loss, which is the mean over the batches of
 * all ranks. For gd_graph_run. */
static gd_status learn_batch(void *user)
{
    training *t = user;
    const train_options *o = t->options;
    const double fraction = gd_group_ranks(o->group) / (double)o->accumulate;
    return gd_optimizer_backward(t->optimizer, batch_loss(t), fraction);
}

/* The same for the last batch of a step, and the update. */
static gd_status learn_last_batch(void *user)
{
    training *t = user;
    gd_params_last_backward(t->m->params);
    learn_batch(t);
    gd_optimizer_update(t->optimizer, t->options->clip);
    return gd_params_clear_grads(t->m->params);
}

/* The batches of a step are divided among the ranks. A batch draws the same random numbers as it
 * would with one rank, so a step does not depend on the number of ranks. */
static void set_random(const training *t, int64_t step, int64_t batch)
{
    gd_random_state state = t->random_at[step % SUBMITTED_MOST];
    if (!t->options->group) return;
    state.offset += (uint64_t)batch * t->words;
    gd_random_set(t->m->ctx, state);
}

/* Submits the next step: forward and backward of each batch, clip, update. */
static void submit_step(training *t)
{
    const int64_t step = t->submitted++, batches = t->options->accumulate;
    const int ranks = gd_group_ranks(t->options->group);
    t->random_at[step % SUBMITTED_MOST] = gd_random_get(t->m->ctx);
    gd_optimizer_set_rate(t->optimizer, gd_schedule_rate(&t->schedule, step));
    for (int64_t k = gd_group_rank(t->options->group); k < batches; k += ranks) {
        draw_batch(t, step * batches + k);
        set_random(t, step, k);
        if (t->read_failed) {
            t->submitted--;
            return;
        }
        gd_graph_run(t->graph, k + ranks < batches ? learn_batch : learn_last_batch, t);
    }
    set_random(t, step, batches);
}

/* Repeats the forward of this rank's batches of a step, with the same random numbers, to find the
 * first op whose output is not finite. False if all are finite. */
static bool find_nonfinite_here(training *t, int64_t step, char op[NAME])
{
    const int64_t batches = t->options->accumulate;
    gd_context *ctx = t->m->ctx;
    int64_t node = -1;
    gd_random_set(ctx, t->random_at[step % SUBMITTED_MOST]);
    gd_repeat_begin(ctx);
    for (int64_t k = gd_group_rank(t->options->group); k < batches && node < 0 && !gd_error(ctx);
         k += gd_group_ranks(t->options->group)) {
        draw_batch(t, step * batches + k);
        set_random(t, step, k);
        batch_loss(t);
        node = gd_tape_find_nonfinite(ctx, op, NAME);
        gd_step_end(ctx);
    }
    gd_repeat_end(ctx);
    return node >= 0;
}

/* The same on all ranks; `text` reports the op of the first rank that found one. */
static void find_nonfinite(training *t, int64_t step, char *text, size_t size)
{
    const int ranks = gd_group_ranks(t->options->group);
    char own[NAME] = "", (*all)[NAME] = malloc((size_t)ranks * sizeof *all);
    const char *end = "";
    int first = 0;
    if (!find_nonfinite_here(t, step, own)) own[0] = '\0';
    if (!all || gd_group_all_gather_bytes(t->options->group, own, NAME, all))
        end = "; not every rank has answered";
    for (int i = 0; !*end && i < ranks; i++) all[i][NAME - 1] = '\0'; /* by another process */
    while (!*end && first < ranks && !all[first][0]) first++;
    if (*end || first == ranks)
        snprintf(text, size, "every output of the forward is finite, so it came from a backward%s",
                 end);
    else if (ranks == 1)
        snprintf(text, size, "the first op whose output is not finite is %s", own);
    else
        snprintf(text, size, "the first op whose output is not finite is %s, on rank %d",
                 all[first], first);
    free(all);
}

/* The loss or the gradient is not finite. Neither this step nor those submitted since have
 * updated the weights. The later steps must be submitted again. */
static gd_status refuse_step(training *t, const gd_update_report *r)
{
    gd_context *ctx = t->m->ctx;
    const int64_t step = t->done - 1;
    const long long number = t->done; /* as printed: from 1 */
    const double shown[2] = {console_number(r->loss), console_number(r->norm)};
    const gd_random_state after =
        t->submitted > t->done ? t->random_at[t->done % SUBMITTED_MOST] : gd_random_get(ctx);
    char why[NAME + 96];
    gd_update_report withheld;
    while (gd_optimizer_report(t->optimizer, true, &withheld)) continue;
    t->submitted = t->done;
    find_nonfinite(t, step, why, sizeof why);
    gd_random_set(ctx, after);
    if (t->skipped++ < t->options->skip_nonfinite) {
        console_notice("step %lld is skipped: the loss is %g, the norm %g; %s", number, shown[0],
                       shown[1], why);
        return gd_optimizer_continue(t->optimizer);
    }
    return gd_fail(ctx, GD_ERROR_STATE,
                   "step %lld: the loss is %g and the norm of the gradient %g, wanted finite "
                   "numbers; a lower --lr may help; %s",
                   number, shown[0], shown[1], why);
}

/* Takes the next finished step; false if none is finished yet or, with `wait`, if none is in
 * flight. */
static bool collect_step(training *t, report_clock *clock, bool wait, report_values *now)
{
    gd_update_report r;
    if (!gd_optimizer_report(t->optimizer, wait, &r)) return false;
    t->done++;
    report_clock_step(clock, r.time);
    if (isfinite(r.loss)) {
        t->losses.sum += r.loss;
        t->losses.steps++;
    }
    *now = (report_values){.step = t->done,
                           .loss = r.loss,
                           .mean_loss = t->losses.sum / (double)t->losses.steps,
                           .val = NAN,
                           .norm = r.norm,
                           .lr = r.rate};
    if (r.outcome == GD_UPDATE_OVERFLOWED) {
        console_notice("step %lld is skipped: a gradient overflows float16; the loss is now "
                       "multiplied by %lld",
                       (long long)t->done, (long long)r.loss_scale / 2);
    } else if (r.outcome != GD_UPDATE_MADE) {
        refuse_step(t, &r);
    }
    return !gd_error(t->m->ctx);
}

/* Prints a sample. The random state is restored, so training is not affected. */
static void sample(const training *t)
{
    const train_options *o = t->options;
    gd_random_state before = gd_random_get(t->m->ctx);
    if (gd_group_rank(o->group) > 0) return;
    const sample_options options = {
        .length = o->sample_length, .context = o->context, .draw = {.temperature = o->temperature}};
    console_line("---- sample after step %lld, temperature %g", (long long)t->done, o->temperature);
    gd_status status = sample_text(t->m, &t->data->tokenizer, &options, stdout, NULL);
    printf("\n----\n");
    if (status == GD_ERROR_STATE) {
        console_message("the sample ends here: %s; training continues", gd_error(t->m->ctx));
        gd_error_clear(t->m->ctx);
    }
    gd_random_set(t->m->ctx, before);
}

/* What a signal is answered with. Each rank gets one; rank 0 answers. */
static void prepare_answers(const training *t)
{
    char second[CONSOLE_SIGNAL] = "stopped at once; nothing was saved";
    if (gd_group_rank(t->options->group) > 0) return;
    if (t->saved > 0)
        snprintf(second, sizeof second,
                 "stopped at once; the newest checkpoint is that of step %lld",
                 (long long)t->saved);
    stop_answer(t->options->out ? "stopping after this step; again to stop now"
                                : "stopping after this step, without saving: there is no --out; "
                                  "again to stop now",
                second);
}

/* Saves step `done`. A failure ends the run only at the last step or with --on-save-error stop. */
static void save(training *t, int64_t done, bool last)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    const checkpoint_progress progress = {.step = done,
                                          .skipped = t->skipped,
                                          .scale = gd_optimizer_loss_scale(t->optimizer),
                                          .best = t->best,
                                          .losses = t->losses,
                                          .unvalidated = t->unvalidated};
    if (!checkpoint_save(t->run, t->m, t->data, o, t->optimizer, &progress)) {
        char path[FOLDER_PATH] = "";
        folder_join(path, o->out, checkpoint_name_of(done).text);
        console_line("saved %s", path);
        t->saved = done;
        prepare_answers(t);
        if (!last && gd_group_rank(o->group) == 0) checkpoint_check_name(t->run, ctx, o);
    } else if (!last && o->on_save_error == SAVE_ERROR_CONTINUE &&
               gd_error_status(ctx) != GD_ERROR_DEVICE) {
        console_notice("%s; training continues", gd_error(ctx));
        gd_error_clear(ctx);
    }
}

static bool due(int64_t every, int64_t done)
{
    return every > 0 && done % every == 0;
}

/* Whether this validation loss, of step `done`, is the best so far. */
static bool is_best(training *t, double val)
{
    const bool best = val < t->best.loss || (t->best.step == 0 && !isnan(val));
    if (best) t->best = (checkpoint_best){t->done, val};
    return best;
}

/* NaN after a signal, which then leaves it to the resumed run. */
static double validate_step(training *t)
{
    const train_options *o = t->options;
    double val = NAN;
    if (!t->stopped) val = validate(t->m, t->data, o->group, o->batch, o->context, o->eval_batches);
    if (isnan(val) && !gd_error(t->m->ctx) && launch_vote(o, false, stop_asked()) & VOTE_SIGNAL)
        t->stopped = t->unvalidated = true;
    return val;
}

/* The validation that a signal left out before the run was resumed. */
static void validate_late(training *t, double *val)
{
    const train_options *o = t->options;
    t->unvalidated = false;
    *val = validate_step(t);
    if (t->stopped || gd_error(t->m->ctx)) return;
    report_validation(t->log, t->done, o->steps, *val);
    is_best(t, *val);
    if (o->out) save(t, t->done, t->done == o->steps);
}

/* Whether a step has a line, wherever the run ends. */
static bool has_line(const train_options *o, int64_t step)
{
    return step == 1 || due(o->log_every, step) || due(o->eval_every, step);
}

/* Prints and logs a step. Only a line that every run has begins a new mean of losses: so runs that
 * were stopped and resumed have the same means. */
static void print_line(training *t, report_clock *clock, const report_values *now)
{
    report_step(clock, t->log, t->m->ctx, now);
    if (has_line(t->options, now->step)) t->losses = (checkpoint_losses){0};
}

/* Whether the host must wait for a step, because a validation, a sample or a save follows it, or
 * because the clock asks for it: before the first one it knows nothing of the device's clock. */
static bool is_stop(const train_options *o, const report_clock *clock, int64_t step)
{
    return step == o->steps || step == clock->first + 1 || due(o->eval_every, step) ||
           due(o->sample_every, step) || (o->out && due(o->checkpoint_every, step));
}

/* The work after such a step; returns whether it is the last. The last one is always validated,
 * unless a signal ended the run between validations. */
static bool conclude_step(training *t, report_clock *clock, report_values *now, bool last)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    if ((last && !t->stopped) || now->step == o->steps || due(o->eval_every, now->step)) {
        now->val = validate_step(t);
        last = last || t->stopped;
    }
    const bool best = is_best(t, now->val) && o->keep_best;
    if (last || !isnan(now->val) || has_line(o, now->step)) print_line(t, clock, now);
    if (!last && due(o->sample_every, now->step)) sample(t);
    if (o->out && !gd_error(ctx) && (last || best || due(o->checkpoint_every, now->step))) {
        save(t, now->step, last);
    }
    return last;
}

/* Reads the outcomes of finished steps; with `wait`, up to `stop`. *now gets the last one. All
 * ranks must read the same outcomes at the same step, so with several ranks each waits for the step
 * LAG before the last instead of testing which steps are finished. */
static void collect_steps(training *t, report_clock *clock, bool wait, int64_t stop,
                          report_values *now)
{
    gd_context *ctx = t->m->ctx;
    const bool lags = t->options->group && !wait;
    while ((!lags || t->done < t->submitted - LAG) && collect_step(t, clock, wait || lags, now)) {
        report_progress(clock, ctx, now);
        if (wait && t->done == stop) break; /* conclude_step prints its line */
        if (has_line(t->options, now->step)) print_line(t, clock, now);
    }
}

/* A batch that cannot be read ends the run, after the steps before it have finished and are saved.
 * If one of them is skipped, the steps after it are submitted again, and so is this one. */
static void end_unreadable(training *t, report_clock *clock, report_values *now, int64_t first)
{
    gd_context *ctx = t->m->ctx;
    const gd_status status = gd_error_status(ctx);
    const int64_t stop = t->submitted;
    char why[512];
    snprintf(why, sizeof why, "%s", gd_error(ctx));
    t->read_failed = false;
    gd_error_clear(ctx);
    gd_params_clear_grads(t->m->params);
    gd_step_end(ctx);
    if (t->done < stop) collect_steps(t, clock, true, stop, now);
    if (t->done != stop || gd_error(ctx)) return;
    gd_random_set(ctx, t->random_at[stop % SUBMITTED_MOST]);
    if (t->options->out && stop > first) save(t, stop, true);
    gd_fail(ctx, status, "%s", why);
}

/* All remaining steps; the clock is stopped between them. */
static gd_status run_steps(training *t, double *val)
{
    const train_options *o = t->options;
    gd_context *ctx = t->m->ctx;
    report_clock clock = report_clock_start(t->m, o, t->done);
    report_values now = {.val = NAN};
    const int64_t first = t->done;
    if (t->unvalidated) validate_late(t, val);
    report_clock_resume(&clock);
    for (bool last = t->stopped; t->done < o->steps && !last && !gd_error(ctx);) {
        submit_step(t);
        if (t->read_failed && o->group) break; /* the other ranks get the error */
        if (t->read_failed) {
            end_unreadable(t, &clock, &now, first);
            continue;
        }
        const double seconds = report_clock_seconds(&clock);
        const bool over = o->max_seconds > 0 && seconds >= o->max_seconds;
        const int votes = launch_vote(o, over, stop_asked());
        const bool ends = votes != 0;
        t->stopped = votes & VOTE_SIGNAL;
        const int64_t stop = t->submitted;
        const bool wait = ends || is_stop(o, &clock, stop);
        collect_steps(t, &clock, wait, stop, &now);
        if (!wait || t->done != stop || gd_error(ctx))
            continue; /* some steps may have to be asked for again */
        last = ends || stop == o->steps;
        last = conclude_step(t, &clock, &now, last);
        *val = now.val;
        report_clock_resume(&clock);
    }
    console_erase();
    return gd_error_status(ctx);
}

/* How many random numbers a batch draws, measured on the first batch. */
static uint64_t count_words(training *t)
{
    gd_context *ctx = t->m->ctx;
    const gd_random_state before = gd_random_get(ctx);
    draw_batch(t, 0);
    gd_no_grad_begin(ctx);
    batch_loss(t);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    const uint64_t words = gd_random_get(ctx).offset - before.offset;
    gd_random_set(ctx, before);
    return words;
}

static gd_status begin(training *t)
{
    const train_options *o = t->options;
    const int64_t shape[2] = {o->batch, o->context};
    t->schedule = (gd_schedule){.kind = o->schedule,
                                .rate = o->lr,
                                .final_rate = o->min_lr,
                                .steps = o->steps,
                                .warmup_steps = o->warmup,
                                .decay_steps = o->steps / 5};
    if (o->group) gd_params_replicate(t->m->params, o->group, NULL);
    t->optimizer = optimizer_create(t->m->params, o);
    t->graph = gd_graph_create(t->m->ctx, &(gd_graph_options){.off = o->no_graph});
    gd_optimizer_set_loss_scale(t->optimizer, gd_loss_scale_begin(o->dtype));
    t->tokens = gd_tensor_create(t->m->ctx, GD_INT32, 2, shape);
    t->targets = gd_tensor_create(t->m->ctx, GD_INT32, 2, shape);
    t->m->training = true;
    if (o->group && o->dropout > 0) t->words = count_words(t);
    return gd_error_status(t->m->ctx);
}

static void end(training *t)
{
    gd_tensor_free(t->tokens);
    gd_tensor_free(t->targets);
    gd_graph_free(t->graph);
    gd_optimizer_free(t->optimizer);
}

gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log,
                     checkpoint *from, double *val)
{
    const checkpoint_progress *before = &from->progress;
    training t = {.m = m,
                  .data = data,
                  .options = options,
                  .log = log,
                  .run = from,
                  .submitted = before->step,
                  .done = before->step,
                  .skipped = before->skipped,
                  .best = before->best,
                  .losses = before->losses,
                  .saved = before->step,
                  .unvalidated = before->unvalidated};
    *val = NAN;
    begin(&t);
    checkpoint_load_state(from, m, t.optimizer);
    if (options->dtype == GD_FLOAT16 && before->scale.adapts)
        gd_optimizer_set_loss_scale(t.optimizer, before->scale);
    checkpoint_close_files(from);
    if (!checkpoint_open_out(from, m->ctx, options)) {
        checkpoint_tidy(from, options, before);
        report_memory_at_rest(m->ctx);
        prepare_answers(&t);
        stop_watch(); /* until here a signal just ended the program: there was nothing to save */
        run_steps(&t, val);
    }
    end(&t);
    return gd_error_status(m->ctx);
}

gd_status loop_try(model *m, const dataset *data, const train_options *options)
{
    training t = {.m = m, .data = data, .options = options};
    if (!begin(&t)) {
        draw_batch(&t, 0);
        gd_graph_run(t.graph, learn_batch, &t);
    }
    end(&t);
    return gd_error_status(m->ctx);
}
