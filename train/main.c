/* main.c - gradus-train: a text in, a transformer that writes like it out. */
#include <stdio.h>
#include <stdlib.h>

#include "data.h"
#include "loop.h"
#include "model.h"
#include "options.h"
#include "report.h"
#include "sample.h"

/* Configuration, training, validation, a sample. */
static void train(gd_context *ctx, const dataset *data, const train_options *o)
{
    const model_config config = {.vocab = data->tokenizer.vocab,
                                 .layers = o->layers,
                                 .dim = o->dim,
                                 .heads = o->heads,
                                 .kv_heads = o->kv_heads,
                                 .ffn = o->ffn,
                                 .dropout = o->dropout,
                                 .tied = o->tied,
                                 .recompute = o->recompute};
    model m;
    run_log log = {0};
    double begun = report_now();
    bool ready = !model_create(&m, ctx, o->dtype, &config);
    if (ready) report_configuration(&m, data, o);
    if (ready && o->dry_run) {
        if (!loop_try(&m, data, o)) report_memory(ctx);
        model_free(&m);
        return;
    }
    if (ready && !log_open(&log, o, data, &m, 0))
        gd_fail(ctx, GD_ERROR_IO, "train: there is no log to write to");
    if (!gd_error(ctx)) loop_train(&m, data, o, &log);
    log_close(&log);
    if (!gd_error(ctx)) {
        double loss = loop_validate(&m, data, o->batch, o->context);
        printf("validation loss %.4f after %.1f s\n", loss, report_now() - begun);
        report_memory(ctx);
        report_weights(&m);
    }
    if (!gd_error(ctx) && o->sample_length > 0) {
        printf("---- sample, temperature %g\n", o->temperature);
        sample_text(&m, &data->tokenizer, o->context, o->sample_length, o->temperature, stdout);
        printf("\n----\n");
    }
    model_free(&m);
}

int main(int argc, char **argv)
{
    train_options options;
    dataset data;
    options_outcome outcome = options_read(&options, argc, argv);
    if (outcome != OPTIONS_RUN) {
        options_free(&options);
        return outcome == OPTIONS_DONE ? EXIT_SUCCESS : 2;
    }
    const data_options from = {.text = options.data,
                               .tokens = options.tokens,
                               .validation = options.val_data,
                               .vocab = options.vocab,
                               .context = options.context,
                               .seed = (uint64_t)options.seed};
    if (!data_load(&data, &from)) {
        options_free(&options);
        return EXIT_FAILURE;
    }

    const gd_context_options context = {
        .device = options.device, .threads = (int)options.threads, .seed = (uint64_t)options.seed};
    gd_context *ctx = gd_context_create(&context);
    if (ctx && !gd_error(ctx)) train(ctx, &data, &options);
    bool failed = gd_error(ctx) != NULL;
    if (failed) fprintf(stderr, "gradus-train: %s\n", gd_error(ctx));
    gd_context_free(ctx);
    data_free(&data);
    options_free(&options);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
