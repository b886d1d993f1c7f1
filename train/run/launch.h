/* launch.h - the processes of a run on several devices, started by --gpus or --processes, or by
 * torchrun, mpirun or Slurm. */
#ifndef GRADUS_TRAIN_LAUNCH_H
#define GRADUS_TRAIN_LAUNCH_H

#include "data.h"
#include "train_options.h"

/* The role of this process. If `o` asks for several processes, launch starts them: it returns in
 * each of them with its rank in o->member; in the parent it waits until all have ended, forwards
 * signals, and sets *status to that of the first that failed. */
typedef enum launch_role {
    LAUNCH_MEMBER, /* trains, alone (ranks 1) or as one of several */
    LAUNCH_STARTER /* does not train: exit with *status */
} launch_role;
launch_role launch(train_options *o, int *status);

/* The reasons to end a run before its last step, as bits, ORed over all ranks: the third is that a
 * rank cannot read the batches of the next step. A collective call. */
enum { VOTE_TIME = 1, VOTE_SIGNAL = 2, VOTE_UNREADABLE = 4 };
int launch_vote(const train_options *o, int own);

/* Checks that this rank has the same options as rank 0 and, with `data`, has read the same texts
 * and begins with the same model in `folder` ("": none); waits for the others. The error names the
 * first difference. */
gd_status launch_compare(const train_options *o, gd_context *ctx, const dataset *data,
                         const char *folder);

#endif
