/* logits.h - the logits of a Llama folder. */
#ifndef GRADUS_TEST_LLAMA_LOGITS_H
#define GRADUS_TEST_LLAMA_LOGITS_H

#include "llama.h"

/* Makes the model of a folder in a dtype, and fills it. */
static inline gd_status llama_open(model *m, gd_context *ctx, gd_dtype dtype, const char *folder)
{
    model_config config;
    *m = (model){0};
    if (llama_read_config(ctx, folder, &config) || model_create(m, ctx, dtype, &config)) {
        return gd_error_status(ctx);
    }
    return llama_load(m, folder);
}

/* tokens GD_INT32 [B, T] -> logits [B, T, V], without a tape; they end with the step. */
static inline gd_tensor *llama_logits(model *m, gd_tensor *tokens)
{
    m->training = false;
    gd_no_grad_begin(m->ctx);
    gd_tensor *logits = model_logits(m, tokens);
    gd_no_grad_end(m->ctx);
    return logits;
}

#endif
