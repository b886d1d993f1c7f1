/* checkpoint_load.c - the weights and the state of a checkpoint (checkpoint.h). */
#include "checkpoint_parts.h"
#include "checkpoint_sharded.h"
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

/* For token files "text_hash" covers the first ids alone, as in checkpoints of older versions. */
static bool same_text(const checkpoint *from, gd_context *ctx, const dataset *data)
{
    const bool files =
        data->options.tokens && gd_safetensors_metadata(from->state, CHECKPOINT_TOKEN_FILES);
    return checkpoint_read_whole(from, ctx, "text_hash") == data->hash &&
           (!files || checkpoint_read_whole(from, ctx, CHECKPOINT_TOKEN_FILES) == data->files[0]);
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
    return llama_load(m, &from->files);
}

static gd_tensor *masters_of(const gd_optimizer *optimizer)
{
    gd_tensor *state;
    for (int i = 0; (state = gd_optimizer_state(optimizer, i)); i++) {
        if (!strcmp(gd_tensor_name(state), "master")) return state;
    }
    return NULL;
}

/* Elements of the block of all parameters. */
static int64_t block_length(const model *m)
{
    int64_t length = 0;
    for (int i = 0; i < gd_params_count(m->params); i++) {
        const int64_t end =
            gd_params_offset(m->params, i) + gd_tensor_count(gd_params_at(m->params, i));
        length = end > length ? end : length;
    }
    return length;
}

/* Weights of more than 16 bits become masters without being rounded first. */
static gd_status load_whole_masters(checkpoint *from, const model *m, gd_tensor *masters)
{
    if (llama_load_state(m, &from->files, masters)) return gd_error_status(m->ctx);
    int64_t count = 0;
    llama_weight *weights = llama_weights(m, &count);
    gd_no_grad_begin(m->ctx);
    for (int64_t i = 0; i < count && !gd_error(m->ctx); i++) {
        const llama_weight *w = &weights[i];
        gd_tensor_copy(llama_weight_view(w), llama_state_view(m, w, masters));
    }
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    free(weights);
    return gd_error_status(m->ctx);
}

/* Where the masters are divided over ranks, each reads all of them and keeps its own slices. */
static gd_status begin_masters(checkpoint *from, const model *m, const gd_optimizer *optimizer)
{
    gd_tensor *masters = masters_of(optimizer);
    const int64_t length = block_length(m);
    gd_params_slice slice;
    if (!masters) return gd_error_status(m->ctx);
    gd_params_slice_at(m->params, 0, &slice);
    if (slice.begin == 0 && slice.end >= length) return load_whole_masters(from, m, masters);
    gd_tensor *all = gd_tensor_create(m->ctx, gd_tensor_dtype(masters), 1, &length);
    if (all && !load_whole_masters(from, m, all)) checkpoint_sharded_masters(m, masters, all);
    gd_tensor_free(all);
    return gd_error_status(m->ctx);
}

gd_status checkpoint_load_state(checkpoint *from, const model *m, gd_optimizer *optimizer)
{
    gd_context *ctx = m->ctx;
    if (from->folder[0]) begin_masters(from, m, optimizer);
    if (gd_error(ctx) || !from->state) return gd_error_status(ctx);
    gd_random_state random = {checkpoint_read_whole(from, ctx, "random_seed"),
                              checkpoint_read_whole(from, ctx, "random_offset")};
    uint64_t steps = checkpoint_read_whole(from, ctx, "optimizer_steps");
    gd_optimizer_set_steps(
        optimizer, (int64_t)(steps < CHECKPOINT_MOST_STEPS ? steps : CHECKPOINT_MOST_STEPS));
    checkpoint_sharded_read(m, optimizer, from->state);
    /* The weights of a run in 16 bits are its rounded masters; in a wider dtype they are the
     * masters. The first update makes them. */
    if (steps > 0) llama_load_prefixed(m, from->state, "master");
    gd_random_set(ctx, random);
    return gd_error_status(ctx);
}
