/* checkpoint_find.c - finding the folder of a model, or the newest complete checkpoint of a run.
 * See checkpoint.h. */
#include "checkpoint.h"
#include "checksums.h"
#include "console.h"
#include "llama.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "step-";

bool checkpoint_path(char path[FOLDER_PATH], const char *out, int64_t step)
{
    char name[32];
    snprintf(name, sizeof name, "%s%08lld", prefix, (long long)step);
    return folder_join(path, out, name);
}

int64_t checkpoint_list(const char *out, int64_t **steps)
{
    return folder_list(out, prefix, steps);
}

/* Opens a safetensors file to check that it is whole. One that is not needed may be absent. */
static gd_status check_file(gd_context *ctx, const char *folder, const char *name, bool needed)
{
    char path[FOLDER_PATH];
    if (gd_error(ctx)) return gd_error_status(ctx);
    if (!folder_join(path, folder, name)) {
        return gd_fail(ctx, GD_ERROR_IO, "cannot open %s in %s: %s", name, folder, strerror(errno));
    }
    if (needed || folder_has(path)) gd_safetensors_close(gd_safetensors_open(ctx, path));
    return gd_error_status(ctx);
}

/* One that was copied by hand may lack its state, which only --resume needs. */
static gd_status check_whole(gd_context *ctx, const char *folder, bool resume)
{
    model_config config;
    if (llama_read_config(ctx, folder, &config)) return gd_error_status(ctx);
    check_file(ctx, folder, "model.safetensors", true);
    check_file(ctx, folder, CHECKPOINT_STATE, resume);
    return checksums_verify(ctx, folder);
}

/* Goes back from the newest, with a message for each one skipped; "" if none is whole. A build that
 * cannot read any stops at the first. */
static void find_newest(gd_context *ctx, const char *out, const int64_t *steps, int64_t count,
                        bool resume, char folder[FOLDER_PATH])
{
    while (count-- > 0) {
        if (checkpoint_path(folder, out, steps[count]) && !check_whole(ctx, folder, resume)) return;
        if (gd_error_status(ctx) == GD_ERROR_UNSUPPORTED) return;
        console_message("%s is skipped: %s", folder,
                        gd_error(ctx) ? gd_error(ctx) : strerror(errno));
        gd_error_clear(ctx);
    }
    folder[0] = '\0';
}

gd_status checkpoint_newest(gd_context *ctx, const char *out, char folder[FOLDER_PATH])
{
    int64_t *steps, count = checkpoint_list(out, &steps);
    folder[0] = '\0';
    if (count < 0 && errno != ENOENT) {
        return gd_fail(ctx, GD_ERROR_IO, "cannot list %s: %s", out, strerror(errno));
    }
    find_newest(ctx, out, steps, count, true, folder);
    free(steps);
    if (count > 0 && !folder[0]) {
        return gd_fail(ctx, GD_ERROR_IO,
                       "--resume auto: none of the %lld checkpoints in %s can be used; nothing was "
                       "changed; use another --out for a new run",
                       (long long)count, out);
    }
    return gd_error_status(ctx);
}

gd_status checkpoint_find(gd_context *ctx, const char *option, const char *path, bool resume,
                          char folder[FOLDER_PATH])
{
    char config[FOLDER_PATH];
    int64_t *steps, count = checkpoint_list(path, &steps);
    if (count < 0 || !folder_copy(folder, path) || !folder_join(config, path, "config.json")) {
        free(steps);
        return gd_fail(ctx, GD_ERROR_IO, "%s %s: %s", option, path, strerror(errno));
    }
    if (folder_has(config))
        checksums_verify(ctx, path);
    else
        find_newest(ctx, path, steps, count, resume, folder);
    free(steps);
    if (folder[0]) return gd_error_status(ctx);
    return gd_fail(ctx, GD_ERROR_IO,
                   "%s %s: it has neither a model (config.json) nor a complete checkpoint (step-N)",
                   option, path);
}
