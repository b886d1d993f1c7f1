/* gradus_train.c - gradus-train: trains a transformer on a text. */
#include <math.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "platform/clock.h"
#include "console.h"
#include "data.h"
#include "fit.h"
#include "launch.h"
#include "loop.h"
#include "model.h"
#include "program.h"
#include "report.h"
#include "stop.h"
#include "train_options.h"
#include "validate.h"

/* Declares the model, with the shape of the checkpoint if there is one. */
static gd_status declare_model(model *m, gd_context *ctx, const dataset *data,
                               const train_options *o, const checkpoint *from)
{
    model_config config = {.vocab = data->tokenizer.vocab,
                           .layers = o->layers,
                           .dim = o->dim,
                           .heads = o->heads,
                           .kv_heads = o->kv_heads,
                           .ffn = o->ffn,
                           .tied = o->tied};
    if (from->folder[0]) config = from->config;
    if (config.positions < o->context) config.positions = o->context;
    config.dropout = o->dropout;
    config.recompute = o->recompute;
    return model_declare(m, ctx, o->dtype, &config);
}

/* What the run is, before it takes memory. */
static void report_run(const model *m, const dataset *data, const train_options *o,
                       const checkpoint *from)
{
    report_configuration(m, data, o);
    if (from->folder[0]) console_line("from   %s", from->folder);
    if (from->state && from->progress.step >= o->steps) {
        console_line("       which has done %lld of %lld step%s; a larger --steps N continues it",
                     (long long)from->progress.step, (long long)o->steps, console_s(o->steps));
    }
}

/* Makes the values, those of the checkpoint if there is one. */
static gd_status fill_model(model *m, const dataset *data, checkpoint *from)
{
    if (model_fill(m) || !from->folder[0]) return gd_error_status(m->ctx);
    return checkpoint_load_model(from, m, data);
}

/* Prints the validation loss, the peak memory, a fingerprint of the weights, and a sample. */
static void conclude(model *m, const dataset *data, const train_options *o, double loss,
                     double begun)
{
    if (isnan(loss))
        loss = validate(m, data, o->group, o->batch, o->context, o->eval_batches,
                        NULL); /* no step was made */
    if (!gd_error(m->ctx)) {
        console_line("validation loss %.4f after %.1f s", loss, gd_os_now() - begun);
        report_memory(m->ctx);
        report_weights(m);
    }
    if (!gd_error(m->ctx) && o->sample_length > 0 && gd_group_rank(o->group) == 0) {
        report_sample(m, data, o, "");
    }
}

/* Only rank 0 writes a log. */
static gd_status open_log(run_log *log, const train_options *o, const dataset *data, const model *m,
                          const checkpoint *from)
{
    if (gd_group_rank(o->group) > 0) return GD_OK;
    return log_open(log, o, data, m, from->progress.step);
}

/* Configuration, training, validation, a sample. */
static void train(gd_context *ctx, const dataset *data, const train_options *o, checkpoint *from)
{
    model m;
    run_log log = {0};
    double begun = gd_os_now(), val;
    bool stopped = false;
    if (!declare_model(&m, ctx, data, o, from)) {
        report_run(&m, data, o, from);
        if (fit_check(&m, o) || fill_model(&m, data, from)) {
            /* the context has the reason */
        } else if (o->dry_run) {
            fit_try(&m, data, o);
        } else if (!data_check_ids(ctx, data) && !open_log(&log, o, data, &m, from) &&
                   !loop_train(&m, data, o, &log, from, &val)) {
            stopped = launch_vote(o, stop_asked() ? VOTE_SIGNAL : 0) & VOTE_SIGNAL;
            if (!stopped) conclude(&m, data, o, val, begun);
        }
        if (stopped) {
            console_line("stopped by a signal; %s", o->out ? "--resume auto continues the run"
                                                           : "nothing was saved, without --out");
        }
        log_close(&log);
    }
    model_free(&m);
}

static const char *name_text(const train_options *o)
{
    if (o->data) return options_given(&o->base, "data") ? "--data" : "the run's --data";
    return options_given(&o->base, "tokens") ? "--tokens" : "the run's --tokens";
}

/* The options are checked after the checkpoint has restored its own. */
static int run_member(gd_context *ctx, train_options *o)
{
    dataset data;
    checkpoint from;
    int status = EXIT_FAILURE;
    if (checkpoint_open(&from, ctx, o)) {
        console_message("%s", gd_error(ctx));
        checkpoint_close(&from);
        return status;
    }
    if (!train_options_check(o)) {
        checkpoint_close(&from);
        gd_fail(ctx, GD_ERROR_ARGUMENT, "its options do not fit together"); /* for other ranks */
        return 2;
    }
    gd_context_set_tf32(ctx, o->base.tf32);
    const data_options wanted = {.text = o->data,
                                 .tokens = o->tokens,
                                 .option = name_text(o),
                                 .validation = o->val_data,
                                 .vocab = o->vocab,
                                 .token_bytes = tokens_width(o->token_bytes),
                                 .context = o->context,
                                 .seed = (uint64_t)o->seed,
                                 .compare = o->group || o->out || o->resume || o->log,
                                 .tokenizer = from.tokenizer.kind ? &from.tokenizer : NULL};
    bool loaded = data_load(&data, &wanted);
    from.tokenizer = (tokenizer){0}; /* now owned by data */
    if (loaded) {
        train_options_count_steps(o, data.windows);
        gd_random_set(ctx, (gd_random_state){.seed = (uint64_t)o->seed});
        if (!launch_compare(o, ctx, &data, from.folder)) train(ctx, &data, o, &from);
        if (gd_error(ctx)) console_message("%s", gd_error(ctx));
        status = console_arrived() && !gd_error(ctx) ? EXIT_SUCCESS : EXIT_FAILURE;
        data_free(&data);
    } else {
        gd_fail(ctx, GD_ERROR_IO, "its text cannot be used");
    }
    checkpoint_close(&from);
    return status;
}

/* Runs as one of several processes, or alone. */
static int run(gd_context *ctx, options *command)
{
    train_options *o = (train_options *)command;
    int status = EXIT_FAILURE;
    if (o->member.ranks > 1 || o->member.problem[0]) o->group = gd_group_create(ctx, &o->member);
    if (launch_compare(o, ctx, NULL, ""))
        console_message("%s", gd_error(ctx));
    else
        status = run_member(ctx, o);
    gd_group_free(o->group);
    return status;
}

int main(int argc, char **argv)
{
    (void)argc; /* argv ends with NULL */
    train_options command;
    argv = program_begin(argv);
    const options_outcome outcome = train_options_read(&command, argv);
    int status;
    if (outcome == OPTIONS_RUN && launch(&command, &status) == LAUNCH_STARTER) {
        options_free(&command.base);
        return status;
    }
    return program_main(&command.base, outcome, run);
}
