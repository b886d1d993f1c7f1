/* group_environment.c - the options of a group from the environment variables of launchers. */
#include "gradus/group.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* The variables that a launcher sets. */
typedef struct launcher {
    const char *rank, *ranks, *local;
} launcher;

/* The first one whose `ranks` is set is used. srun sets SLURM_STEP_NUM_TASKS; without it a program
 * is the only process of a batch script, whatever SLURM_NTASKS is. */
static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

static const char *value_of(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* Reads a whole number from the environment, if it is set. */
static void take_whole(gd_group_options *o, const char *name, int low, int *whole)
{
    const char *value = value_of(name);
    char *end = NULL;
    if (!value) return;
    errno = 0;
    const long number = strtol(value, &end, 10);
    if (*end || errno || number < low || number > INT_MAX) {
        snprintf(o->problem, sizeof o->problem,
                 "%s is \"%.100s\", wanted a whole number of at "
                 "least %d",
                 name, value, low);
        return;
    }
    *whole = (int)number;
}

gd_group_options gd_group_environment(void)
{
    gd_group_options o = {.ranks = 1};
    const launcher *from = NULL;
    for (size_t i = 0; !from && i < sizeof launchers / sizeof *launchers; i++) {
        if (value_of(launchers[i].ranks)) from = &launchers[i];
    }
    if (!from) return o;
    if (!value_of(from->rank)) {
        snprintf(o.problem, sizeof o.problem, "%s is set, but %s is not", from->ranks, from->rank);
        return o;
    }
    take_whole(&o, from->ranks, 1, &o.ranks);
    take_whole(&o, from->rank, 0, &o.rank);
    o.local_rank = o.rank; /* the default, right on a single host */
    take_whole(&o, from->local, 0, &o.local_rank);
    return o;
}
