/* launch.h - the processes of a run on several devices: those that --gpus or --processes starts, and
 * those that torchrun, mpirun or Slurm has started. */
#ifndef GRADUS_TRAIN_LAUNCH_H
#define GRADUS_TRAIN_LAUNCH_H

#include "train_options.h"

/* What this process is. Where `o` asks for several, it starts them: each returns from here as one of
 * them, with its place in o->member; the one that started them waits until all have ended, passes
 * signals on, and leaves the status of the first that failed in *status. */
typedef enum launch_role {
    LAUNCH_MEMBER, /* to train: alone (ranks 1), or as one of several */
    LAUNCH_STARTER /* all is over: exit with *status */
} launch_role;
launch_role launch(train_options *o, int *status);

/* Why a run ends before its last step, in bits; what any rank says is every rank's. All must ask. */
enum { VOTE_TIME = 1, VOTE_SIGNAL = 2 };
int launch_vote(const train_options *o, bool time, bool signal);

/* All ranks run with the same options, on the same text. An error that names the first that does not,
 * and the option. */
gd_status launch_compare(const train_options *o, gd_context *ctx, uint64_t text_hash);

#endif
