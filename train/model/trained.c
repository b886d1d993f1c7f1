/* trained.c - see trained.h. */
#include "trained.h"
#include "checkpoint.h"
#include "console.h"
#include "llama.h"
#include "tokenizer_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options ------------------------------------------------------------------------------ */

#define AT(field) offsetof(trained_options, field)

static const int dtypes[] = {TRAINED_DTYPE, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16, GD_FLOAT64};

const option_row trained_rows[TRAINED_ROWS] = {
    {.help = "Model"},
    {OPTION_PATH, "model", AT(model), .others = "out_dir checkpoint",
     .help = "DIR  a checkpoint, the --out of a run (its newest one), or a Llama model in Hugging "
             "Face's form; \"--model\" may be left out"},
    {OPTION_WHOLE, "context", AT(context), 0, 1048576, .others = "block_size seq_len",
     .help = "N  tokens seen at once; 0: as many as in its training, else as the model was made "
             "for (gradus-eval: 2048 at most)"},
    {OPTION_CHOICE, "dtype", AT(dtype), .choices = "run f32 bf16 f16 f64", .values = dtypes,
     .others = "precision",
     .help = "run|f32|bf16|f16|f64  of weights and activations; run: as it was trained, else f32"},
};

/* ---- Opening ------------------------------------------------------------------------------ */

static gd_dtype run_dtype(const trained *t)
{
    static const struct {
        const char *name;
        gd_dtype dtype;
    } rows[] = {{"bf16", GD_BFLOAT16}, {"f16", GD_FLOAT16}, {"f64", GD_FLOAT64}};
    const char *name = trained_option(t, "dtype");
    for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++) {
        if (!strcmp(rows[i].name, name)) return rows[i].dtype;
    }
    return GD_FLOAT32;
}

static gd_status open_state(trained *t, gd_context *ctx)
{
    char path[FOLDER_PATH];
    if (!folder_join(path, t->folder, CHECKPOINT_STATE) || !folder_has(path)) return GD_OK;
    t->state = gd_safetensors_open(ctx, path);
    return gd_error_status(ctx);
}

gd_status trained_open(trained *t, gd_context *ctx, const trained_options *options, bool ids)
{
    model_config config;
    *t = (trained){.folder = ""};
    if (gd_error(ctx)) return gd_error_status(ctx);
    if (checkpoint_find(ctx, "--model", options->model, false, t->folder) ||
        llama_read_config(ctx, t->folder, &config) || llama_check(ctx, t->folder, &config) ||
        open_state(t, ctx)) {
        return gd_error_status(ctx);
    }
    const gd_dtype dtype =
        options->dtype == TRAINED_DTYPE ? run_dtype(t) : (gd_dtype)options->dtype;
    if (model_create(&t->m, ctx, dtype, &config) || llama_load(&t->m, t->folder)) {
        return gd_error_status(ctx);
    }
    if (!ids) tokenizer_load(&t->tokenizer, ctx, t->folder);
    if (t->tokenizer.kind == TOKENIZER_NONE) t->tokenizer.vocab = config.vocab;
    if (t->tokenizer.vocab > config.vocab) {
        gd_fail(ctx, GD_ERROR_IO, "the tokenizer in %s has %lld tokens, but the model only %lld",
                t->folder, (long long)t->tokenizer.vocab, (long long)config.vocab);
    }
    return gd_error_status(ctx);
}

void trained_close(trained *t)
{
    gd_safetensors_close(t->state);
    tokenizer_free(&t->tokenizer);
    model_free(&t->m);
    t->state = NULL;
}

const char *trained_option(const trained *t, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "option.%s", name);
    return t->state ? gd_safetensors_metadata(t->state, key) : NULL;
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
