/* trained.c - see trained.h. */
#include "trained.h"
#include "checkpoint.h"
#include "console.h"
#include "llama.h"
#include "tokenizer_file.h"

#include <stdlib.h>
#include <string.h>

static gd_status open_state(trained *t, gd_context *ctx)
{
    if (!folder_has(&t->files, CHECKPOINT_STATE)) return GD_OK;
    t->state = llama_open_file(ctx, &t->files, CHECKPOINT_STATE);
    return gd_error_status(ctx);
}

/* Checkpoints have the average with the optimizer's states. */
static gd_status load_average(trained *t)
{
    gd_context *ctx = t->m.ctx;
    if ((t->state && llama_load_state(&t->m, t->state, "average") > 0) || gd_error(ctx))
        return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_ARGUMENT,
                   "--average: %s has no average of its weights; gradus-train --average keeps one",
                   t->folder);
}

gd_status trained_open(trained *t, gd_context *ctx, trained_options *options, bool ids)
{
    model_config config;
    *t = (trained){.folder = ""};
    if (gd_error(ctx)) return gd_error_status(ctx);
    checkpoint_find(ctx, "--model", options->model, false, &t->files);
    folder_copy(t->folder, t->files.path);
    if (gd_error(ctx) || llama_read_config(ctx, &t->files, &config) ||
        llama_check(ctx, &t->files, &config) || open_state(t, ctx)) {
        return gd_error_status(ctx);
    }
    const char *dtype = trained_option(t, "dtype");
    if (dtype && !options_restore(&options->base, "dtype", dtype)) {
        return gd_fail(ctx, GD_ERROR_IO, "the options of the run in %s cannot be restored",
                       t->folder);
    }
    if (options->base.tf32 && options->dtype != GD_FLOAT32)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "--tf32 needs --dtype f32");
    if (model_create(&t->m, ctx, options->dtype, &config) || llama_load(&t->m, &t->files, NULL)) {
        return gd_error_status(ctx);
    }
    if (options->average && load_average(t)) return gd_error_status(ctx);
    if (!ids) tokenizer_load(&t->tokenizer, ctx, &t->files);
    if (t->tokenizer.kind == TOKENIZER_NONE) t->tokenizer.vocab = config.vocab;
    if (t->tokenizer.vocab > config.vocab) {
        gd_fail(ctx, GD_ERROR_IO,
                "the tokenizer in %s has %lld tokens, but the model has only %lld", t->folder,
                (long long)t->tokenizer.vocab, (long long)config.vocab);
    }
    return gd_error_status(ctx);
}

void trained_close(trained *t)
{
    gd_safetensors_close(t->state);
    folder_close(&t->files);
    tokenizer_free(&t->tokenizer);
    model_free(&t->m);
    t->state = NULL;
}

const char *trained_option(const trained *t, const char *name)
{
    return t->state ? gd_safetensors_metadata(t->state, gd_format("option.%s", name).text) : NULL;
}

int64_t trained_number(const trained *t, const char *name, int64_t fallback)
{
    const char *text = trained_option(t, name);
    char *end = NULL;
    long long number = text ? strtoll(text, &end, 10) : 0;
    return end && end != text && !*end && number > 0 && number < INT32_MAX ? number : fallback;
}

int64_t trained_context(const trained *t, int64_t wanted, int64_t most)
{
    int64_t made_for = t->m.config.positions;
    int64_t context =
        wanted ? wanted : trained_number(t, "context", made_for < most ? made_for : most);
    if (context > made_for) {
        console_message("--context is %lld, but the model was made for %lld", (long long)context,
                        (long long)made_for);
    }
    return context;
}
