/* group.h - the internals of a group: group_files.c has the files of its folder, by which its ranks
 * learn of each other's end (group_watch.c) and meet (group_meet.c), a transport (group_cpu.c or
 * group_cuda.c) does the collectives, group.c has the calls. None calls what comes after it. */
#ifndef GRADUS_GROUP_INTERNAL_H
#define GRADUS_GROUP_INTERNAL_H

#include "core/core.h"
#include "platform/process.h"

enum { GD_GROUP_MOST = 1024, GD_GROUP_NUMBER = 16, GD_GROUP_ID = 256 };

/* Collectives on packed device memory. On a GPU they run on a stream of their own: collectives
 * after `fork` wait for everything queued on the context before it, and work queued on the context
 * after `join` waits for all collectives before it. Errors are set on the context. */
typedef struct gd_transport {
    /* Rank 0, before the ranks meet: fills group->id, which all then have; may be NULL. */
    gd_status (*prepare)(gd_group *group);
    gd_status (*open)(gd_group *group);
    void (*close)(gd_group *group);
    void (*abort)(gd_group *group); /* the group has failed: stop all waiting; may be NULL */
    /* Whether the rank has not come to the collective for which this one waits; NULL: unknown. */
    bool (*is_missing)(const gd_group *group, int rank);
    gd_status (*fork)(gd_group *group);
    gd_status (*join)(gd_group *group);
    gd_status (*broadcast)(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root);
    gd_status (*reduce_scatter)(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean);
    gd_status (*all_gather)(gd_group *group, void *data, gd_dtype dtype, int64_t n);
    gd_status (*all_reduce)(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean);
    /* Bytes of the host: those of all ranks, or with `first` only rank 0's, to `all`. */
    gd_status (*all_gather_bytes)(gd_group *group, const void *mine, size_t bytes, void *all,
                                  bool first);
} gd_transport;

extern const gd_transport gd_transport_cpu, gd_transport_cuda;

/* The file of another rank. */
typedef struct gd_peer {
    int file;     /* -1: not seen yet */
    bool locks;   /* its lock was seen, so it shows whether the rank lives */
    int64_t beat; /* of its file */
    double moved; /* when that changed */
} gd_peer;

struct gd_group {
    gd_context *ctx;
    int rank, ranks;
    double timeout;
    const char *who;                /* the current call, for messages */
    int folder, file;               /* the opened folder, and this rank's file in it; -1: none */
    unsigned owner, mode;           /* of that file, and so of the others */
    uint8_t start[GD_GROUP_NUMBER]; /* the number of this start, which rank 0 has drawn */
    char id[GD_GROUP_ID];           /* the transport's */
    char host[GD_OS_HOST];
    bool several_hosts; /* which ranks are on */
    gd_peer *peers;     /* [ranks] */
    double look, beat;  /* when to look at the peers' files, and to change this rank's */
    double waiting;     /* since when the rank waits that has last looked */
    bool aborted;       /* the reason is the context's error, and in this rank's file */
    const gd_transport *transport;
    void *state; /* the transport's */
};

/* Elements of each rank's slice of n; what remains belongs to the last rank, too. */
static inline int64_t gd_slice_length(int64_t n, int ranks)
{
    return n / ranks / 16 * 16;
}

/* Elements [begin, end) of n are a rank's slice. */
static inline void gd_slice_of(int64_t n, int ranks, int rank, int64_t *begin, int64_t *end)
{
    const int64_t each = gd_slice_length(n, ranks);
    *begin = rank * each;
    *end = rank == ranks - 1 ? n : *begin + each;
}

/* ---- Meeting (group_meet.c) ---------------------------------------------------------------- */

/* Waits until all ranks are there, and have the same group->start and group->id. */
gd_status gd_group_meet(gd_group *group, const char *folder);

/* ---- The end of ranks, while this one waits (group_watch.c) ------------------------------- */

/* For a rank that has waited since a moment: looks, if it is time, whether another rank reports a
 * failure, is gone, or is silent for longer than the timeout. If so, ends the group and returns the
 * error. */
gd_status gd_group_look(gd_group *group, double since);

/* Ends the group because `rank` failed: sets the error, "reduce_scatter: rank 2 is gone", and
 * leaves it in this rank's file. */
gd_status gd_group_abort(gd_group *group, int rank, const char *why);

/* Writes that this rank leaves, and whether with an error. */
void gd_group_leave(gd_group *group);

/* Closes the files, after which this rank is gone for the others. */
void gd_group_close(gd_group *group);

/* What a rank does in a collective, by which ranks that make different calls notice it. */
typedef struct gd_group_call {
    uint64_t bytes;
    uint32_t number; /* of the call so far */
    char name[20];
} gd_group_call;

gd_group_call gd_group_call_of(const gd_group *group, uint64_t bytes, uint32_t number);

/* Ends the group if another rank is in another call. */
gd_status gd_group_compare(gd_group *group, int rank, const gd_group_call *ours,
                           const gd_group_call *theirs);

/* ---- Calls (group.c) ---------------------------------------------------------------------- */

/* Notes that the call `who` begins. An error if the context or the group has one. */
gd_status gd_group_begin(gd_group *group, const char *who);

#endif
