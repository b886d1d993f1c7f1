/* checkpoint_sharded.h - saves and loads an optimizer's state, whose slices may be distributed over
 * the ranks of a group. Each rank then writes its slices into the one file and reads its slices
 * from it; the file can be read with any number of ranks. */
#ifndef GRADUS_TRAIN_CHECKPOINT_SHARED_H
#define GRADUS_TRAIN_CHECKPOINT_SHARED_H

#include "llama.h"
#include "saving.h"

/* Writes the optimizer's states, under names like "m.model.norm.weight". A `sharded` state
 * gets only the names and the shapes, with room for the elements. */
gd_status checkpoint_save_state(const model *m, gd_optimizer *optimizer, saving *to,
                                const gd_named_text *texts, int64_t text_count, bool sharded);

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
