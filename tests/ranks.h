/* ranks.h - the ranks of a group as processes of a test: each runs one function, and leaves its
 * result in shared memory.
 *
 * The file that includes it defines _DEFAULT_SOURCE (MAP_ANONYMOUS, mkdtemp, nanosleep). */
#ifndef GRADUS_TEST_RANKS_H
#define GRADUS_TEST_RANKS_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check_main.h"
#include "own_folder.h"
#include "watched.h"

enum { RANKS_MOST = 5, RANK_NUMBERS = 1 << 16 };

typedef struct outcome {
    bool ended;      /* not by a signal */
    char error[600]; /* of its context; "": none */
    double seconds;  /* that it took */
    int64_t count;
    double number[RANK_NUMBERS];
} outcome;

static outcome *outcomes; /* [RANKS_MOST] */
static double ranks_timeout = 60;
static gd_device ranks_device = GD_CPU;

/* What a rank does. `group` is NULL where it could not be made. */
typedef void rank_body(gd_context *ctx, gd_group *group, int rank, outcome *mine);

static inline double ranks_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A rank sees one GPU, that of its number. */
static inline void rank_sees_its_gpu(int rank)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const char *list = getenv(name);
    char own[128];
    snprintf(own, sizeof own, "%d", rank);
    for (int i = 0; list && i < rank; i++) list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
    if (list) snprintf(own, sizeof own, "%.*s", (int)strcspn(list, ","), list);
    setenv(name, own, 1);
}

static inline void rank_main(gd_group_options o, rank_body *body)
{
    outcome *mine = &outcomes[o.rank];
    const double begun = ranks_now();
    if (ranks_device == GD_CUDA) rank_sees_its_gpu(o.rank);
    gd_context *ctx =
        watched_context((gd_context_options){.device = ranks_device, .threads = 1, .seed = 3});
    gd_group *group = gd_group_create(ctx, &o);
    body(ctx, group, o.rank, mine);
    if (gd_error(ctx)) snprintf(mine->error, sizeof mine->error, "%s", gd_error(ctx));
    mine->seconds = ranks_now() - begun;
    gd_group_free(group);
    gd_context_free(ctx);
    mine->ended = true;
}

/* Ends a forked rank without what the test program does at its end. A build with coverage keeps its
 * counters. */
static inline void ranks_exit(void)
{
#ifdef GRADUS_COVERAGE
    extern void __gcov_dump(void);
    __gcov_dump();
#endif
    _exit(0);
}

/* Makes room for the outcomes, or empties it. */
static inline void ranks_prepare(void)
{
    if (!outcomes) {
        outcomes = mmap(NULL, RANKS_MOST * sizeof *outcomes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(outcomes, MAP_FAILED);
    }
    memset(outcomes, 0, RANKS_MOST * sizeof *outcomes);
}

/* Starts one of them. */
static inline pid_t ranks_start(gd_group_options o, int rank, rank_body *body)
{
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child) return child;
    o.rank = rank;
    rank_main(o, body);
    ranks_exit();
    return 0;
}

static inline void ranks_wait(const pid_t *child, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) waitpid(child[rank], NULL, 0);
}

/* Runs all of a start and waits. */
static inline void ranks_run_as(gd_group_options o, rank_body *body)
{
    pid_t child[RANKS_MOST];
    ranks_prepare();
    for (int rank = 0; rank < o.ranks; rank++) child[rank] = ranks_start(o, rank, body);
    ranks_wait(child, o.ranks);
}

/* The same in a folder that is made for them. */
static inline void ranks_run(int ranks, rank_body *body)
{
    char meeting[] = "/tmp/gradus_ranks_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(meeting));
    ranks_run_as((gd_group_options){.ranks = ranks, .timeout = ranks_timeout, .folder = meeting},
                 body);
    shell("rm -r '%s'", meeting);
}

static inline void ranks_are_well(int ranks)
{
    for (int i = 0; i < ranks; i++) {
        ck_assert_msg(outcomes[i].ended && !outcomes[i].error[0], "rank %d of %d: %s", i, ranks,
                      outcomes[i].error);
    }
}

/* Runs them; all must be well. */
static inline void ranks_run_well(int ranks, rank_body *body)
{
    ranks_run(ranks, body);
    ranks_are_well(ranks);
}

/* The rank ended with an error that contains the words. */
static inline void rank_failed(int rank, const char *words)
{
    const outcome *o = &outcomes[rank];
    ck_assert_msg(o->ended, "rank %d did not end by itself", rank);
    ck_assert_msg(strstr(o->error, words) != NULL, "rank %d says \"%s\", expected \"%s\"", rank,
                  o->error, words);
}

static inline void note(outcome *mine, double number)
{
    if (mine->count < RANK_NUMBERS) mine->number[mine->count++] = number;
}

#endif
