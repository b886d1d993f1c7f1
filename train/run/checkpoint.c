/* checkpoint.c - see checkpoint.h. */
#include "checkpoint.h"
#include "checkpoint_sharded.h"
#include "checksums.h"
#include "console.h"
#include "fingerprint.h"
#include "fnv.h"
#include "llama.h"
#include "platform/file.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MOST_STEPS = 1000000000000;

/* The metadata key of the model that a state belongs to; its value is the checksum of
 * model.safetensors. */
static const char model_id[] = "model_xxh3";

static const char unvalidated[] = "unvalidated"; /* the key is there, or not */
static const char token_files[] = "token_files_" FINGERPRINT_NAME;

enum { TOKENIZER_TEXT = 2 * 256 + 16, NUMBER_TEXT = 32 };

/* A description of the tokenizer: "characters:61620a" (its bytes, two digits for each, under the
 * name that checkpoints have had from the beginning), or a fingerprint of the pieces. */
static void print_tokenizer(const tokenizer *t, char text[TOKENIZER_TEXT])
{
    /* FNV-1a, but of words instead of bytes; the first runs began with FNV_BEGIN. */
    uint64_t hash = t->bpe.byte_words ? FNV_BEGIN : ~FNV_BEGIN;
    int used = 0;
    switch (t->kind) {
    case TOKENIZER_NONE:
        snprintf(text, TOKENIZER_TEXT, "ids");
        return;
    case TOKENIZER_BYTES:
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

/* With all its digits: it is read back as the same number. */
static void print_number(char text[NUMBER_TEXT], double number)
{
    snprintf(text, NUMBER_TEXT, "%.17g", number);
}

static gd_status fail(gd_context *ctx, const char *what, const char *path)
{
    return gd_fail(ctx, GD_ERROR_IO, "cannot %s %s: %s", what, path, folder_reason());
}

/* ---- Saving ------------------------------------------------------------------------------- */

/* The optimizer's state of every weight, under names like "m.model.norm.weight". */
static gd_named_tensor *state_tensors(const model *m, gd_optimizer *optimizer, state_name **names,
                                      int64_t *count)
{
    int64_t weight_count = 0, states = 0;
    llama_weight *weights = llama_weights(m, &weight_count);
    while (gd_optimizer_state(optimizer, (int)states)) states++;
    *count = states * weight_count;
    gd_named_tensor *tensors = malloc((size_t)*count * sizeof *tensors + 1);
    *names = malloc((size_t)*count * sizeof **names + 1);
    for (int64_t i = 0; weights && tensors && *names && i < *count; i++) {
        const llama_weight *w = &weights[i / states];
        const int k = (int)(i % states);
        (*names)[i] = checkpoint_state_name(optimizer, k, w);
        tensors[i] = (gd_named_tensor){(*names)[i].text,
                                       llama_state_view(m, w, gd_optimizer_state(optimizer, k))};
    }
    if (!weights || !tensors || !*names) {
        gd_fail(m->ctx, GD_ERROR_MEMORY, "out of memory: the optimizer's state");
    }
    free(weights);
    return tensors;
}

/* The state of the run as texts, and the memory they point to. */
typedef struct state_texts {
    gd_named_text text[OPTIONS_MOST + 16];
    int64_t count;
    char room[13][NUMBER_TEXT];
    options_item items[OPTIONS_MOST];
} state_texts;

static void print_state(state_texts *t, const model *m, const dataset *data, const train_options *o,
                        const gd_optimizer *optimizer, const checkpoint_progress *progress)
{
    gd_random_state random = gd_random_get(m->ctx);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"step", (uint64_t)progress->step},
                   {"skipped_steps", (uint64_t)progress->skipped},
                   {"optimizer_steps", (uint64_t)gd_optimizer_steps(optimizer)},
                   {"random_seed", random.seed},
                   {"random_offset", random.offset},
                   {"text_hash", data->hash},
                   {"best_step", (uint64_t)progress->best.step},
                   {"loss_steps", (uint64_t)progress->losses.steps},
                   {"loss_scale", (uint64_t)progress->scale.factor},
                   {"loss_scale_good", (uint64_t)progress->scale.good}};
    t->count = 0;
    t->text[t->count++] = (gd_named_text){"program", "gradus-train " GD_VERSION_STRING};
    const size_t used = sizeof numbers / sizeof *numbers - (progress->scale.adapts ? 0 : 2);
    for (size_t i = 0; i < used; i++) {
        print_whole(t->room[i], numbers[i].value);
        t->text[t->count++] = (gd_named_text){numbers[i].name, t->room[i]};
    }
    print_number(t->room[used], progress->best.loss);
    t->text[t->count++] = (gd_named_text){"best_loss", t->room[used]};
    print_number(t->room[used + 1], progress->losses.sum);
    t->text[t->count++] = (gd_named_text){"loss_sum", t->room[used + 1]};
    if (data->options.tokens && data->files[0]) {
        print_whole(t->room[used + 2], data->files[0]);
        t->text[t->count++] = (gd_named_text){token_files, t->room[used + 2]};
    }
    if (progress->unvalidated) t->text[t->count++] = (gd_named_text){unvalidated, "true"};
    options_item *item = t->items;
    for (int i = 0; i < OPTIONS_MOST && options_saved(&o->base, i, item); i++, item++) {
        if (item->text) t->text[t->count++] = (gd_named_text){item->key, item->text};
    }
}

static gd_status save_state(const model *m, const dataset *data, const train_options *o,
                            gd_optimizer *optimizer, const checkpoint_progress *progress,
                            saving *to)
{
    state_name *names = NULL;
    int64_t count;
    state_texts texts;
    print_state(&texts, m, data, o, optimizer, progress);
    const char *model_sum = saving_checksum(to, "model.safetensors");
    if (model_sum) texts.text[texts.count++] = (gd_named_text){model_id, model_sum};
    if (o->group) return checkpoint_sharded_reserve(m, optimizer, to, texts.text, texts.count);
    gd_no_grad_begin(m->ctx);
    gd_named_tensor *tensors = state_tensors(m, optimizer, &names, &count);
    saving_tensors(to, CHECKPOINT_STATE, tensors, count, texts.text, texts.count);
    gd_no_grad_end(m->ctx);
    gd_step_end(m->ctx);
    free(tensors);
    free(names);
    return gd_error_status(m->ctx);
}

/* Says what a folder held that is not the run's own. */
static void tell_rest(const open_folder *out, const char *name, const char *rest)
{
    if (rest[0])
        console_notice("%s/%s has what is not this run's, or could not be removed: it is kept as "
                       "%s/%s",
                       out->path, name, out->path, rest);
}

/* Removes all but the newest `keep`, those of every `keep_every`-th step, and the one just saved,
 * which is not the newest in a run that was resumed from an older checkpoint. What cannot be
 * removed stays, with a message: the new one is saved. */
static void thin_out(const open_folder *out, const train_options *o, int64_t saved, int64_t best)
{
    char rest[FOLDER_NAME];
    int64_t *steps, count = checkpoint_list(out, &steps);
    if (count < 0) console_notice("cannot list %s: %s", out->path, strerror(errno));
    for (int64_t i = 0; o->keep > 0 && i < count - o->keep; i++) {
        if (steps[i] == saved || (o->keep_best && steps[i] == best) ||
            (o->keep_every > 0 && steps[i] % o->keep_every == 0))
            continue;
        const checkpoint_name name = checkpoint_name_of(steps[i]);
        if (!folder_remove(out, name.text, ".removing", checksums_files, rest))
            console_notice("cannot remove %s/%s: %s", out->path, name.text, strerror(errno));
        tell_rest(out, name.text, rest);
    }
    free(steps);
}

static const char saving_name[] = ".saving";

/* Opens --out and the new folder in it, which rank 0 makes. */
static gd_status open_saving(gd_context *ctx, const train_options *o, open_folder *out, saving *to)
{
    char rest[FOLDER_NAME] = "";
    const bool first = gd_group_rank(o->group) == 0;
    *to = (saving){.ctx = ctx};
    *out = (open_folder){0};
    if ((first && !folder_make_path(o->out)) || !folder_open(out, o->out, false) ||
        (first && (!folder_clear(out, saving_name, "unfinished", checksums_files, rest) ||
                   !folder_make(out, saving_name))) ||
        !folder_enter(&to->folder, out, saving_name))
        fail(ctx, "make a folder in", o->out);
    tell_rest(out, saving_name, rest);
    return gd_error_status(ctx);
}

/* Everything but the state that is divided into slices, one set for each rank. */
static gd_status begin_saving(const model *m, const dataset *data, const train_options *o,
                              gd_optimizer *optimizer, const checkpoint_progress *progress,
                              saving *to)
{
    char tokens[TOKENIZER_TEXT];
    print_tokenizer(&data->tokenizer, tokens);
    if (llama_save(m, to, tokens) || tokenizer_save(&data->tokenizer, to))
        return gd_error_status(m->ctx);
    return save_state(m, data, o, optimizer, progress, to);
}

/* Reads it again, before an older one may go. */
static gd_status check_saved(gd_context *ctx, saving *to)
{
    const char *wanted = saving_checksum(to, "model.safetensors");
    bool complete;
    if (checkpoint_check(ctx, &to->folder, true, &complete)) return gd_error_status(ctx);
    gd_safetensors *state = llama_open_file(ctx, &to->folder, CHECKPOINT_STATE);
    const char *found = gd_safetensors_metadata(state, model_id);
    if (state && wanted && (!found || strcmp(found, wanted) != 0))
        gd_fail(ctx, GD_ERROR_IO, "%s/" CHECKPOINT_STATE " does not have the checksum of its model",
                to->folder.path);
    gd_safetensors_close(state);
    if (!gd_error(ctx) && wanted && !complete)
        gd_fail(ctx, GD_ERROR_IO, "%s does not have all its files and their checksums",
                to->folder.path);
    return gd_error_status(ctx);
}

static gd_status complete_saving(gd_context *ctx, const train_options *o,
                                 const checkpoint_progress *progress, const open_folder *out,
                                 saving *to)
{
    char rest[FOLDER_NAME];
    const checkpoint_name name = checkpoint_name_of(progress->step);
    if (saving_end(to) || check_saved(ctx, to)) return gd_error_status(ctx);
    if (!folder_replace(out, saving_name, name.text, checksums_files, rest))
        return gd_fail(ctx, GD_ERROR_IO, "cannot complete %s/%s: %s", out->path, name.text,
                       strerror(errno));
    tell_rest(out, name.text, rest);
    if (o->keep_best) checkpoint_link_best(out, progress->best.step);
    thin_out(out, o, progress->step, progress->best.step);
    return GD_OK;
}

/* Rank 0 does it all but for the slices, which each writes once the file is there; the folder gets
 * its name when all have. */
gd_status checkpoint_save(const model *m, const dataset *data, const train_options *o,
                          gd_optimizer *optimizer, const checkpoint_progress *progress)
{
    gd_context *ctx = m->ctx;
    open_folder out = {0};
    saving to = {.ctx = ctx};
    char rest[FOLDER_NAME];
    const bool first = gd_group_rank(o->group) == 0;
    if (first && !open_saving(ctx, o, &out, &to))
        begin_saving(m, data, o, optimizer, progress, &to);
    const bool begun = first && to.folder.path[0];
    if (!checkpoint_agree(ctx, o->group) && o->group) {
        if (first || !open_saving(ctx, o, &out, &to))
            checkpoint_sharded_write(m, optimizer, &to.folder);
        checkpoint_agree(ctx, o->group);
    }
    if (!gd_error(ctx)) {
        if (first) complete_saving(ctx, o, progress, &out, &to);
        checkpoint_agree(ctx, o->group);
    }
    if (gd_error(ctx) && begun)
        folder_clear(&out, saving_name, "unfinished", checksums_files, rest);
    saving_close(&to);
    folder_close(&out);
    return gd_error_status(ctx);
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

/* Checkpoints of older versions have none. */
static checkpoint_losses read_losses(const checkpoint *from)
{
    const char *steps = gd_safetensors_metadata(from->state, "loss_steps");
    const char *sum = gd_safetensors_metadata(from->state, "loss_sum");
    checkpoint_losses losses = {0};
    if (steps && sum) losses = (checkpoint_losses){strtoll(steps, NULL, 10), strtod(sum, NULL)};
    return losses.steps > 0 && isfinite(losses.sum) ? losses : (checkpoint_losses){0};
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
static void check_model(checkpoint *from, gd_context *ctx)
{
    static const char name[] = "model.safetensors";
    char found[CHECKSUM_TEXT];
    gd_safetensors_close(llama_open_file(ctx, &from->files, name));
    const char *wanted = gd_safetensors_metadata(from->state, model_id);
    if (gd_error(ctx) || !wanted) return;
    if (!checksums_of(found, &from->files, name)) {
        fail(ctx, "read the model in", from->folder);
        return;
    }
    if (!found[0] || !strcmp(found, wanted)) return; /* "": this build has no xxHash */
    gd_fail(ctx, GD_ERROR_IO, "%s: %s is not the one that " CHECKPOINT_STATE " was saved with",
            from->folder, name);
}

/* Opens the state, and checks the shape and that the weights exist. */
static gd_status open_checkpoint(checkpoint *from, gd_context *ctx, bool resume)
{
    if (llama_read_config(ctx, &from->files, &from->config) ||
        llama_check(ctx, &from->files, &from->config) || !resume) {
        return gd_error_status(ctx);
    }
    if (!folder_has(&from->files, CHECKPOINT_STATE)) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "--resume %s: it has no " CHECKPOINT_STATE
                       ", which is needed to resume; --init begins a new run with its weights",
                       from->folder);
    }
    from->state = llama_open_file(ctx, &from->files, CHECKPOINT_STATE);
    if (from->state) check_model(from, ctx);
    uint64_t step = from->state ? read_whole(from, ctx, "step") : 0;
    uint64_t skipped = from->state ? read_whole(from, ctx, "skipped_steps") : 0;
    const gd_loss_scale scale = from->state ? read_scale(from, ctx) : (gd_loss_scale){0};
    const checkpoint_best best = checkpoint_read_best(from);
    if (step > MOST_STEPS || skipped > step) {
        gd_fail(ctx, GD_ERROR_IO,
                "%s/" CHECKPOINT_STATE ": invalid progress: %llu steps, %llu of them skipped",
                from->folder, (unsigned long long)step, (unsigned long long)skipped);
    }
    if (!gd_error(ctx)) {
        from->progress = (checkpoint_progress){
            .step = (int64_t)step,
            .skipped = (int64_t)skipped,
            .scale = scale,
            .best = best,
            .losses = read_losses(from),
            .unvalidated = gd_safetensors_metadata(from->state, unvalidated) != NULL};
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

/* A state of one optimizer is none of another. Checkpoints of older versions do not name theirs. */
static gd_status check_optimizer(const checkpoint *from, gd_context *ctx, const train_options *o)
{
    const char *saved = gd_safetensors_metadata(from->state, "option.optimizer");
    const char *was = saved ? saved : "adamw";
    options_item given;
    if (options_agree(&o->base, "optimizer", was, &given)) return GD_OK;
    return gd_fail(ctx, GD_ERROR_ARGUMENT,
                   "--optimizer is %s, but the run in %s was trained with %s; --init begins a new "
                   "run with its weights",
                   given.text, from->folder, was);
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
    if (from->state && !gd_error(ctx)) check_optimizer(from, ctx, o);
    options_item item;
    for (int i = 0; from->state && !gd_error(ctx) && options_saved(&o->base, i, &item); i++) {
        const char *value = gd_safetensors_metadata(from->state, item.key);
        if (value) restore(from, ctx, o, item.name, value, !strcmp(item.name, "vocab"));
    }
    return gd_error_status(ctx);
}

static const char lock_name[] = ".lock";

/* Two runs in one folder would mix the model of one with the state of the other. On a file system
 * without locks nothing prevents it. Who has the lock brings back a checkpoint whose replacement
 * was interrupted. */
static gd_status lock_out(checkpoint *from, gd_context *ctx, const char *out)
{
    if (!folder_open(&from->out, out, false)) return fail(ctx, "open the folder", out);
    from->lock = folder_lock(&from->out, lock_name);
    if (from->lock < 0 && errno == EWOULDBLOCK)
        return gd_fail(ctx, GD_ERROR_IO, "--out %s: another run is saving its checkpoints there",
                       out);
    if (from->lock < 0)
        return gd_fail(ctx, GD_ERROR_IO, "--out %s: cannot lock %s in it: %s", out, lock_name,
                       folder_reason());
    if (!folder_repair(&from->out, checksums_files)) return fail(ctx, "repair the folder", out);
    return GD_OK;
}

/* A new run must not mix its checkpoints with those of another. */
static gd_status make_out(checkpoint *from, gd_context *ctx, const train_options *o)
{
    int64_t *steps = NULL, count = 0;
    if (!folder_make_all(o->out)) return fail(ctx, "make the folder", o->out);
    if (!gd_os_can_write_in(o->out)) return fail(ctx, "write in the folder", o->out);
    if (lock_out(from, ctx, o->out) || o->resume) return gd_error_status(ctx);
    count = checkpoint_list(&from->out, &steps);
    if (count < 0) fail(ctx, "list", o->out);
    if (count > 0) {
        gd_fail(ctx, GD_ERROR_IO,
                "--out %s: it holds the checkpoints of a run, up to step %lld; use --resume auto "
                "to continue it, or another --out for a new run",
                o->out, (long long)steps[count - 1]);
    }
    free(steps);
    return gd_error_status(ctx);
}

/* Any other tokenizer would give the text ids that mean something else to the model. */
static gd_status open_tokenizer(checkpoint *from, gd_context *ctx)
{
    char missing[TOKENIZER_MISSING];
    if (tokenizer_load(&from->tokenizer, ctx, &from->files) ||
        from->tokenizer.kind != TOKENIZER_NONE)
        return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "%s " TOKENIZER_WANTED,
                   tokenizer_missing(&from->files, missing));
}

/* A path that --resume names is the folder of a run, and not that of a checkpoint. */
static bool is_run(const char *path)
{
    open_folder run;
    int64_t *steps = NULL;
    if (!folder_open(&run, path, false)) return false;
    const bool is = !folder_has(&run, "config.json") && checkpoint_list(&run, &steps) > 0;
    free(steps);
    folder_close(&run);
    return is;
}

/* Rank 0 looks for all, and owns the folder. A run that is resumed without --out continues in its
 * folder. */
static gd_status find(checkpoint *from, gd_context *ctx, const train_options *o)
{
    const char *path = o->resume ? o->resume : o->init;
    const bool automatic = o->resume && !strcmp(path, "auto");
    if (o->out && !o->dry_run && make_out(from, ctx, o)) return gd_error_status(ctx);
    if (o->resume && !o->out && !o->dry_run && is_run(path) && lock_out(from, ctx, path))
        return gd_error_status(ctx);
    if (automatic)
        checkpoint_newest(ctx, o->out, &from->files);
    else if (path)
        checkpoint_find(ctx, o->resume ? "--resume" : "--init", path, o->resume, &from->files);
    folder_copy(from->folder, from->files.path);
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
    const bool first = gd_group_rank(o->group) == 0;
    if (first && find(from, ctx, o)) return gd_error_status(ctx);
    if (!path) return GD_OK;
    if (gd_group_broadcast_bytes(o->group, from->folder, sizeof from->folder))
        return gd_error_status(ctx);
    from->folder[sizeof from->folder - 1] = '\0'; /* another process wrote it */
    if (!first && from->folder[0] && !folder_open(&from->files, from->folder, o->init))
        return fail(ctx, "open the folder", from->folder);
    if (o->resume && !o->out && strcmp(from->folder, path) != 0) o->out = path;
    if (!gd_error(ctx) && from->folder[0]) open_checkpoint(from, ctx, o->resume != NULL);
    if (!gd_error(ctx) && from->folder[0]) restore_options(from, ctx, o);
    /* The vocabulary is the model's. */
    if (!gd_error(ctx) && o->init && o->tokens && o->vocab == 0) o->vocab = from->config.vocab;
    if (!gd_error(ctx) && from->folder[0] && o->data && !o->tokens) open_tokenizer(from, ctx);
    if (from->tokenizer.kind != TOKENIZER_NONE && o->init && options_given(&o->base, "vocab")) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "--vocab and --init cannot be used together: the vocabulary is that of %s",
                from->folder);
    }
    return gd_error_status(ctx);
}

void checkpoint_close(checkpoint *from)
{
    gd_safetensors_close(from->state);
    tokenizer_free(&from->tokenizer);
    folder_close(&from->files);
    if (from->lock >= 0) folder_unlock(&from->out, lock_name, from->lock);
    folder_close(&from->out);
    from->state = NULL;
    from->lock = -1;
}

/* ---- Loading ------------------------------------------------------------------------------ */

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
    print_tokenizer(t, tokens);
    if (trained && strcmp(trained, tokens) != 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "the vocabulary of the model in %s differs from that of the text", from->folder);
    }
    gd_safetensors_close(file);
    return gd_error_status(ctx);
}

/* Of token files "text_hash" is that of the first ids alone, as in checkpoints of older versions. */
static bool same_text(const checkpoint *from, gd_context *ctx, const dataset *data)
{
    const bool files = data->options.tokens && gd_safetensors_metadata(from->state, token_files);
    return read_whole(from, ctx, "text_hash") == data->hash &&
           (!files || read_whole(from, ctx, token_files) == data->files[0]);
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
    gd_random_state random = {read_whole(from, ctx, "random_seed"),
                              read_whole(from, ctx, "random_offset")};
    uint64_t steps = read_whole(from, ctx, "optimizer_steps");
    gd_optimizer_set_steps(optimizer, (int64_t)(steps < MOST_STEPS ? steps : MOST_STEPS));
    checkpoint_sharded_read(m, optimizer, from->state);
    /* The weights of a run in 16 bits are its rounded masters; in a wider dtype they are the masters.
     * The first update makes them. */
    if (steps > 0) llama_load_prefixed(m, from->state, "master");
    gd_random_set(ctx, random);
    return gd_error_status(ctx);
}
