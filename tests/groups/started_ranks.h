/* started_ranks.h - ranks that others than gradus-train start, as torchrun does.
 *
 * The file that includes it defines _XOPEN_SOURCE 700, as for runs.h. */
#ifndef GRADUS_TEST_STARTED_RANKS_H
#define GRADUS_TEST_STARTED_RANKS_H

#include "port.h"
#include "runs.h"

enum { RANKS = 3 };

typedef struct ranks {
    int port, reserved;
    const char *environment; /* NULL: an id and a secret of their own */
    const char *inside;      /* a folder within that of the test, or NULL */
    pid_t pid[RANKS];
} ranks;

static inline ranks new_ranks(void)
{
    ranks all = {0};
    all.reserved = port_reserve(&all.port);
    return all;
}

/* Starts a rank as torchrun does; rank r writes to the files out.r and err.r. */
static inline void begin_rank(ranks *all, int rank, const char *arguments)
{
    char line[1024], command[2048], id[128];
    snprintf(line, sizeof line, arguments, small);
    snprintf(id, sizeof id, "TORCHELASTIC_RUN_ID=test-%d GRADUS_GROUP_SECRET=test-%d",
             (int)getpid(), all->port);
    snprintf(command, sizeof command,
             "cd '%s/%s' && RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=%d %s exec '%s' %s >'%s/out.%d' 2>'%s/err.%d'",
             folder, all->inside ? all->inside : ".", rank, RANKS, rank, all->port,
             all->environment ? all->environment : id, (const char *)GRADUS_PROGRAM, line, folder,
             rank, folder, rank);
    all->pid[rank] = fork();
    if (all->pid[rank] == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

static inline ranks begin_ranks(const char *arguments)
{
    ranks all = new_ranks();
    for (int r = 0; r < RANKS; r++) begin_rank(&all, r, arguments);
    return all;
}

static inline int end_of(ranks *all, int rank)
{
    int status;
    ck_assert_int_eq(waitpid(all->pid[rank], &status, 0), all->pid[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
