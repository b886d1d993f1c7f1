/* checkpoint.c - opening a checkpoint and the folder of a run, and loading (checkpoint.h). */
#include "checkpoint_parts.h"
#include "checksums.h"
#include "console.h"
#include "llama.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

gd_status checkpoint_fail(gd_context *ctx, const char *what, const char *path)
{
    return gd_fail(ctx, GD_ERROR_IO, "cannot %s %s: %s", what, path, folder_reason());
}

/* ---- The metadata ------------------------------------------------------------------------- */

/* A number of the metadata, a whole one unless `real` is to get it; an error if there is none. */
static uint64_t read_number(const checkpoint *from, gd_context *ctx, const char *name, double *real)
{
    const char *text = gd_safetensors_metadata(from->state, name);
    char *end = NULL;
    errno = 0;
    unsigned long long whole = text && !real ? strtoull(text, &end, 10) : 0;
    if (text && real) *real = strtod(text, &end);
    if (!text || end == text || *end || (!real && (errno || text[0] == '-')))
        gd_fail(ctx, GD_ERROR_IO, CHECKPOINT_STATE " in %s has no %s \"%s\" in its metadata",
                from->folder, real ? "number" : "whole number", name);
    return whole;
}

#define MOST_STEPS UINT64_C(1000000000000) /* more than any count in a checkpoint */

#define AT(field) offsetof(checkpoint_progress, field)
const checkpoint_field checkpoint_fields[CHECKPOINT_FIELDS] = {
    {"step", AT(step), false},
    {"skipped_steps", AT(skipped), false},
    {"best_step", AT(best.step), false},
    {"best_loss", AT(best.loss), true},
    {"loss_steps", AT(losses.steps), false},
    {"loss_sum", AT(losses.sum), true}};

static gd_status read_progress(checkpoint *from, gd_context *ctx)
{
    checkpoint_progress p = {
        .unvalidated = gd_safetensors_metadata(from->state, CHECKPOINT_UNVALIDATED) != NULL};
    for (int i = 0; i < CHECKPOINT_FIELDS; i++) {
        const checkpoint_field *f = &checkpoint_fields[i];
        void *field = (char *)&p + f->at;
        const uint64_t whole = read_number(from, ctx, f->key, f->real ? field : NULL);
        if (!f->real) *(int64_t *)field = (int64_t)whole;
    }
    const uint64_t step = (uint64_t)p.step, skipped = (uint64_t)p.skipped;
    if (step > MOST_STEPS || skipped > step || (uint64_t)p.best.step > step ||
        (uint64_t)p.losses.steps > step || isnan(p.best.loss) || !isfinite(p.losses.sum)) {
        gd_fail(ctx, GD_ERROR_IO,
                "%s/" CHECKPOINT_STATE ": invalid progress: %llu steps, %llu of them skipped",
                from->folder, (unsigned long long)step, (unsigned long long)skipped);
    }
    if (!gd_error(ctx)) from->progress = p;
    return gd_error_status(ctx);
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
    return from->state ? read_progress(from, ctx) : gd_error_status(ctx);
}

/* ---- The options of the run --------------------------------------------------------------- */

/* Restores an option from the checkpoint. `must_agree`: it must not be given another value. */
static gd_status restore(const checkpoint *from, gd_context *ctx, train_options *o,
                         const char *name, const char *text, bool must_agree)
{
    options_item given;
    if (must_agree && !options_agree(&o->base, name, text, &given)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       strcmp(name, "optimizer")
                           ? "--%s is %s, but the model in %s has %s"
                           : "--%s is %s, but the run in %s was trained with %s; --init begins a "
                             "new run with its weights",
                       name, given.text, from->folder, text);
    }
    if (options_restore(&o->base, name, text)) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO, "the options of the run in %s cannot be restored",
                   from->folder);
}

/* Whether the run's --min-lr was a tenth of its --lr, and is to be one of the --lr that
 * was given. */
static bool follows_rate(const checkpoint *from, const train_options *o)
{
    const char *lr = gd_safetensors_metadata(from->state, "option.lr");
    const char *min_lr = gd_safetensors_metadata(from->state, "option.min-lr");
    return lr && min_lr && options_given(&o->base, "lr") &&
           fabs(strtod(lr, NULL) / 10 - strtod(min_lr, NULL)) <= 1e-12 * strtod(lr, NULL);
}

/* The model's shape comes from the folder; other options are those of the run, unless given. */
static gd_status restore_options(checkpoint *from, gd_context *ctx, train_options *o)
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
    for (size_t i = 0; i < sizeof shape / sizeof *shape && !gd_error(ctx); i++)
        restore(from, ctx, o, shape[i].name, gd_format("%lld", (long long)shape[i].value).text,
                true);
    if (!gd_error(ctx)) restore(from, ctx, o, "tied", c->tied ? "true" : "false", true);
    options_item item;
    for (int i = 0; from->state && !gd_error(ctx) && options_saved(&o->base, i, &item); i++) {
        const char *value = gd_safetensors_metadata(from->state, item.key);
        if (!strcmp(item.name, "min-lr") && follows_rate(from, o)) continue;
        const bool fixed = !strcmp(item.name, "vocab") || !strcmp(item.name, "optimizer");
        if (value) restore(from, ctx, o, item.name, value, fixed);
    }
    return gd_error_status(ctx);
}

/* ---- The folder of a run ------------------------------------------------------------------ */

static const char lock_name[] = ".lock";

/* Removes what a killed run left. Creating and removing a folder proves before step 1 that
 * checkpoints can be written. */
static bool tidy(const open_folder *out)
{
    return checkpoint_clear(out, CHECKPOINT_REMOVING) && checkpoint_clear(out, CHECKPOINT_SAVING) &&
           folder_make(out, CHECKPOINT_SAVING) && checkpoint_clear(out, CHECKPOINT_SAVING);
}

/* Two runs in one folder would mix the model of one with the state of the other. On a file system
 * without locks nothing prevents it. Who has the lock brings back a checkpoint whose replacement
 * was interrupted. */
static gd_status lock_out(checkpoint *from, gd_context *ctx, const char *out)
{
    if (!folder_open(&from->out, out, false)) return checkpoint_fail(ctx, "open the folder", out);
    from->lock = folder_lock(&from->out, lock_name);
    if (from->lock < 0 && errno == EWOULDBLOCK)
        return gd_fail(ctx, GD_ERROR_IO, "--out %s: another run is saving its checkpoints there",
                       out);
    if (from->lock < 0)
        return gd_fail(ctx, GD_ERROR_IO, "--out %s: cannot lock %s in it: %s", out, lock_name,
                       folder_reason());
    if (!folder_repair(&from->out, CHECKPOINT_PREFIX, checksums_files))
        return checkpoint_fail(ctx, "repair the folder", out);
    return tidy(&from->out) ? GD_OK : checkpoint_fail(ctx, "write in the folder", out);
}

/* A new run must not mix its checkpoints with those of another. */
static gd_status make_out(checkpoint *from, gd_context *ctx, const train_options *o)
{
    int64_t *steps = NULL, count = 0;
    if (!folder_make_all(o->out)) return checkpoint_fail(ctx, "make the folder", o->out);
    if (lock_out(from, ctx, o->out) || o->resume) return gd_error_status(ctx);
    count = checkpoint_list(&from->out, &steps);
    if (count < 0) checkpoint_fail(ctx, "list", o->out);
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
    if (automatic && !gd_error(ctx) && !from->files.path[0])
        console_notice("--resume auto: there is no checkpoint in %s: a new run begins", o->out);
    folder_copy(from->folder, from->files.path);
    return gd_error_status(ctx);
}

gd_status checkpoint_open(checkpoint *from, gd_context *ctx, train_options *o)
{
    *from = (checkpoint){.folder = "", .lock = -1};
    const char *path = o->resume ? o->resume : o->init;
    if (gd_error(ctx)) return gd_error_status(ctx);
#ifndef GD_HAVE_JANSSON
    if (o->out || path)
        return gd_fail(
            ctx, GD_ERROR_UNSUPPORTED,
            "--out, --resume and --init need jansson, and this build of gradus has none");
#endif
    const bool first = gd_group_rank(o->group) == 0;
    if (first && find(from, ctx, o)) return gd_error_status(ctx);
    if (!path) return GD_OK;
    if (gd_group_broadcast_bytes(o->group, from->folder, sizeof from->folder))
        return gd_error_status(ctx);
    from->folder[sizeof from->folder - 1] = '\0'; /* another process wrote it */
    if (!first && from->folder[0] && !folder_open(&from->files, from->folder, o->init))
        return checkpoint_fail(ctx, "open the folder", from->folder);
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

gd_status checkpoint_check_name(const checkpoint *run, gd_context *ctx, const train_options *o)
{
    open_folder other;
    if (!run->moved || folder_is_there(&run->out) || !folder_open(&other, o->out, false))
        return gd_error_status(ctx);
    const int lock = folder_lock(&other, lock_name);
    if (lock >= 0)
        folder_unlock(&other, lock_name, lock);
    else if (errno == EWOULDBLOCK)
        gd_fail(
            ctx, GD_ERROR_IO,
            "--out %s: another run is saving its checkpoints under this name; this one has saved "
            "in its own folder, which was moved, and ends",
            o->out);
    folder_close(&other);
    return gd_error_status(ctx);
}

static void close_out(checkpoint *run)
{
    if (run->lock >= 0) folder_unlock(&run->out, lock_name, run->lock);
    folder_close(&run->out);
    run->lock = -1;
}

bool checkpoint_open_again(checkpoint *run, gd_context *ctx, const train_options *o)
{
    close_out(run);
    if (!folder_make_path(o->out) || lock_out(run, ctx, o->out)) return false;
    console_notice("the folder %s was removed; it is made anew", o->out);
    return true;
}

/* ---- Loading ------------------------------------------------------------------------------ */

/* Sharded models are not from this program and have no such metadata. */
static gd_status check_tokens(checkpoint *from, gd_context *ctx, const tokenizer *t)
{
    static const char name[] = "model.safetensors";
    if (t->vocab > from->config.vocab) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "the text has %lld different tokens, but the model in %s has only %lld",
                       (long long)t->vocab, from->folder, (long long)from->config.vocab);
    }
    if (!folder_has(&from->files, name)) return GD_OK;
    gd_safetensors *file = llama_open_file(ctx, &from->files, name);
    const char *trained = gd_safetensors_metadata(file, "tokens");
    if (trained && strcmp(trained, checkpoint_tokenizer_text(t).text) != 0) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "the vocabulary of the model in %s differs from that of the text", from->folder);
    }
    gd_safetensors_close(file);
    return gd_error_status(ctx);
}

static bool same_text(const checkpoint *from, gd_context *ctx, const dataset *data)
{
    return !gd_safetensors_metadata(from->state, CHECKPOINT_TEXT) ||
           read_number(from, ctx, CHECKPOINT_TEXT, NULL) == data->files[0];
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

void checkpoint_close_files(checkpoint *from)
{
    gd_safetensors_close(from->state);
    folder_close(&from->files);
    from->state = NULL;
}

void checkpoint_close(checkpoint *from)
{
    checkpoint_close_files(from);
    tokenizer_free(&from->tokenizer);
    close_out(from);
}
