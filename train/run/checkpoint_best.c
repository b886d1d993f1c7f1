/* checkpoint_best.c - the checkpoint of the best validation (--keep-best). See checkpoint.h. */
#define _POSIX_C_SOURCE 200809L /* symlink */
#include "checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

checkpoint_best checkpoint_read_best(const checkpoint *from)
{
    const char *step = from->state ? gd_safetensors_metadata(from->state, "best_step") : NULL;
    const char *loss = from->state ? gd_safetensors_metadata(from->state, "best_loss") : NULL;
    char *end = NULL;
    if (!step || !loss) return (checkpoint_best){0};
    checkpoint_best best = {.step = strtoll(step, &end, 10), .loss = strtod(loss, NULL)};
    const bool sound = end != step && !*end && best.step > 0 && isfinite(best.loss);
    return sound ? best : (checkpoint_best){0};
}

/* A new link is renamed over the old one, so that there always is one. */
gd_status checkpoint_link_best(gd_context *ctx, const char *out, int64_t step)
{
    char path[FOLDER_PATH], link[FOLDER_PATH], fresh[FOLDER_PATH];
    if (step == 0 || !checkpoint_path(path, out, step) || !folder_has(path)) return GD_OK;
    const bool linked = folder_join(link, out, "best") && folder_join(fresh, out, ".best") &&
                        (!unlink(fresh) || errno == ENOENT) &&
                        !symlink(strrchr(path, '/') + 1, fresh) && !rename(fresh, link) &&
                        folder_flush(out);
    if (linked) return GD_OK;
    return gd_fail(ctx, GD_ERROR_IO, "cannot create the link best in %s: %s", out, strerror(errno));
}
