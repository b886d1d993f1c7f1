/* checkpoint_find.c - finding the folder of a model, or the newest whole checkpoint of a run. See
 * checkpoint.h. */
#include "checkpoint_parts.h"
#include "checksums.h"
#include "console.h"
#include "llama.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gd_text checkpoint_name_of(int64_t step)
{
    return gd_format(CHECKPOINT_PREFIX "%08lld", (long long)step);
}

int64_t checkpoint_list(const open_folder *out, int64_t **steps)
{
    return folder_list(out, CHECKPOINT_PREFIX, steps);
}

/* ---- One checkpoint ------------------------------------------------------------------------- */

/* Opens a safetensors file to check that it is whole. One that is not needed may be absent. */
static gd_status check_file(gd_context *ctx, open_folder *files, const char *name, bool needed)
{
    if (!gd_error(ctx) && (needed || folder_has(files, name)))
        gd_safetensors_close(llama_open_file(ctx, files, name));
    return gd_error_status(ctx);
}

/* One that was copied by hand may lack its state, which only --resume needs. */
gd_status checkpoint_check(gd_context *ctx, open_folder *files, bool resume, bool *complete)
{
    model_config config;
    if (complete) *complete = false;
    if (llama_read_config(ctx, files, &config)) return gd_error_status(ctx);
    check_file(ctx, files, "model.safetensors", true);
    check_file(ctx, files, CHECKPOINT_STATE, resume);
    return checksums_verify(ctx, files, complete);
}

/* Whether the contents are the reason why the check has failed, and not what it took to read them.
 * Files that are all as they were written cannot be. The error stays. */
static bool is_damaged(gd_context *ctx, open_folder *files)
{
    char why[1024];
    bool complete = false;
    const gd_status status = gd_error_status(ctx);
    if (files->trouble || status != GD_ERROR_IO) return false;
    snprintf(why, sizeof why, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    checksums_verify(ctx, files, &complete);
    const bool unreadable = files->trouble || gd_error_status(ctx) == GD_ERROR_MEMORY;
    gd_error_clear(ctx);
    gd_fail(ctx, status, "%s", why);
    return !complete && !unreadable;
}

/* ---- The newest ----------------------------------------------------------------------------- */

typedef enum found { FOUND, FOUND_NONE, FOUND_GONE, FOUND_ERROR } found;

/* Opens and checks one checkpoint. FOUND_NONE: its contents are wrong, and a message says so;
 * FOUND_GONE: another process has removed it meanwhile. */
static found try_one(gd_context *ctx, const open_folder *out, int64_t step, bool resume,
                     open_folder *files)
{
    const gd_text name = checkpoint_name_of(step);
    if (!folder_enter(files, out, name.text)) {
        if (errno == ENOENT) return FOUND_GONE;
        if (errno == ENOTDIR) {
            console_message("%s/%s is skipped: it is not a folder", out->path, name.text);
            return FOUND_NONE;
        }
        gd_fail(ctx, GD_ERROR_IO, "cannot open %s/%s: %s", out->path, name.text,
                errno == ELOOP ? "it is a link, which is only followed if you name it yourself"
                               : strerror(errno));
        return FOUND_ERROR;
    }
    folder_hold(files, checksums_files);
    if (!folder_is_there(files)) {
        folder_close(files);
        return FOUND_GONE;
    }
    if (!checkpoint_check(ctx, files, resume, NULL)) return FOUND;
    const bool damaged = is_damaged(ctx, files);
    if (damaged) console_message("%s/%s is skipped: %s", out->path, name.text, gd_error(ctx));
    if (damaged) gd_error_clear(ctx);
    folder_close(files);
    return damaged ? FOUND_NONE : FOUND_ERROR;
}

/* Goes back from the newest. *count: how many there are. */
static found try_all(gd_context *ctx, const open_folder *out, bool resume, open_folder *files,
                     int64_t *count)
{
    int64_t *steps;
    *count = checkpoint_list(out, &steps);
    found now = FOUND_NONE;
    if (*count < 0) {
        gd_fail(ctx, GD_ERROR_IO, "cannot list %s: %s", out->path, strerror(errno));
        now = FOUND_ERROR;
    }
    for (int64_t i = *count; i > 0 && now == FOUND_NONE; i--)
        now = try_one(ctx, out, steps[i - 1], resume, files);
    free(steps);
    return now;
}

/* A run may remove its old checkpoints while this looks for the newest: then it looks again. */
static gd_status find_newest(gd_context *ctx, const open_folder *out, bool resume,
                             open_folder *files, int64_t *count)
{
    found now = FOUND_GONE;
    for (int i = 0; i < 1000 && now == FOUND_GONE; i++)
        now = try_all(ctx, out, resume, files, count);
    if (now == FOUND_GONE)
        gd_fail(ctx, GD_ERROR_IO, "%s: its checkpoints are removed faster than they can be opened",
                out->path);
    return gd_error_status(ctx);
}

static gd_status refuse_open(gd_context *ctx, const char *option, const char *path)
{
    return gd_fail(ctx, GD_ERROR_IO, "%s %s: %s", option, path, strerror(errno));
}

gd_status checkpoint_newest(gd_context *ctx, const char *out, open_folder *files)
{
    open_folder run;
    int64_t count = 0;
    *files = (open_folder){0};
    if (!folder_open(&run, out, false))
        return errno == ENOENT ? GD_OK : refuse_open(ctx, "--out", out);
    find_newest(ctx, &run, true, files, &count);
    folder_close(&run);
    if (count > 0 && !files->path[0]) {
        gd_fail(ctx, GD_ERROR_IO,
                "--resume auto: none of the %lld checkpoints in %s can be used; nothing was "
                "changed; use another --out for a new run",
                (long long)count, out);
    }
    return gd_error_status(ctx);
}

gd_status checkpoint_find(gd_context *ctx, const char *option, const char *path, bool resume,
                          open_folder *files)
{
    open_folder run;
    int64_t count = 0;
    *files = (open_folder){0};
    if (!folder_open(&run, path, !resume)) return refuse_open(ctx, option, path);
    if (folder_has(&run, "config.json")) {
        *files = run;
        folder_hold(files, checksums_files);
        return checksums_verify(ctx, files, NULL);
    }
    find_newest(ctx, &run, resume, files, &count);
    const char *other = llama_other_model(&run);
    folder_close(&run);
    if (files->path[0]) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO,
                   "%s %s: it has neither a model (config.json) nor a complete checkpoint "
                   "(step-N)%s%s%s",
                   option, path, other ? ", only " : "", other ? other : "",
                   other ? ", which cannot be read" : "");
}
