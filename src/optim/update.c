/* update.c - updates that the device decides on (kernels/optim/decide.h), submitted by a host that
 * is several steps ahead, and their reports.
 *
 *     host      submits n (rate -> slot n)  ...  n + 1  ...  n + 2    reads report n, if n is done
 *     device                n - 2  ...  n - 1  ...  n (decides, report -> slot n)
 *
 * A slot is memory that both see. There are GD_UPDATE_SLOTS, used in turn; before the host reuses
 * one it waits until the update in it is done, so that neither overwrites what the other has not
 * read. That is the only place where a training loop waits, and only if it is that far ahead. */
#include "optim/optimizer.h"
#include "optim/graph.h"

#include <math.h>
#include <stddef.h>

bool gd_option_in_range(gd_context *ctx, const char *who, const char *option, double value,
                        double low, double high)
{
    if (value >= low && value < high) return true;
    if (isinf(high)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %g, wanted a finite number of at least %g", who,
                option, value, low);
    } else {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %g, wanted at least %g and less than %g", who,
                option, value, low, high);
    }
    return false;
}

/* ---- The device's part -------------------------------------------------------------------- */

static gd_status write_state(gd_optimizer *optimizer, size_t offset, const void *value, size_t size)
{
    gd_context *ctx = optimizer->ctx;
    return ctx->device->upload(ctx, (char *)optimizer->update + offset, value, size);
}

#define WRITE_STATE(optimizer, field, value) \
    write_state(optimizer, offsetof(gd_update_state, field), value, sizeof *(value))

/* The state after all queued work. */
static gd_update_state read_state(const gd_optimizer *optimizer)
{
    gd_update_state state = {0};
    gd_context *ctx = optimizer->ctx;
    if (!gd_failed(ctx) && gd_outside_graph(ctx, "optimizer"))
        ctx->device->download(ctx, &state, optimizer->update, sizeof state);
    return state;
}

bool gd_update_create(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    const gd_update_state begin = {.scale = {.factor = 1}};
    const size_t slots = GD_UPDATE_SLOTS * sizeof *optimizer->slots;
    void *update = NULL;
    if (gd_pool_allocate(ctx, false, sizeof begin, GD_MEMORY_OTHER, "an optimizer", &update))
        return false;
    optimizer->update = update;
    optimizer->slots = ctx->device->shared_allocate(ctx, slots);
    if (!optimizer->slots)
        gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %zu bytes for updates", slots);
    return !gd_failed(ctx) && !write_state(optimizer, 0, &begin, sizeof begin) &&
           gd_counts_create(optimizer);
}

void gd_update_free(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    gd_graphs_forget(ctx);
    gd_counts_free(optimizer);
    gd_pool_release(ctx, false, optimizer->update, sizeof *optimizer->update, GD_MEMORY_OTHER);
    if (optimizer->slots) {
        const size_t slots = GD_UPDATE_SLOTS * sizeof *optimizer->slots;
        gd_wait_for_device(ctx); /* queued updates write there */
        ctx->device->shared_release(ctx, optimizer->slots, slots);
    }
}

/* ---- Submitting --------------------------------------------------------------------------- */

/* The report in the slot of update `submitted` has not been read. */
static gd_status lose_report(gd_optimizer *optimizer)
{
    const int64_t slot = optimizer->collected++ % GD_UPDATE_SLOTS;
    const gd_update_report *lost = &optimizer->slots[slot].report;
    if (lost->outcome == GD_UPDATE_MADE && optimizer->has_loss[slot] && !isfinite(lost->loss))
        gd_notice(
            optimizer->ctx, GD_NOTICE_NAN,
            "optimizer: update %lld was made by a loss of %g, which nobody read: call "
            "gd_optimizer_update, which makes none by such a loss, or read gd_optimizer_report",
            (long long)lost->number, lost->loss);
    if (lost->outcome != GD_UPDATE_NOT_FINITE) return GD_OK;
    return gd_fail(
        optimizer->ctx, GD_ERROR_STATE,
        "optimizer_update: update %lld was skipped, since the loss is %g and the norm of "
        "the gradient %g, wanted finite numbers; gd_optimizer_report reports it at once",
        (long long)lost->number, lost->loss, lost->norm);
}

/* Two optimizers that take turns with one group. */
static void watch_turns(const gd_optimizer *optimizer)
{
    int64_t *by = optimizer->params->updated_by;
    if (by[1] == optimizer->number) return;
    if (by[0] == optimizer->number)
        gd_notice(optimizer->ctx, GD_NOTICE_TWO_OPTIMIZERS,
                  "optimizer: two optimizers update one group in turn, each with states that know "
                  "nothing of the other's updates: make one, or a group for each");
    by[0] = by[1];
    by[1] = optimizer->number;
}

/* What a correct loop rarely does. */
static void watch(gd_optimizer *optimizer)
{
    enum { MANY_UPDATES = 1000, MANY_RATES = 10 };
    gd_context *ctx = optimizer->ctx;
    watch_turns(optimizer);
    ctx->updates_made++;
    optimizer->rates_of_0 = optimizer->rate == 0 ? optimizer->rates_of_0 + 1 : 0;
    if (optimizer->rates_of_0 == MANY_RATES)
        gd_notice(ctx, GD_NOTICE_RATE,
                  "optimizer: the learning rate of %d updates in a row is 0, which change nothing: "
                  "set the schedule's rate, its steps to those of the run, or its final_rate",
                  MANY_RATES);
    if (++ctx->updates == MANY_UPDATES)
        gd_notice(ctx, GD_NOTICE_UPDATES,
                  "optimizer: %d updates in one step, whose tensors have %zu bytes by now: call "
                  "gd_step_end after each update",
                  MANY_UPDATES, ctx->stats.current_total);
}

/* Finds a slot for the next update, launched directly or in a graph; it is done at the
 * next mark. */
static gd_status submit_update(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    const int64_t slot = optimizer->submitted % GD_UPDATE_SLOTS;
    if (optimizer->submitted >= GD_UPDATE_SLOTS) {
        if (!gd_passed(ctx, optimizer->mark[slot], true)) return ctx->status;
        if (optimizer->collected == optimizer->submitted - GD_UPDATE_SLOTS &&
            lose_report(optimizer))
            return ctx->status;
    }
    optimizer->slots[slot].rate = optimizer->rate;
    /* Backwards that a graph replays are not called. */
    optimizer->has_loss[slot] = optimizer->added_loss || (optimizer->adds_loss && ctx->graphs);
    optimizer->added_loss = false;
    watch(optimizer);
    optimizer->mark[slot] = ctx->marks; /* the next one */
    optimizer->submitted++;
    gd_new_version(ctx,
                   optimizer->params->values->storage); /* some backward may need the old one */
    return GD_OK;
}

/* The sum of squares of all gradients. Where they are shared it is that of the means of all ranks,
 * and the loss becomes the mean of all losses. */
static gd_status measure(gd_optimizer *optimizer)
{
    const gd_params *params = optimizer->params;
    gd_context *ctx = params->ctx;
    gd_update_state *state = optimizer->update;
    if (!params->replica) {
        gd_submit_squares(&state->squares, params->grads);
        return ctx->status;
    }
    _Static_assert(offsetof(gd_update_state, squares) ==
                       offsetof(gd_update_state, loss) + sizeof(double),
                   "both are summed in one go");
    gd_replica *replica = params->replica;
    replica->calls->squares(replica, &state->squares);
    ctx->services->scale(&state->loss, GD_FLOAT64, 1.0 / replica->ranks, 1, NULL, ctx);
    return replica->calls->sum(replica, &state->loss, 2);
}

/* Refuses an update without any gradient, and marks the gradients that it uses. Other ranks may
 * have one. */
static gd_status use_gradients(const gd_params *params)
{
    bool wanted = false, there = false, again = false;
    for (int64_t i = 0; i < params->count; i++) {
        gd_tensor *t = params->list[i].tensor;
        if (!t->requires_grad || t->count == 0) continue;
        wanted = true;
        if (!t->grad_valid) continue;
        there = true;
        again = again || t->spent;
        t->spent = true;
    }
    if (again && params->grads->storage->version != params->spent)
        gd_notice(params->ctx, GD_NOTICE_SPENT,
                  "optimizer: the gradients of this update hold those of an earlier one, too: call "
                  "gd_params_clear_grads after each update");
    if (there || !wanted || params->replica) return GD_OK;
    return gd_fail(
        params->ctx, GD_ERROR_STATE,
        "optimizer_update: no parameter has a gradient, wanted gd_backward of a loss that "
        "depends on one, and gd_params_clear_grads after the update only");
}

/* Launches the kernels of one update. While a graph is captured they are only recorded: each run of
 * the graph submits a new update. */
static gd_status update(gd_optimizer *optimizer, bool measured, double max_norm)
{
    gd_params *params = optimizer->params;
    gd_context *ctx = params->ctx;
    if (optimizer->averaged) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "optimizer_update: the parameters are their average, wanted "
                       "gd_optimizer_swap_average before");
    }
    if (use_gradients(params)) return ctx->status;
    if (ctx->capture ? gd_capture_update(ctx, submit_update, optimizer) : submit_update(optimizer))
        return ctx->status;
    if (gd_params_complete_grads(params)) return ctx->status;
    if (gd_counts_part(optimizer) || (measured && measure(optimizer))) return ctx->status;
    for (int64_t k = 0; k < optimizer->histories; k += GD_UPDATE_COUNTS) {
        const gd_update_rule rule = {.measured = measured,
                                     .max_norm = max_norm,
                                     .beta1 = optimizer->rule.beta1,
                                     .beta2 = optimizer->rule.beta2,
                                     .counts = optimizer->counts + k,
                                     .trained = gd_counts_trained(optimizer, k)};
        ctx->services->update->decide(optimizer->update, k ? NULL : optimizer->slots, &rule, ctx);
    }
    gd_optimizer_apply(optimizer);
    params->spent = params->grads->storage->version;
    if (!ctx->capture) gd_mark(ctx);
    return ctx->status;
}

static bool ready(const gd_optimizer *optimizer)
{
    return optimizer && !gd_failed(optimizer->ctx);
}

static gd_status refused(const gd_optimizer *optimizer)
{
    return optimizer ? optimizer->ctx->status : GD_ERROR_ARGUMENT;
}

static gd_status set_rate(gd_optimizer *optimizer, double lr, const char *who)
{
    if (!ready(optimizer)) return refused(optimizer);
    if (isnan(lr)) {
        return gd_fail(
            optimizer->ctx, GD_ERROR_ARGUMENT,
            "%s: lr is nan, wanted a finite number of at least 0; gd_schedule_rate gives "
            "nan where a number that its kind needs is 0",
            who);
    }
    if (gd_option_in_range(optimizer->ctx, who, "lr", lr, 0, INFINITY)) optimizer->rate = lr;
    return optimizer->ctx->status;
}

gd_status gd_optimizer_set_rate(gd_optimizer *optimizer, double lr)
{
    return set_rate(optimizer, lr, "optimizer_set_rate");
}

gd_status gd_optimizer_step(gd_optimizer *optimizer, double lr)
{
    if (set_rate(optimizer, lr, "optimizer_step")) return refused(optimizer);
    if (!gd_outside_graph(optimizer->ctx, "optimizer_step")) return refused(optimizer);
    return update(optimizer, false, 0);
}

gd_status gd_optimizer_backward(gd_optimizer *optimizer, gd_tensor *loss, double fraction)
{
    const char *who = "optimizer_backward";
    if (!ready(optimizer) || !loss) return refused(optimizer);
    gd_context *ctx = optimizer->ctx;
    if (!gd_tensor_usable(loss, who, "loss")) return ctx->status;
    if (loss->ctx != ctx || loss->count != 1 || !loss->node || !isfinite(fraction)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: loss is %s%s and fraction %g, wanted one element, made by ops from "
                       "tensors that require a gradient, and a finite fraction",
                       who, gd_shape_text(loss).text, loss->ctx != ctx ? " of another context" : "",
                       fraction);
    }
    if (gd_tensor_need_grad(loss)) return ctx->status;
    ctx->services->update->add_loss(optimizer->update, gd_tensor_data(loss->grad),
                                    gd_tensor_data(loss), loss->dtype, fraction, ctx);
    loss->grad_valid = true;
    optimizer->adds_loss = optimizer->added_loss = true;
    return gd_backward_from(&loss, 1, &(gd_backward_options){.cotangents = &loss->grad});
}

gd_status gd_optimizer_update(gd_optimizer *optimizer, double max_norm)
{
    if (!ready(optimizer)) return refused(optimizer);
    if (isnan(max_norm)) {
        return gd_fail(optimizer->ctx, GD_ERROR_ARGUMENT,
                       "optimizer_update: max_norm is nan, wanted a number");
    }
    return update(optimizer, true, max_norm);
}

gd_status gd_optimizer_continue(gd_optimizer *optimizer)
{
    const bool halted = false;
    if (!ready(optimizer)) return refused(optimizer);
    return WRITE_STATE(optimizer, halted, &halted);
}

/* ---- Reading ------------------------------------------------------------------------------ */

bool gd_optimizer_report(gd_optimizer *optimizer, bool wait, gd_update_report *report)
{
    if (!ready(optimizer) || optimizer->collected == optimizer->submitted) return false;
    gd_context *ctx = optimizer->ctx;
    const int64_t slot = optimizer->collected % GD_UPDATE_SLOTS;
    if (!gd_outside_graph(ctx, "optimizer_report")) return false;
    /* A caller that reads after each update gets every report: the next update would reuse this
     * slot. */
    wait = wait || optimizer->submitted - optimizer->collected == GD_UPDATE_SLOTS;
    if (!gd_passed(ctx, optimizer->mark[slot], wait)) return false;
    *report = optimizer->slots[slot].report;
    if (!optimizer->has_loss[slot]) report->loss = NAN;
    optimizer->collected++;
    return true;
}

int64_t gd_optimizer_steps(const gd_optimizer *optimizer)
{
    return optimizer ? read_state(optimizer).made : 0;
}

gd_status gd_update_set_made(gd_optimizer *optimizer, int64_t made)
{
    return WRITE_STATE(optimizer, made, &made);
}

gd_status gd_optimizer_set_steps(gd_optimizer *optimizer, int64_t steps)
{
    if (!ready(optimizer)) return refused(optimizer);
    if (steps < 0 || steps > GD_MAX_UPDATES) {
        return gd_fail(optimizer->ctx, GD_ERROR_ARGUMENT,
                       "optimizer_set_steps: steps is %lld, wanted at least 0 and at most 2^53",
                       (long long)steps);
    }
    if (gd_counts_set_all(optimizer, steps)) return optimizer->ctx->status;
    return gd_update_set_made(optimizer, steps);
}

/* ---- The loss scale ----------------------------------------------------------------------- */

gd_loss_scale gd_loss_scale_begin(gd_dtype dtype)
{
    const bool adapts = dtype == GD_FLOAT16;
    return (gd_loss_scale){.adapts = adapts, .factor = adapts ? 65536 : 1};
}

gd_status gd_optimizer_set_loss_scale(gd_optimizer *optimizer, gd_loss_scale scale)
{
    if (!ready(optimizer)) return refused(optimizer);
    const bool power = scale.factor >= 1 && !(scale.factor & (scale.factor - 1));
    if (!power || scale.good < 0 || scale.good > GD_MAX_UPDATES ||
        (!scale.adapts && scale.factor != 1)) {
        return gd_fail(optimizer->ctx, GD_ERROR_ARGUMENT,
                       "optimizer_set_loss_scale: factor is %lld and good %lld, wanted a power of "
                       "two (1 if it does not adapt) and 0 to 2^53",
                       (long long)scale.factor, (long long)scale.good);
    }
    return WRITE_STATE(optimizer, scale, &scale);
}

gd_loss_scale gd_optimizer_loss_scale(const gd_optimizer *optimizer)
{
    return optimizer ? read_state(optimizer).scale : (gd_loss_scale){0};
}
