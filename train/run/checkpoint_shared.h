/* checkpoint_shared.h - the optimizer's state where every rank of a group has some slices of it: each
 * writes its own into the one file, and reads its own from it, whatever the number of ranks was. */
#ifndef GRADUS_TRAIN_CHECKPOINT_SHARED_H
#define GRADUS_TRAIN_CHECKPOINT_SHARED_H

#include "llama.h"

/* The state `index` of the optimizer, of weight w, under its name in the file, "m.<weight>". */
typedef struct state_name {
    char text[96];
} state_name;
state_name checkpoint_state_name(const gd_optimizer *adamw, int index, const llama_weight *w);

/* Rank 0: the file with all names and no elements yet. */
gd_status checkpoint_shared_reserve(const model *m, gd_optimizer *adamw, const char *path,
                                    const gd_named_text *texts, int64_t text_count);

/* Writes this rank's elements into the file, and has them on the disk. */
gd_status checkpoint_shared_write(const model *m, gd_optimizer *adamw, const char *path);

/* Reads this rank's elements. A state that the file lacks is an error, but for the masters. */
gd_status checkpoint_shared_read(const model *m, gd_optimizer *adamw, const gd_safetensors *file);

/* Masters that begin with what lies in `all`, a block of all parameters. */
gd_status checkpoint_shared_masters(const model *m, gd_tensor *masters, gd_tensor *all);

/* Ends in the same way on all ranks: the first error becomes that of all. */
gd_status checkpoint_agree(gd_context *ctx, gd_group *group);

#endif
