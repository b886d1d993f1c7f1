/* launch_none.c - replaces launch_start.c on a system where a process cannot be copied. */
#include "console.h"
#include "launch_start.h"

launch_role launch_start(train_options *o, int ranks, gd_group_options *member, int *status)
{
    (void)member;
    console_message("--%s %d: there are no runs of several processes on this system",
                    o->gpus > 0 ? "gpus" : "processes", ranks);
    *status = 2;
    return LAUNCH_STARTER;
}
