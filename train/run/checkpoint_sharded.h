/* checkpoint_sharded.h - saves and loads an optimizer's state whose slices are distributed over the
 * ranks of a group. Each rank writes its slices into the one file and reads its slices from it; the
 * file can be read with any number of ranks. */
#ifndef GRADUS_TRAIN_CHECKPOINT_SHARED_H
#define GRADUS_TRAIN_CHECKPOINT_SHARED_H

#include "llama.h"
#include "saving.h"

/* The name in the file of the optimizer's state `index` for weight w, such as "m.<weight>". */
typedef struct state_name {
    char text[96];
} state_name;
state_name checkpoint_state_name(const gd_optimizer *optimizer, int index, const llama_weight *w);

/* Rank 0: creates the file, with all names and with room for the elements. */
gd_status checkpoint_sharded_reserve(const model *m, gd_optimizer *optimizer, saving *to,
                                     const gd_named_text *texts, int64_t text_count);

/* Writes this rank's elements into the file, and syncs it to disk. */
gd_status checkpoint_sharded_write(const model *m, gd_optimizer *optimizer, open_folder *in);

/* Reads this rank's elements. A state that is missing in the file is an error, except for
 * masters. */
gd_status checkpoint_sharded_read(const model *m, gd_optimizer *optimizer,
                                  const gd_safetensors *file);

/* Initializes this rank's masters from `all`, a block of all parameters. */
gd_status checkpoint_sharded_masters(const model *m, gd_tensor *masters, gd_tensor *all);

/* Makes the result the same on all ranks: if any rank has an error, all get that of the first. */
gd_status checkpoint_agree(gd_context *ctx, gd_group *group);

#endif
