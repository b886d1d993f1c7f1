/* group.h - the internals of a group: group_messages.c handles messages between hosts over the sockets
 * of platform/socket.h, group_gate.c keeps strangers out, group_rendezvous.c connects the ranks, a
 * transport (group_cpu.c or group_cuda.c) does the collectives, group.c has the calls. None calls what
 * comes after it. */
#ifndef GRADUS_GROUP_INTERNAL_H
#define GRADUS_GROUP_INTERNAL_H

#include "core/core.h"

enum { GD_GROUP_MOST = 1024 }; /* ranks; rank 0 has a socket for each */

/* Collectives on packed device memory. On a GPU they run on a stream of their own: collectives
 * after `fork` wait for everything queued on the context before it, and work queued on the context
 * after `join` waits for all collectives before it. Errors are set on the context. */
typedef struct gd_transport {
    gd_status (*open)(gd_group *group);
    void (*close)(gd_group *group);
    void (*abort)(gd_group *group); /* the group has failed: stop all waiting; may be NULL */
    gd_status (*fork)(gd_group *group);
    gd_status (*join)(gd_group *group);
    gd_status (*broadcast)(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root);
    gd_status (*reduce_scatter)(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean);
    gd_status (*all_gather)(gd_group *group, void *data, gd_dtype dtype, int64_t n);
    gd_status (*all_reduce)(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean);
} gd_transport;

extern const gd_transport gd_transport_cpu, gd_transport_cuda;

struct gd_group {
    gd_context *ctx;
    gd_group_options options;
    int rank, ranks;
    double timeout;
    const char *who; /* the current call, for messages */
    int listener;    /* rank 0's, while the others connect; else -1 */
    /* The control connections: of rank 0 a socket to each rank; of others only [0], to rank 0; -1: none. */
    int *control;          /* [ranks] */
    double *last_received; /* [ranks] when something last came on it; -infinity: never */
    bool aborted;          /* the reason is the context's error, and was sent to the others */
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

/* ---- Connecting all ranks (group_rendezvous.c) --------------------------------------------- */

/* Opens the control connections. Connections of strangers are closed. */
gd_status gd_rendezvous_meet(gd_group *group);

/* Opens an additional socket to every other rank, peers[ranks], for a transport. */
gd_status gd_rendezvous_mesh(gd_group *group, int *peers);

enum { GD_HMAC_BYTES = 32 };

/* HMAC-SHA256 of data[bytes] (group_hmac.c). `digest` may not overlap `data`. */
void gd_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t digest[GD_HMAC_BYTES]);

/* ---- Messages between hosts (group_messages.c) -------------------------------------------- */

/* Ends the group because `rank` failed: sets the error, "reduce_scatter: rank 2 is gone", and sends
 * it to the others. */
gd_status gd_group_abort(gd_group *group, int rank, const char *why);

/* Tells the others that this rank leaves the group, and its error if there is one. */
void gd_group_leave(gd_group *group);

/* Waits up to `seconds` for a rank to report a failure or to disappear; if one does, ends the group
 * and returns the error. Messages that belong to a call are left for that call. */
gd_status gd_group_poll(gd_group *group, double seconds);

/* gd_group_all_gather_bytes as part of another call. */
gd_status gd_group_all_gather_within(gd_group *group, const void *mine, size_t bytes, void *all);

/* Sends rank 0's data to all ranks. */
gd_status gd_group_broadcast_within(gd_group *group, void *data, size_t bytes);

/* Sends a heartbeat on the control connections: this rank is itself waiting. */
void gd_group_heartbeat(gd_group *group);

/* For a rank that has waited since the moment `since`: sends a heartbeat at *beat, four times in the
 * timeout, and returns until when to wait. */
double gd_group_keep_alive(gd_group *group, double since, double *beat);

/* The rank to blame if none of those that are missing has moved since then: the first that has sent
 * no heartbeat either. -1: nobody yet, or rank 0, which receives the heartbeats of all, will report it. */
int gd_group_find_silent(const gd_group *group, const bool *missing, double since);

/* ---- Calls (group.c) ---------------------------------------------------------------------- */

/* Notes that the call `who` begins. An error if the context or the group has one. */
gd_status gd_group_begin(gd_group *group, const char *who);

#endif
