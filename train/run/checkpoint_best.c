/* checkpoint_best.c - the checkpoint of the best validation (--keep-best). See checkpoint.h. */
#include "checkpoint.h"
#include "console.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void checkpoint_link_best(const open_folder *out, int64_t step)
{
    const checkpoint_name name = checkpoint_name_of(step);
    if (step == 0 || !folder_has(out, name.text) || folder_link(out, "best", name.text)) return;
    console_notice("cannot create the link best in %s: %s", out->path,
                   errno == EEXIST ? "something else has that name" : strerror(errno));
}
