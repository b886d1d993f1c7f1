/* launch_start.h - starts the processes of a run. */
#ifndef GRADUS_TRAIN_LAUNCH_START_H
#define GRADUS_TRAIN_LAUNCH_START_H

#include "launch.h"

/* Starts `ranks` processes: returns in each of them with its rank in *member, and in this one when
 * all have ended, with *status, as launch does. */
launch_role launch_start(train_options *o, int ranks, gd_group_options *member, int *status);

#endif
