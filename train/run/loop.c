/* loop.c - see loop.h. */
#include "loop.h"
#include "console.h"
#include "launch.h"
#include "report.h"
#include "steps.h"
#include "stop.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>

typedef struct training {
    run_steps steps;
    const train_options *options;
    gd_context *ctx;
    run_log *log;
    checkpoint *run;
    report_clock clock;
    log_line now;  /* of the last step that was collected */
    int64_t first; /* step of this run */
    checkpoint_best best;
    checkpoint_losses losses;
    int64_t saved; /* the step of the newest checkpoint; 0: none */
    bool stopped;  /* by a signal to any rank */
    /* A signal, or a file that cannot be read, ended the run before a due validation; the resumed
     * run makes it. */
    bool unvalidated;
    read_failure failure; /* of the next step's batches, or of a validation: it ends the run */
} training;

/* ---- What comes between steps ---------------------------------------------------------------- */

/* Prints a sample. The random state is restored, so training is not affected. */
static void sample(const training *t)
{
    const train_options *o = t->options;
    gd_random_state before = gd_random_get(t->ctx);
    if (gd_group_rank(o->group) > 0) return;
    const gd_text after = gd_format(" after step %lld", (long long)t->now.step);
    if (report_sample(t->steps.m, t->steps.data, o, after.text) == GD_ERROR_STATE) {
        console_message("the sample ends here: %s; training continues", gd_error(t->ctx));
        gd_error_clear(t->ctx);
    }
    gd_random_set(t->ctx, before);
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
    gd_optimizer *optimizer = t->steps.optimizer;
    const checkpoint_progress progress = {.step = done,
                                          .skipped = t->steps.skipped,
                                          .best = t->best,
                                          .losses = t->losses,
                                          .unvalidated = t->unvalidated};
    if (!checkpoint_save(t->run, t->steps.m, t->steps.data, o, optimizer, &progress)) {
        char path[FOLDER_PATH] = "";
        folder_join(path, o->out, checkpoint_name_of(done).text);
        console_line("saved %s", path);
        t->saved = done;
        prepare_answers(t);
        if (!last && gd_group_rank(o->group) == 0) checkpoint_check_name(t->run, t->ctx, o);
    } else if (!last && o->on_save_error == SAVE_ERROR_CONTINUE &&
               gd_error_status(t->ctx) != GD_ERROR_DEVICE) {
        console_notice("%s; training continues", gd_error(t->ctx));
        gd_error_clear(t->ctx);
    }
}

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Whether this validation loss, of step `done`, is the best so far. */
static bool is_best(training *t, double val)
{
    const bool best = val < t->best.loss || (t->best.step == 0 && !isnan(val));
    if (best) t->best = (checkpoint_best){t->steps.done, val};
    return best;
}

/* Whether --patience has ended: from the best validation to this one there are as many, in this run
 * and in those that it resumed. */
static bool out_of_patience(const training *t)
{
    const train_options *o = t->options;
    if (o->patience == 0 || isnan(t->now.val) || !due(o->eval_every, t->now.step)) return false;
    const int64_t worse = t->now.step / o->eval_every - t->best.step / o->eval_every;
    return worse >= o->patience;
}

/* NaN after a signal, or if a file cannot be read: both leave it to the resumed run. */
static double validate_step(training *t)
{
    const train_options *o = t->options;
    double val = NAN;
    if (!t->stopped)
        val = validate(t->steps.m, t->steps.data, o->group, o->batch, o->context, o->eval_batches,
                       &t->failure);
    if (!isnan(val) || gd_error(t->ctx)) return val;
    if (launch_vote(o, stop_asked() ? VOTE_SIGNAL : 0) & VOTE_SIGNAL) t->stopped = true;
    t->unvalidated = t->stopped || t->failure.any;
    return val;
}

/* The validation that a signal left out before the run was resumed. */
static void validate_late(training *t)
{
    const train_options *o = t->options;
    const int64_t done = t->steps.done;
    t->unvalidated = false;
    t->now.val = validate_step(t);
    if (t->unvalidated || gd_error(t->ctx)) return;
    report_validation(t->log, done, o->steps, t->now.val);
    is_best(t, t->now.val);
    if (o->out) save(t, done, done == o->steps);
}

/* Whether a step has a line, wherever the run ends. */
static bool has_line(const train_options *o, int64_t step)
{
    return step == 1 || due(o->log_every, step) || due(o->eval_every, step);
}

/* Prints and logs a step. Only a line that every run has begins a new mean of losses: so runs that
 * were stopped and resumed have the same means. */
static void print_line(training *t)
{
    report_step(&t->clock, t->log, t->ctx, &t->now);
    if (has_line(t->options, t->now.step)) t->losses = (checkpoint_losses){0};
}

/* Whether the host must wait for a step, because a validation, a sample or a save follows it, or
 * because the clock asks for it: before the first one it knows nothing of the device's clock. */
static bool is_stop(const training *t, int64_t step)
{
    const train_options *o = t->options;
    return step == o->steps || step == t->first + 1 || due(o->eval_every, step) ||
           due(o->sample_every, step) || (o->out && due(o->checkpoint_every, step));
}

/* The work after such a step; returns whether it is the last. The last one is always validated,
 * unless a signal ended the run between validations. */
static bool conclude_step(training *t, bool last)
{
    const train_options *o = t->options;
    const int64_t step = t->now.step;
    if ((last && !t->stopped) || step == o->steps || due(o->eval_every, step)) {
        t->now.val = validate_step(t);
        last = last || t->unvalidated;
    }
    const bool best = is_best(t, t->now.val) && o->keep_best;
    const bool impatient = out_of_patience(t);
    last = last || impatient;
    if (last || !isnan(t->now.val) || has_line(o, step)) print_line(t);
    if (impatient)
        console_line("--patience %lld ends the run: the best validation was %.4f, at step %lld",
                     (long long)o->patience, t->best.loss, (long long)t->best.step);
    if (!last && due(o->sample_every, step)) sample(t);
    if (o->out && !gd_error(t->ctx) && (last || best || due(o->checkpoint_every, step)))
        save(t, step, last);
    return last;
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Notes the outcome of a step. */
static void note_step(training *t, const gd_update_report *r)
{
    report_clock_step(&t->clock, r->time);
    if (isfinite(r->loss)) {
        t->losses.sum += r->loss;
        t->losses.steps++;
    }
    t->now = (log_line){.step = t->steps.done,
                        .loss = r->loss,
                        .mean_loss = t->losses.sum / (double)t->losses.steps,
                        .val = NAN,
                        .norm = r->norm,
                        .lr = r->rate};
}

/* Reads the outcomes of finished steps; with `wait`, up to `stop`. All ranks must read the same
 * outcomes at the same step, so with several ranks each waits for the step LAG before the last
 * instead of testing which steps are finished. */
static void collect_steps(training *t, bool wait, int64_t stop)
{
    enum { LAG = 4 };
    run_steps *s = &t->steps;
    gd_update_report r;
    const bool lags = t->options->group && !wait;
    while ((!lags || s->done < s->submitted - LAG) && steps_collect(s, wait || lags, &r)) {
        note_step(t, &r);
        if (gd_error(t->ctx)) return;
        report_progress(&t->clock, t->ctx, &t->now);
        if (wait && s->done == stop) break; /* conclude_step prints its line */
        if (has_line(t->options, t->now.step)) print_line(t);
    }
}

/* Reads the batches of the next step, while the device works on those before it. */
static int read_ahead(training *t)
{
    t->failure = (read_failure){0};
    if (!steps_read(&t->steps)) return 0;
    read_failure_take(&t->failure, t->ctx);
    return VOTE_UNREADABLE;
}

/* Ends a run that has saved what it learned. The ranks that could read everything get the error of
 * the one that could not. */
static void end_unreadable(training *t)
{
    if (t->failure.why[0])
        gd_fail(t->ctx, t->failure.status, "%s", t->failure.why);
    else
        launch_vote(t->options, 0);
}

/* All remaining steps; the clock is stopped between them. */
static void run_steps_left(training *t, double *val)
{
    const train_options *o = t->options;
    run_steps *s = &t->steps;
    if (t->unvalidated) validate_late(t);
    *val = t->now.val;
    report_clock_resume(&t->clock);
    for (bool last = t->unvalidated; s->done < o->steps && !last && !gd_error(t->ctx);) {
        /* Before the first step, and where steps are submitted again: none is in flight. */
        if (s->read != s->submitted && launch_vote(o, read_ahead(t)) & VOTE_UNREADABLE) {
            t->failure.any = true;
            if (o->out && s->done > t->first) save(t, s->done, true);
            break;
        }
        steps_submit(s);
        const double seconds = report_clock_seconds(&t->clock);
        const bool over = o->max_seconds > 0 && seconds >= o->max_seconds;
        const int64_t stop = s->submitted;
        const int own = (over ? VOTE_TIME : 0) | (stop_asked() ? VOTE_SIGNAL : 0) |
                        (stop < o->steps && !gd_error(t->ctx) ? read_ahead(t) : 0);
        const int votes = launch_vote(o, own);
        const bool wait = votes || is_stop(t, stop);
        t->stopped = votes & VOTE_SIGNAL;
        collect_steps(t, wait, stop);
        /* Some steps may have to be submitted again. */
        if (!wait || s->done != stop || gd_error(t->ctx)) continue;
        if (votes & VOTE_UNREADABLE) t->failure.any = true;
        last = conclude_step(t, votes || stop == o->steps);
        *val = t->now.val;
        report_clock_resume(&t->clock);
    }
    if (t->failure.any && !gd_error(t->ctx)) end_unreadable(t);
    console_erase();
}

gd_status loop_train(model *m, const dataset *data, const train_options *options, run_log *log,
                     checkpoint *from, double *val)
{
    const checkpoint_progress *before = &from->progress;
    training t = {.steps = {.m = m,
                            .data = data,
                            .options = options,
                            .done = before->step,
                            .skipped = before->skipped},
                  .options = options,
                  .ctx = m->ctx,
                  .log = log,
                  .run = from,
                  .now = {.val = NAN},
                  .first = before->step,
                  .best = before->best,
                  .losses = before->losses,
                  .saved = before->step,
                  .unvalidated = before->unvalidated};
    *val = NAN;
    steps_begin(&t.steps);
    checkpoint_load_state(from, m, t.steps.optimizer);
    checkpoint_close_files(from);
    if (!gd_error(m->ctx)) {
        checkpoint_tidy(from, options, before);
        report_memory_at_rest(m->ctx);
        prepare_answers(&t);
        stop_watch(); /* until here a signal just ended the program: there was nothing to save */
        t.clock = report_clock_start(m, options, t.first);
        run_steps_left(&t, val);
    }
    steps_end(&t.steps);
    return gd_error_status(m->ctx);
}
