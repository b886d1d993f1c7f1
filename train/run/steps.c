/* steps.c - see steps.h. */
#include "steps.h"
#include "console.h"
#include "optimizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME = 128 };

/* ---- One step ------------------------------------------------------------------------------- */

/* Where the ids of this rank's k-th batch of a step are. */
static int32_t *ids_of(const run_steps *s, int64_t k)
{
    return s->ids + k * 2 * gd_tensor_count(s->tokens);
}

static gd_status read_batch(run_steps *s, int64_t batch, int32_t *ids)
{
    const train_options *o = s->options;
    const int64_t first = o->overfit_one_batch ? 0 : batch * o->batch;
    return data_read_batch(s->m->ctx, s->data, first, o->batch, ids);
}

/* Reads one batch into the tensors. */
static void take_batch(run_steps *s, int64_t batch)
{
    s->read = -1;
    if (!read_batch(s, batch, s->ids)) data_write_batch(s->ids, s->tokens, s->targets);
}

gd_status steps_read(run_steps *s)
{
    const int64_t batches = s->options->accumulate;
    const int ranks = gd_group_ranks(s->options->group);
    int64_t here = 0;
    for (int64_t k = gd_group_rank(s->options->group); k < batches; k += ranks)
        if (read_batch(s, s->submitted * batches + k, ids_of(s, here++))) break;
    s->read = gd_error(s->m->ctx) ? -1 : s->submitted;
    return gd_error_status(s->m->ctx);
}

/* Adds the gradient of one batch's part of the step's loss, which is the mean over the batches of
 * all ranks. For gd_graph_run. */
static gd_status learn_batch(void *user)
{
    run_steps *s = user;
    const train_options *o = s->options;
    const double fraction = gd_group_ranks(o->group) / (double)o->accumulate;
    return gd_optimizer_backward(s->optimizer, model_loss(s->m, s->tokens, s->targets), fraction);
}

/* The same for the last batch of a step, and the update. */
static gd_status learn_last_batch(void *user)
{
    run_steps *s = user;
    gd_params_last_backward(s->m->params);
    learn_batch(s);
    gd_optimizer_update(s->optimizer, s->options->clip);
    return gd_params_clear_grads(s->m->params);
}

/* The batches of a step are divided among the ranks. A batch draws the same random numbers as it
 * would with one rank, so a step does not depend on the number of ranks. */
static void set_random(const run_steps *s, int64_t step, int64_t batch)
{
    gd_random_state state = s->random_at[step % STEPS_IN_FLIGHT];
    if (!s->options->group) return;
    state.offset += (uint64_t)batch * s->words;
    gd_random_set(s->m->ctx, state);
}

void steps_submit(run_steps *s)
{
    const int64_t step = s->submitted++, batches = s->options->accumulate;
    const int ranks = gd_group_ranks(s->options->group);
    int64_t here = 0;
    s->random_at[step % STEPS_IN_FLIGHT] = gd_random_get(s->m->ctx);
    gd_optimizer_set_rate(s->optimizer, gd_schedule_rate(&s->schedule, step));
    for (int64_t k = gd_group_rank(s->options->group); k < batches; k += ranks) {
        data_write_batch(ids_of(s, here++), s->tokens, s->targets);
        set_random(s, step, k);
        gd_graph_run(s->graph, k + ranks < batches ? learn_batch : learn_last_batch, s);
    }
    set_random(s, step, batches);
}

/* ---- A step that is not finite --------------------------------------------------------------- */

/* Repeats the forward of this rank's batches of a step, with the same random numbers, to find the
 * first op whose output is not finite. False if all are finite. */
static bool find_nonfinite_here(run_steps *s, int64_t step, char op[NAME])
{
    const int64_t batches = s->options->accumulate;
    gd_context *ctx = s->m->ctx;
    int64_t node = -1;
    gd_random_set(ctx, s->random_at[step % STEPS_IN_FLIGHT]);
    gd_repeat_begin(ctx);
    for (int64_t k = gd_group_rank(s->options->group); k < batches && node < 0 && !gd_error(ctx);
         k += gd_group_ranks(s->options->group)) {
        take_batch(s, step * batches + k);
        set_random(s, step, k);
        model_loss(s->m, s->tokens, s->targets);
        node = gd_tape_find_nonfinite(ctx, op, NAME);
        gd_step_end(ctx);
    }
    gd_repeat_end(ctx);
    return node >= 0;
}

/* The same on all ranks; `text` reports the op of the first rank that found one. */
static void find_nonfinite(run_steps *s, int64_t step, char *text, size_t size)
{
    const int ranks = gd_group_ranks(s->options->group);
    char own[NAME] = "", (*all)[NAME] = malloc((size_t)ranks * sizeof *all);
    const char *end = "";
    int first = 0;
    if (!find_nonfinite_here(s, step, own)) own[0] = '\0';
    if (!all || gd_group_all_gather_bytes(s->options->group, own, NAME, all))
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
static gd_status refuse_step(run_steps *s, const gd_update_report *r)
{
    gd_context *ctx = s->m->ctx;
    const int64_t step = s->done - 1;
    const long long number = s->done; /* as printed: from 1 */
    const double shown[2] = {console_number(r->loss), console_number(r->norm)};
    const gd_random_state after =
        s->submitted > s->done ? s->random_at[s->done % STEPS_IN_FLIGHT] : gd_random_get(ctx);
    char why[NAME + 96];
    gd_update_report withheld;
    while (gd_optimizer_report(s->optimizer, true, &withheld)) continue;
    s->submitted = s->done;
    find_nonfinite(s, step, why, sizeof why);
    gd_random_set(ctx, after);
    if (s->skipped++ < s->options->skip_nonfinite) {
        console_notice("step %lld is skipped: the loss is %g, the norm %g; %s", number, shown[0],
                       shown[1], why);
        return gd_optimizer_continue(s->optimizer);
    }
    return gd_fail(ctx, GD_ERROR_STATE,
                   "step %lld: the loss is %g and the norm of the gradient %g, wanted finite "
                   "numbers; a lower --lr may help; %s",
                   number, shown[0], shown[1], why);
}

bool steps_collect(run_steps *s, bool wait, gd_update_report *r)
{
    if (!gd_optimizer_report(s->optimizer, wait, r)) return false;
    s->done++;
    if (r->outcome == GD_UPDATE_OVERFLOWED) {
        console_notice("step %lld is skipped: a gradient overflows float16; the loss is now "
                       "multiplied by %lld",
                       (long long)s->done, (long long)r->loss_scale / 2);
    } else if (r->outcome != GD_UPDATE_MADE) {
        refuse_step(s, r);
    }
    return true;
}

/* ---- Begin and end --------------------------------------------------------------------------- */

/* How many random numbers a batch draws, measured on the first batch. */
static uint64_t count_words(run_steps *s)
{
    gd_context *ctx = s->m->ctx;
    const gd_random_state before = gd_random_get(ctx);
    take_batch(s, 0);
    gd_no_grad_begin(ctx);
    model_loss(s->m, s->tokens, s->targets);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    const uint64_t words = gd_random_get(ctx).offset - before.offset;
    gd_random_set(ctx, before);
    return words;
}

gd_status steps_begin(run_steps *s)
{
    const train_options *o = s->options;
    const int64_t shape[2] = {o->batch, o->context};
    s->submitted = s->done;
    s->schedule = (gd_schedule){.kind = o->schedule,
                                .rate = o->lr,
                                .final_rate = o->min_lr,
                                .steps = o->steps,
                                .warmup_steps = o->warmup,
                                .decay_steps = o->steps / 5};
    if (o->group) gd_params_replicate(s->m->params, o->group, NULL);
    s->optimizer = optimizer_create(s->m->params, o);
    s->graph = gd_graph_create(s->m->ctx, &(gd_graph_options){.off = o->no_graph});
    gd_optimizer_set_loss_scale(s->optimizer, gd_loss_scale_begin(o->dtype));
    s->tokens = gd_tensor_create(s->m->ctx, GD_INT32, 2, shape);
    s->targets = gd_tensor_create(s->m->ctx, GD_INT32, 2, shape);
    const int64_t here = (o->accumulate + gd_group_ranks(o->group) - 1) / gd_group_ranks(o->group);
    s->ids = malloc((size_t)(2 * here * o->batch * o->context) * sizeof *s->ids);
    if (!s->ids) gd_fail(s->m->ctx, GD_ERROR_MEMORY, "out of memory: the batches of a step");
    s->read = -1;
    s->m->training = true;
    if (o->group && o->dropout > 0) s->words = count_words(s);
    return gd_error_status(s->m->ctx);
}

void steps_end(run_steps *s)
{
    free(s->ids);
    gd_tensor_free(s->tokens);
    gd_tensor_free(s->targets);
    gd_graph_free(s->graph);
    gd_optimizer_free(s->optimizer);
}

gd_status steps_try(model *m, const dataset *data, const train_options *options)
{
    run_steps s = {.m = m, .data = data, .options = options};
    if (!steps_begin(&s)) {
        take_batch(&s, 0);
        gd_graph_run(s.graph, learn_batch, &s);
    }
    steps_end(&s);
    return gd_error_status(m->ctx);
}
