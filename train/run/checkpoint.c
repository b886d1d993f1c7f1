/* checkpoint.c - see checkpoint.h. */
#define _DEFAULT_SOURCE /* flock */
#include "checkpoint.h"
#include "checksums.h"
#include "console.h"
#include "llama.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const uint64_t MOST_STEPS = 1000000000000;

/* The metadata key of the model that a state belongs to; its value is the checksum of
 * model.safetensors. */
static const char model_id[] = "model_xxh3";

enum { TOKENIZER_TEXT = 2 * 256 + 16, NUMBER_TEXT = CHECKPOINT_NUMBER };

/* A description of the tokenizer: "characters:61620a", two digits for each, or a fingerprint of the
 * pieces. */
static void print_tokenizer(const tokenizer *t, char text[TOKENIZER_TEXT])
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    int used = 0;
    switch (t->kind) {
    case TOKENIZER_NONE:
        snprintf(text, TOKENIZER_TEXT, "ids");
        return;
    case TOKENIZER_CHARACTERS:
        used = snprintf(text, TOKENIZER_TEXT, "characters:");
        for (int64_t i = 0; i < t->vocab; i++) {
            snprintf(text + used + 2 * i, 3, "%02x", t->symbol[i]);
        }
        return;
    case TOKENIZER_BPE:
        for (int32_t i = 0; i < t->bpe.vocab - 256; i++) {
            for (int side = 0; side < 2; side++) {
                hash = (hash ^ (uint32_t)t->bpe.merge[i][side]) * 1099511628211u;
            }
        }
        snprintf(text, TOKENIZER_TEXT, "pieces:%016llx", (unsigned long long)hash);
        return;
    }
}

static void print_whole(char text[NUMBER_TEXT], uint64_t whole)
{
    snprintf(text, NUMBER_TEXT, "%llu", (unsigned long long)whole);
}

/* ---- Saving ------------------------------------------------------------------------------- */

/* The optimizer's state of every weight, under names like "m.model.norm.weight". */
static gd_named_tensor *state_tensors(const model *m, gd_optimizer *adamw, char (**names)[96],
                                      int64_t *count)
{
    int64_t weight_count = 0, states = 0;
    llama_weight *weights = llama_weights(m, &weight_count);
    while (gd_optimizer_state(adamw, (int)states)) states++;
    *count = states * weight_count;
    gd_named_tensor *tensors = malloc((size_t)*count * sizeof *tensors + 1);
    *names = malloc((size_t)*count * sizeof **names + 1);
    for (int64_t i = 0; weights && tensors && *names && i < *count; i++) {
        const llama_weight *w = &weights[i / states];
        gd_tensor *state = gd_optimizer_state(adamw, (int)(i % states));
        snprintf((*names)[i], sizeof **names, "%s.%s", gd_tensor_name(state), w->name);
        tensors[i] = (gd_named_tensor){(*names)[i], llama_state_view(m, w, state)};
    }
    if (!weights || !tensors || !*names) {
        gd_fail(m->ctx, GD_ERROR_MEMORY, "no memory for the optimizer's state");
    }
    free(weights);
    return tensors;
}

/* The state of the run as texts, and the memory they point to. */
typedef struct state_texts {
    gd_named_text text[OPTIONS_MOST + 12];
    int64_t count;
    char room[10][NUMBER_TEXT];
    options_item items[OPTIONS_MOST];
    char model[CHECKSUM_TEXT];
} state_texts;

static void print_state(state_texts *t, const model *m, const dataset *data, const train_options *o,
                        const gd_optimizer *adamw, const checkpoint_progress *progress)
{
    gd_random_state random = gd_random_get(m->ctx);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"step", (uint64_t)progress->step},
                   {"skipped_steps", (uint64_t)progress->skipped},
                   {"optimizer_steps", (uint64_t)gd_optimizer_steps(adamw)},
                   {"random_seed", random.seed},
                   {"random_offset", random.offset},
                   {"text_hash", data->hash},
                   {"best_step", (uint64_t)progress->best.step},
                   {"loss_scale", (uint64_t)progress->scale.factor},
                   {"loss_scale_good", (uint64_t)progress->scale.good}};
    t->count = 0;
    t->text[t->count++] = (gd_named_text){"program", "gradus-train " GD_VERSION_STRING};
    const size_t used = sizeof numbers / sizeof *numbers - (progress->scale.adapts ? 0 : 2);
    for (size_t i = 0; i < used; i++) {
        print_whole(t->room[i], numbers[i].value);
        t->text[t->count++] = (gd_named_text){numbers[i].name, t->room[i]};
    }
    checkpoint_print_best(t->room[used], progress->best.loss);
    t->text[t->count++] = (gd_named_text){"best_loss", t->room[used]};
    options_item *item = t->items;
    for (int i = 0; i < OPTIONS_MOST && options_saved(&o->base, i, item); i++, item++) {
        if (item->text) t->text[t->count++] = (gd_named_text){item->key, item->text};
    }
}

static gd_status save_state(const model *m, const dataset *data, const train_options *o,
                            gd_optimizer *adamw, const checkpoint_progress *progress,
                            const char *folder)
{
    char path[FOLDER_PATH], (*names)[96] = NULL;
    int64_t count;
    state_texts texts;
    print_state(&texts, m, data, o, adamw, progress);
    if (checksums_of(texts.model, folder, "model.safetensors")) {
        texts.text[texts.count++] = (gd_named_text){model_id, texts.model};
    }
    gd_no_grad_begin(m->ctx);
    gd_named_tensor *tensors = state_tensors(m, adamw, &names, &count);
    if (!gd_error(m->ctx) && folder_join(path, folder, CHECKPOINT_STATE)) {
        gd_safetensors_write(m->ctx, path, tensors, count, texts.text, texts.count);
    }
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    free(tensors);
    free(names);
    return gd_error_status(m->ctx);
}

static gd_status fail(gd_context *ctx, const char *what, const char *path)
{
    return gd_fail(ctx, GD_ERROR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* Removes all but the newest `keep`, those of every `keep_every`-th step, and the one just saved,
 * which is not the newest in a run that was resumed from an older checkpoint. */
static gd_status thin_out(gd_context *ctx, const train_options *o, int64_t saved, int64_t best)
{
    char path[FOLDER_PATH], removing[FOLDER_PATH];
    int64_t *steps, count = checkpoint_list(o->out, &steps);
    if (count < 0 || !folder_join(removing, o->out, ".removing")) {
        return fail(ctx, "list", o->out);
    }
    for (int64_t i = 0; o->keep > 0 && i < count - o->keep; i++) {
        if (steps[i] == saved || (o->keep_best && steps[i] == best) ||
            (o->keep_every > 0 && steps[i] % o->keep_every == 0))
            continue;
        bool removed = checkpoint_path(path, o->out, steps[i]) && folder_remove(removing) &&
                       folder_replace(path, removing) && folder_remove(removing);
        if (!removed) {
            fail(ctx, "remove", path);
            break;
        }
    }
    free(steps);
    return gd_error_status(ctx);
}

gd_status checkpoint_save(const model *m, const dataset *data, const train_options *o,
                          gd_optimizer *adamw, const checkpoint_progress *progress)
{
    gd_context *ctx = m->ctx;
    char saving[FOLDER_PATH], path[FOLDER_PATH], tokens[TOKENIZER_TEXT];
    print_tokenizer(&data->tokenizer, tokens);
    if (!folder_join(saving, o->out, ".saving") || !checkpoint_path(path, o->out, progress->step) ||
        !folder_make(o->out) || !folder_remove(saving) || !folder_make(saving)) {
        return fail(ctx, "make a folder in", o->out);
    }
    if (llama_save(m, saving, tokens) || tokenizer_save(&data->tokenizer, ctx, saving) ||
        save_state(m, data, o, adamw, progress, saving) || checksums_save(ctx, saving)) {
        folder_remove(saving);
        return gd_error_status(ctx);
    }
    if (!folder_flush(saving) || !folder_replace(saving, path) || !folder_flush(o->out)) {
        return fail(ctx, "complete", path);
    }
    if (o->keep_best && checkpoint_link_best(ctx, o->out, progress->best.step)) {
        return gd_error_status(ctx);
    }
    return thin_out(ctx, o, progress->step, progress->best.step);
}

/* ---- Opening ------------------------------------------------------------------------------ */

/* A whole number of the metadata. */
static uint64_t read_whole(const checkpoint *from, gd_context *ctx, const char *name)
{
    const char *text = gd_safetensors_metadata(from->state, name);
    char *end = NULL;
    errno = 0;
    unsigned long long whole = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || text[0] == '-') {
        gd_fail(ctx, GD_ERROR_IO,
                CHECKPOINT_STATE " in %s has no whole number \"%s\" in its metadata", from->folder,
                name);
    }
    return whole;
}

/* The loss scale; only runs in float16 have one. */
static gd_loss_scale read_scale(const checkpoint *from, gd_context *ctx)
{
    if (!gd_safetensors_metadata(from->state, "loss_scale")) return (gd_loss_scale){0};
    const uint64_t factor = read_whole(from, ctx, "loss_scale");
    const uint64_t good = read_whole(from, ctx, "loss_scale_good");
    if (factor == 0 || factor > MOST_STEPS || factor & (factor - 1) || good > MOST_STEPS) {
        gd_fail(ctx, GD_ERROR_IO,
                CHECKPOINT_STATE " in %s: loss_scale is %llu, wanted a power of two", from->folder,
                (unsigned long long)factor);
    }
    return (gd_loss_scale){.adapts = true, .factor = (int64_t)factor, .good = (int64_t)good};
}

/* The weights exist, and were saved with the state. */
static void check_model(const checkpoint *from, gd_context *ctx)
{
    static const char name[] = "model.safetensors";
    char path[FOLDER_PATH], found[CHECKSUM_TEXT];
    if (!folder_join(path, from->folder, name)) {
        fail(ctx, "open", path);
        return;
    }
    gd_safetensors_close(gd_safetensors_open(ctx, path));
    const char *wanted = gd_safetensors_metadata(from->state, model_id);
    if (!wanted || !checksums_of(found, from->folder, name) || !strcmp(found, wanted)) return;
    gd_fail(ctx, GD_ERROR_IO, "%s: %s is not the one that " CHECKPOINT_STATE " was saved with",
            from->folder, name);
}

/* Opens the state, and checks the shape and that the weights exist. */
static gd_status open_folder(checkpoint *from, gd_context *ctx, bool resume)
{
    char path[FOLDER_PATH];
    if (llama_read_config(ctx, from->folder, &from->config) ||
        llama_check(ctx, from->folder, &from->config) || !resume) {
        return gd_error_status(ctx);
    }
    if (!folder_join(path, from->folder, CHECKPOINT_STATE)) return fail(ctx, "open", path);
    if (!gd_error(ctx) && !folder_has(path)) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "--resume %s: it has no " CHECKPOINT_STATE
                       ", which is needed to resume; --init begins a new run with its weights",
                       from->folder);
    }
    from->state = gd_safetensors_open(ctx, path);
    if (from->state) check_model(from, ctx);
    uint64_t step = from->state ? read_whole(from, ctx, "step") : 0;
    uint64_t skipped = from->state ? read_whole(from, ctx, "skipped_steps") : 0;
    const gd_loss_scale scale = from->state ? read_scale(from, ctx) : (gd_loss_scale){0};
    const checkpoint_best best = checkpoint_read_best(from);
    if (step > MOST_STEPS || skipped > step) {
        gd_fail(ctx, GD_ERROR_IO, "%s: invalid progress: %llu steps, %llu of them skipped", path,
                (unsigned long long)step, (unsigned long long)skipped);
    }
    if (!gd_error(ctx)) {
        from->progress = (checkpoint_progress){(int64_t)step, (int64_t)skipped, scale, best};
    }
    return gd_error_status(ctx);
}

/* Restores an option from the checkpoint. `must_agree`: it must not be given another value. */
static gd_status restore(const checkpoint *from, gd_context *ctx, train_options *o,
                         const char *name, const char *text, bool must_agree)
{
    options_item given;
    if (must_agree && !options_agree(&o->base, name, text, &given)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "--%s is %s, but the model in %s has %s", name,
                       given.text, from->folder, text);
    }
    if (options_restore(&o->base, name, text)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "the options of the run in %s cannot be parsed", from->folder);
}

/* The model's shape comes from the folder; other options are those of the run, unless given. */
static gd_status restore_options(const checkpoint *from, gd_context *ctx, train_options *o)
{
    const model_config *c = &from->config;
    const struct {
        const char *name;
        int64_t value;
    } shape[] = {{"layers", c->layers},
                 {"dim", c->dim},
                 {"heads", c->heads},
                 {"kv-heads", c->kv_heads},
                 {"ffn", c->ffn}};
    char text[NUMBER_TEXT];
    for (size_t i = 0; i < sizeof shape / sizeof *shape && !gd_error(ctx); i++) {
        print_whole(text, (uint64_t)shape[i].value);
        restore(from, ctx, o, shape[i].name, text, true);
    }
    if (!gd_error(ctx)) restore(from, ctx, o, "tied", c->tied ? "true" : "false", true);
    options_item item;
    for (int i = 0; from->state && !gd_error(ctx) && options_saved(&o->base, i, &item); i++) {
        const char *value = gd_safetensors_metadata(from->state, item.key);
        if (value) restore(from, ctx, o, item.name, value, !strcmp(item.name, "vocab"));
    }
    return gd_error_status(ctx);
}

/* Two runs in one folder would mix the model of one with the state of the other. On a file system
 * without locks nothing prevents it. */
static gd_status lock_out(checkpoint *from, gd_context *ctx, const char *out)
{
    from->lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from->lock >= 0 && flock(from->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        return gd_fail(ctx, GD_ERROR_IO, "--out %s: another run is saving its checkpoints there",
                       out);
    }
    return GD_OK;
}

/* A new run must not mix its checkpoints with those of another. */
static gd_status make_out(checkpoint *from, gd_context *ctx, const train_options *o)
{
    int64_t *steps = NULL, count = 0;
    if (!folder_make_all(o->out)) return fail(ctx, "make the folder", o->out);
    if (access(o->out, W_OK | X_OK)) return fail(ctx, "write in the folder", o->out);
    if (lock_out(from, ctx, o->out)) return gd_error_status(ctx);
    if (!o->resume && (count = checkpoint_list(o->out, &steps)) > 0) {
        gd_fail(ctx, GD_ERROR_IO,
                "--out %s: it holds the checkpoints of a run, up to step %lld; use --resume auto "
                "to continue it, or another --out for a new run",
                o->out, (long long)steps[count - 1]);
    }
    free(steps);
    return gd_error_status(ctx);
}

gd_status checkpoint_open(checkpoint *from, gd_context *ctx, train_options *o)
{
    *from = (checkpoint){.folder = "", .lock = -1};
    const char *path = o->resume ? o->resume : o->init;
    if (gd_error(ctx)) return gd_error_status(ctx);
#ifndef GD_HAVE_JANSSON
    if (o->out || path) {
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "%s: this build of gradus has no jansson (GRADUS_JANSSON)",
                       o->out      ? "--out"
                       : o->resume ? "--resume"
                                   : "--init");
    }
#endif
    if (o->out && !o->dry_run && make_out(from, ctx, o)) return gd_error_status(ctx);
    if (!path) return GD_OK;
    if (o->resume && !strcmp(path, "auto")) {
        checkpoint_newest(ctx, o->out, from->folder);
    } else {
        checkpoint_find(ctx, o->resume ? "--resume" : "--init", path, o->resume, from->folder);
        bool of_run = strcmp(from->folder, path) != 0;
        if (o->resume && of_run && !o->out) { /* the run continues in its folder */
            o->out = path;
            if (!gd_error(ctx) && !o->dry_run) lock_out(from, ctx, path);
        }
    }
    if (!gd_error(ctx) && from->folder[0]) open_folder(from, ctx, o->resume != NULL);
    if (!gd_error(ctx) && from->folder[0]) restore_options(from, ctx, o);
    /* The vocabulary is the model's. */
    if (!gd_error(ctx) && o->init && o->tokens && o->vocab == 0) o->vocab = from->config.vocab;
    if (from->folder[0] && !o->tokens) tokenizer_load(&from->tokenizer, ctx, from->folder);
    if (from->tokenizer.kind != TOKENIZER_NONE && o->init && options_given(&o->base, "vocab")) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "--vocab and --init exclude each other: the vocabulary is that of the model in %s",
                from->folder);
    }
    return gd_error_status(ctx);
}

void checkpoint_close(checkpoint *from)
{
    gd_safetensors_close(from->state);
    tokenizer_free(&from->tokenizer);
    if (from->lock >= 0) close(from->lock);
    from->state = NULL;
    from->lock = -1;
}

/* ---- Loading ------------------------------------------------------------------------------ */

/* Sharded models are not from this program and have no such metadata. */
static gd_status check_tokens(const checkpoint *from, gd_context *ctx, const tokenizer *t)
{
    char path[FOLDER_PATH], tokens[TOKENIZER_TEXT];
    if (t->vocab > from->config.vocab) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "the text has %lld different tokens, but the model in %s has only %lld",
                       (long long)t->vocab, from->folder, (long long)from->config.vocab);
    }
    if (!folder_join(path, from->folder, "model.safetensors")) return fail(ctx, "open", path);
    if (!folder_has(path)) return GD_OK;
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    const char *trained = gd_safetensors_metadata(file, "tokens");
    print_tokenizer(t, tokens);
    if (trained && strcmp(trained, tokens) != 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "the model in %s was trained with another vocabulary than that of the text",
                from->folder);
    }
    gd_safetensors_close(file);
    return gd_error_status(ctx);
}

gd_status checkpoint_load_model(const checkpoint *from, model *m, const dataset *data)
{
    if (check_tokens(from, m->ctx, &data->tokenizer)) return gd_error_status(m->ctx);
    if (from->state && read_whole(from, m->ctx, "text_hash") != data->hash) {
        const data_options *d = &data->options;
        return gd_fail(m->ctx, GD_ERROR_ARGUMENT,
                       "%s %s: the run in %s was trained on another text; --init begins a new run "
                       "with its weights",
                       d->option, d->text ? d->text : d->tokens, from->folder);
    }
    return llama_load(m, from->folder);
}

/* The weights of a run in 16 bits are its rounded masters; in a wider dtype they are the
 * masters. */
static void load_masters(const checkpoint *from, const model *m)
{
    int64_t count = 0;
    llama_weight *weights = llama_weights(m, &count);
    for (int64_t i = 0; i < count && !gd_error(m->ctx); i++) {
        char name[96];
        snprintf(name, sizeof name, "master.%s", weights[i].name);
        if (!gd_safetensors_find(from->state, name)) continue;
        gd_safetensors_read(from->state, name, llama_weight_view(&weights[i]));
    }
    free(weights);
}

static gd_tensor *masters_of(const gd_optimizer *adamw)
{
    gd_tensor *state;
    for (int i = 0; (state = gd_optimizer_state(adamw, i)); i++) {
        if (!strcmp(gd_tensor_name(state), "master")) return state;
    }
    return NULL;
}

/* Weights of more than 16 bits become masters without being rounded first. */
static gd_status begin_masters(const checkpoint *from, const model *m, const gd_optimizer *adamw)
{
    gd_tensor *masters = masters_of(adamw);
    if (!masters || llama_load_state(m, from->folder, masters)) return gd_error_status(m->ctx);
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

gd_status checkpoint_load_state(const checkpoint *from, const model *m, gd_optimizer *adamw)
{
    gd_context *ctx = m->ctx;
    char(*names)[96] = NULL;
    int64_t count;
    if (from->folder[0]) begin_masters(from, m, adamw);
    if (gd_error(ctx) || !from->state) return gd_error_status(ctx);
    gd_random_state random = {read_whole(from, ctx, "random_seed"),
                              read_whole(from, ctx, "random_offset")};
    uint64_t steps = read_whole(from, ctx, "optimizer_steps");
    gd_optimizer_set_steps(adamw, (int64_t)(steps < MOST_STEPS ? steps : MOST_STEPS));
    gd_no_grad_begin(ctx);
    gd_named_tensor *tensors = state_tensors(m, adamw, &names, &count);
    for (int64_t i = 0; i < count && !gd_error(ctx); i++) {
        const bool master = !strncmp(tensors[i].name, "master.", 7);
        if (master && !gd_safetensors_find(from->state, tensors[i].name)) continue;
        gd_safetensors_read(from->state, tensors[i].name,
                            (gd_tensor *)(uintptr_t)tensors[i].tensor);
    }
    if (steps > 0) load_masters(from, m); /* the first update makes them */
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    gd_random_set(ctx, random);
    free(tensors);
    free(names);
    return gd_error_status(ctx);
}
