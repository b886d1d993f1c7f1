/* logits.h - the logits of a Llama folder. */
#ifndef GRADUS_TEST_LLAMA_LOGITS_H
#define GRADUS_TEST_LLAMA_LOGITS_H

#include "llama.h"

/* Reads the config.json of a folder. */
static inline gd_status llama_config(gd_context *ctx, const char *path, model_config *config)
{
    open_folder in;
    if (!folder_open(&in, path, true)) return gd_fail(ctx, GD_ERROR_IO, "no folder %s", path);
    llama_read_config(ctx, &in, config);
    folder_close(&in);
    return gd_error_status(ctx);
}

/* Makes the model of a folder in a dtype, and fills it. */
static inline gd_status llama_open(model *m, gd_context *ctx, gd_dtype dtype, const char *path)
{
    model_config config;
    open_folder in;
    *m = (model){0};
    if (!folder_open(&in, path, true)) return gd_fail(ctx, GD_ERROR_IO, "no folder %s", path);
    if (!llama_read_config(ctx, &in, &config) && !model_create(m, ctx, dtype, &config))
        llama_load(m, &in, NULL);
    folder_close(&in);
    return gd_error_status(ctx);
}

/* tokens GD_INT32 [B, T] -> logits [B, T, V], without a tape; they end with the step. */
static inline gd_tensor *llama_logits(model *m, gd_tensor *tokens)
{
    m->training = false;
    gd_no_grad_begin(m->ctx);
    gd_tensor *logits = gd_linear(model_hidden(m, tokens), m->output, NULL);
    gd_no_grad_end(m->ctx);
    return logits;
}

#endif
