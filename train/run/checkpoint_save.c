/* checkpoint_save.c - saving a run (checkpoint.h). */
#include "checkpoint_parts.h"
#include "checksums.h"
#include "console.h"
#include "fnv.h"
#include "llama.h"
#include "tokenizer_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The state as texts ------------------------------------------------------------------- */

gd_text checkpoint_tokenizer_text(const tokenizer *t)
{
    static const char *const kinds[] = {"ids", "bytes", "pieces"};
    const bool pieces = t->kind == TOKENIZER_BPE;
    const size_t bytes = pieces ? (size_t)(t->bpe.vocab - 256) * sizeof *t->bpe.merge
                         : t->kind == TOKENIZER_BYTES ? (size_t)t->vocab
                                                      : 0;
    const uint64_t hash = fnv1a(FNV_BEGIN, pieces ? (const void *)t->bpe.merge : t->symbol, bytes);
    return gd_format("%s:%016llx", kinds[t->kind], (unsigned long long)hash);
}

/* The state of the run as texts, and the memory they point to. */
typedef struct state_texts {
    gd_named_text text[OPTIONS_MOST + 16];
    int64_t count;
    gd_text numbers[CHECKPOINT_FIELDS + 1];
    options_item items[OPTIONS_MOST];
} state_texts;

static void print_state(state_texts *t, const dataset *data, const train_options *o,
                        const checkpoint_progress *progress)
{
    gd_text *text = t->numbers;
    t->count = 0;
    t->text[t->count++] = (gd_named_text){"program", "gradus-train " GD_VERSION_STRING};
    *text = gd_format("%llu", (unsigned long long)data->files[0]);
    t->text[t->count++] = (gd_named_text){CHECKPOINT_TEXT, text->text};
    for (int i = 0; i < CHECKPOINT_FIELDS; i++) {
        const checkpoint_field *f = &checkpoint_fields[i];
        const void *field = (const char *)progress + f->at;
        /* A double with all its digits, so that it is read back as the same number. */
        *++text = f->real ? gd_format("%.17g", *(const double *)field)
                          : gd_format("%lld", (long long)*(const int64_t *)field);
        t->text[t->count++] = (gd_named_text){f->key, text->text};
    }
    if (progress->unvalidated)
        t->text[t->count++] = (gd_named_text){CHECKPOINT_UNVALIDATED, "true"};
    options_item *item = t->items;
    for (int i = 0; i < OPTIONS_MOST && options_saved(&o->base, i, item); i++, item++) {
        if (item->text) t->text[t->count++] = (gd_named_text){item->key, item->text};
    }
}

static gd_status save_state(const dataset *data, const train_options *o,
                            const gd_optimizer *optimizer, const checkpoint_progress *progress,
                            saving *to)
{
    state_texts texts;
    print_state(&texts, data, o, progress);
    return saving_states(to, CHECKPOINT_STATE, optimizer, texts.text, texts.count,
                         gd_group_rank(o->group) == 0);
}

/* ---- The folder ----------------------------------------------------------------------------- */

/* Says what a folder held that is not the run's own. */
static void tell_rest(const open_folder *out, const char *name, const char *rest)
{
    if (rest[0])
        console_notice("%s/%s has what is not this run's, or could not be removed: it is kept as "
                       "%s/%s",
                       out->path, name, out->path, rest);
}

bool checkpoint_clear(const open_folder *out, const char *name)
{
    char rest[FOLDER_NAME] = "";
    const bool cleared = folder_clear(out, name, "unfinished", checksums_files, rest);
    tell_rest(out, name, rest);
    return cleared;
}

/* Removes all but the newest `keep`, those of every `keep_every`-th step, and the one just saved,
 * which is not the newest in a run that was resumed from an older checkpoint. What cannot be
 * removed stays, with a message: the new one is saved. */
static void thin_out(const open_folder *out, const train_options *o, int64_t saved, int64_t best)
{
    int64_t *steps, count = checkpoint_list(out, &steps);
    if (count < 0) console_notice("cannot list %s: %s", out->path, strerror(errno));
    for (int64_t i = 0; o->keep > 0 && i < count - o->keep; i++) {
        if (steps[i] == saved || (o->keep_best && steps[i] == best) ||
            (o->keep_every > 0 && steps[i] % o->keep_every == 0))
            continue;
        char rest[FOLDER_NAME] = "";
        const gd_text name = checkpoint_name_of(steps[i]);
        if (!folder_remove(out, name.text, CHECKPOINT_REMOVING, checksums_files, rest))
            console_notice("cannot remove %s/%s: %s", out->path, name.text, strerror(errno));
        tell_rest(out, name.text, rest);
    }
    free(steps);
}

/* Whether errno says that the folder in which something was to be made was removed. */
static bool is_gone(void)
{
#ifdef ESTALE
    if (errno == ESTALE) return true; /* NFS says so */
#endif
    return errno == ENOENT;
}

/* Says that a folder is not where the run has found it. */
static void tell_moved(checkpoint *run, const train_options *o)
{
    if (folder_is_there(&run->out) || run->moved) return;
    console_notice("the folder %s was moved: this run saves in it where it is now", o->out);
    run->moved = true;
}

/* Points the link OUT/best at OUT/step-N, if that exists. If it cannot be made, a message says so:
 * the checkpoint itself is saved. */
static void link_best(const open_folder *out, int64_t step)
{
    const gd_text name = checkpoint_name_of(step);
    if (step == 0 || !folder_has(out, name.text) || folder_link(out, "best", name.text)) return;
    console_notice("cannot create the link best in %s: %s", out->path,
                   errno == EEXIST ? "something else has that name" : strerror(errno));
}

void checkpoint_tidy(const checkpoint *run, const train_options *o,
                     const checkpoint_progress *progress)
{
    const gd_text name = checkpoint_name_of(progress->step);
    if (run->lock >= 0 && o->resume && folder_has(&run->out, name.text))
        thin_out(&run->out, o, progress->step, progress->best.step);
}

/* Makes and opens the new folder in --out. */
static gd_status open_saving(gd_context *ctx, const train_options *o, checkpoint *run, saving *to)
{
    const open_folder *out = &run->out;
    for (int attempt = 0; attempt < 2; attempt++) {
        errno = ENOENT;
        if (out->path[0] && checkpoint_clear(out, CHECKPOINT_SAVING) &&
            folder_make(out, CHECKPOINT_SAVING) &&
            folder_enter(&to->folder, out, CHECKPOINT_SAVING)) {
            tell_moved(run, o);
            return GD_OK;
        }
        if (attempt || !is_gone() || !checkpoint_open_again(run, ctx, o)) break;
    }
    return checkpoint_fail(ctx, "make a folder in", o->out);
}

/* Everything but the optimizer's state. */
static gd_status begin_saving(const model *m, const dataset *data, saving *to)
{
    return llama_save(m, to, checkpoint_tokenizer_text(&data->tokenizer).text)
               ? gd_error_status(m->ctx)
               : tokenizer_save(&data->tokenizer, to);
}

/* Reads it again, before an older one may go. */
static gd_status check_saved(gd_context *ctx, saving *to)
{
    bool complete;
    if (checkpoint_check(ctx, &to->folder, true, &complete)) return gd_error_status(ctx);
    if (complete || !FINGERPRINT_IS_XXH3) return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO, "%s does not have all its files and their checksums",
                   to->folder.path);
}

static gd_status complete_saving(gd_context *ctx, const train_options *o,
                                 const checkpoint_progress *progress, const open_folder *out,
                                 saving *to)
{
    char rest[FOLDER_NAME] = "";
    const gd_text name = checkpoint_name_of(progress->step);
    if (saving_end(to) || check_saved(ctx, to)) return gd_error_status(ctx);
    if (!folder_replace(out, CHECKPOINT_SAVING, name.text, checksums_files, rest))
        return gd_fail(ctx, GD_ERROR_IO, "cannot complete %s/%s: %s", out->path, name.text,
                       strerror(errno));
    tell_rest(out, name.text, rest);
    if (o->keep_best) link_best(out, progress->best.step);
    thin_out(out, o, progress->step, progress->best.step);
    return GD_OK;
}

/* Rank 0 does it all; the others send it their slices of the optimizer's state. */
gd_status checkpoint_save(checkpoint *run, const model *m, const dataset *data,
                          const train_options *o, gd_optimizer *optimizer,
                          const checkpoint_progress *progress)
{
    gd_context *ctx = m->ctx;
    saving to = {.ctx = ctx};
    const bool first = gd_group_rank(o->group) == 0;
    if (first && !open_saving(ctx, o, run, &to)) begin_saving(m, data, &to);
    const bool begun = to.folder.path[0];
    if (!save_state(data, o, optimizer, progress, &to) && first)
        complete_saving(ctx, o, progress, &run->out, &to);
    gd_group_agree(o->group);
    if (gd_error(ctx) && begun) checkpoint_clear(&run->out, CHECKPOINT_SAVING);
    folder_close(&to.folder);
    return gd_error_status(ctx);
}
