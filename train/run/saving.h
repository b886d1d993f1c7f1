/* saving.h - files written into a folder that is new, with checksums of what was meant to be
 * written: computed in memory, so that comparing them with the files (checksums_verify) finds what
 * went wrong on the way to the disk. */
#ifndef GRADUS_TRAIN_SAVING_H
#define GRADUS_TRAIN_SAVING_H

#include "checksums.h"
#include "folder.h"

typedef struct saving {
    gd_context *ctx;
    open_folder folder;
    char checksums[CHECKSUMS_BYTES]; /* the list of those so far, `used` bytes */
    size_t used;
} saving;

/* Each writes one file and waits until it is on the disk. There must be none of that name. */
gd_status saving_text(saving *to, const char *name, const char *text);
gd_status saving_tensors(saving *to, const char *name, const gd_named_tensor *tensors,
                         int64_t tensor_count, const gd_named_text *texts, int64_t text_count);
/* The states of an optimizer, which all ranks save together, also after an error; the first one
 * writes them. */
gd_status saving_states(saving *to, const char *name, const gd_optimizer *optimizer,
                        const gd_named_text *texts, int64_t text_count, bool first);

/* Writes the list of checksums, and waits until the folder is on the disk. */
gd_status saving_end(saving *to);

#endif
