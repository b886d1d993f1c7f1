/* group_environment.c - the options of a group from the environment variables of launchers. */
#include "gradus/group.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The variables that a launcher sets. */
typedef struct launcher {
    const char *rank, *ranks, *local;
    const char *beside; /* the number of ranks on this host, or NULL */
} launcher;

/* The first one whose `ranks` is set is used. srun sets SLURM_STEP_NUM_TASKS; without it a program
 * is the only process of a batch script, whatever SLURM_NTASKS is. */
static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
};

static const char *value_of(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* Copies a text from the environment, if it is set and not `ignored`; returns whether it was. */
static bool take_text(gd_group_options *o, const char *name, const char *ignored, char text[256])
{
    const char *value = value_of(name);
    if (!value || (ignored && !strcmp(value, ignored))) return false;
    if (snprintf(text, 256, "%s", value) < 256) return true;
    snprintf(o->problem, sizeof o->problem, "%s has %zu bytes, wanted at most 255", name,
             strlen(value));
    return false;
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

/* The first node of a list: node03 of "node[03-07,12],other4". */
static void first_node(const char *list, char host[256])
{
    const size_t name = strcspn(list, "[,");
    size_t number = 0;
    if (list[name] == '[') number = strcspn(list + name + 1, "-,]");
    snprintf(host, 256, "%.*s%.*s", (int)name, list, (int)number, list + name + 1);
}

/* The host of rank 0: MASTER_ADDR, or Slurm's first node. */
static void find_host(gd_group_options *o)
{
    const char *nodes = value_of("SLURM_STEP_NODELIST");
    if (!take_text(o, "MASTER_ADDR", NULL, o->host) && nodes && value_of("SLURM_STEP_NUM_TASKS")) {
        int job = 0;
        first_node(nodes, o->host);
        take_whole(o, "SLURM_JOB_ID", 0, &job);
        o->port = 20000 + job % 10000; /* jobs on the same node need different ports */
    }
}

/* What no other run has. Open MPI's own name comes first: under Slurm it starts the processes of
 * the first host itself, and those of the others as a step. torchrun's is "none" unless it is given
 * one. */
static void find_run(gd_group_options *o, const launcher *from)
{
    const char *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");
    const bool open_mpi = !strncmp(from->rank, "OMPI_", 5);
    if (open_mpi && take_text(o, "PMIX_NAMESPACE", NULL, o->run)) return;
    if (take_text(o, "TORCHELASTIC_RUN_ID", "none", o->run)) return;
    if (job && step)
        snprintf(o->run, sizeof o->run, "%.100s.%.100s", job, step);
    else
        take_text(o, "PMIX_NAMESPACE", NULL, o->run);
}

static void find_hosts(gd_group_options *o, const launcher *from)
{
    int beside = o->ranks, hosts = 1;
    take_whole(o, from->beside, 1, &beside);
    if (!from->beside) take_whole(o, "SLURM_STEP_NUM_NODES", 1, &hosts);
    o->several_hosts = beside < o->ranks || hosts > 1;
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
    find_host(&o);
    find_hosts(&o, from);
    find_run(&o, from);
    take_text(&o, "GRADUS_GROUP_SECRET", NULL, o.secret);
    take_whole(&o, "MASTER_PORT", 1, &o.port);
    /* torchrun itself listens at MASTER_PORT. */
    const char *taken = value_of("TORCHELASTIC_USE_AGENT_STORE");
    if (o.port && taken && !strcmp(taken, "True")) o.port += o.port < 65535 ? 1 : -1;
    return o;
}
