/* checkpoint_load.c - the weights and the state of a checkpoint (checkpoint.h). */
#include "checkpoint_parts.h"
#include "llama.h"

#include <stdlib.h>
#include <string.h>

/* Sharded models are not from this program and have no such metadata. */
static gd_status check_tokens(checkpoint *from, gd_context *ctx, const tokenizer *t)
{
    static const char name[] = "model.safetensors";
    char tokens[TOKENIZER_TEXT];
    if (t->vocab > from->config.vocab) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "the text has %lld different tokens, but the model in %s has only %lld",
                       (long long)t->vocab, from->folder, (long long)from->config.vocab);
    }
    if (!folder_has(&from->files, name)) return GD_OK;
    gd_safetensors *file = llama_open_file(ctx, &from->files, name);
    const char *trained = gd_safetensors_metadata(file, "tokens");
    checkpoint_print_tokenizer(t, tokens);
    if (trained && strcmp(trained, tokens) != 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "the vocabulary of the model in %s differs from that of the text", from->folder);
    }
    gd_safetensors_close(file);
    return gd_error_status(ctx);
}

static bool same_text(const checkpoint *from, gd_context *ctx, const dataset *data)
{
    return !gd_safetensors_metadata(from->state, CHECKPOINT_TEXT) ||
           checkpoint_read_whole(from, ctx, CHECKPOINT_TEXT) == data->files[0];
}

gd_status checkpoint_load_model(checkpoint *from, model *m, const dataset *data)
{
    if (check_tokens(from, m->ctx, &data->tokenizer)) return gd_error_status(m->ctx);
    if (from->state && !same_text(from, m->ctx, data)) {
        const data_options *d = &data->options;
        return gd_fail(m->ctx, GD_ERROR_ARGUMENT,
                       "%s %s: the run in %s was trained on another text; --init begins a new run "
                       "with its weights",
                       d->option, d->text ? d->text : d->tokens, from->folder);
    }
    return llama_load(m, &from->files, NULL);
}

static gd_tensor *masters_of(const gd_optimizer *optimizer)
{
    gd_tensor *state;
    for (int i = 0; (state = gd_optimizer_state(optimizer, i)); i++) {
        if (!strcmp(gd_tensor_name(state), "master")) return state;
    }
    return NULL;
}

gd_status checkpoint_load_state(checkpoint *from, const model *m, gd_optimizer *optimizer)
{
    gd_context *ctx = m->ctx;
    gd_tensor *masters = masters_of(optimizer);
    const gd_loss_scale scale = gd_optimizer_loss_scale(optimizer);
    if (from->folder[0] && masters) llama_load(m, &from->files, masters);
    if (gd_error(ctx) || !from->state) return gd_error_status(ctx);
    gd_optimizer_load_states(optimizer, from->state);
    /* A run that goes on in another dtype has the loss scale of that. */
    if (gd_optimizer_loss_scale(optimizer).adapts != scale.adapts)
        gd_optimizer_set_loss_scale(optimizer, scale);
    /* The weights of a run in 16 bits are its rounded masters; in a wider dtype they are the
     * masters. The first update makes them. */
    if (gd_optimizer_steps(optimizer) > 0) llama_load_state(m, from->state, "master");
    return gd_error_status(ctx);
}
