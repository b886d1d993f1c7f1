/* group.h - a group from inside: group.c keeps the lines between hosts, group_wire.c moves bytes
 * over sockets, a transport does the collectives: group_cpu.c or group_cuda.c. */
#ifndef GRADUS_GROUP_INTERNAL_H
#define GRADUS_GROUP_INTERNAL_H

#include "core.h"

enum { GD_GROUP_MOST = 1024 }; /* ranks: rank 0 has a socket for each */

/* Collectives on packed device memory. On a GPU they run on a stream of their own: what is asked for
 * after `fork` sees all that the context was asked for before it, and what the context is asked for
 * after `join` sees all of theirs. Errors are the context's. */
typedef struct gd_transport {
    gd_status (*open)(gd_group *group);
    void (*close)(gd_group *group);
    void (*give_up)(gd_group *group); /* the group is over: nothing may go on waiting; or NULL */
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
    const char *who; /* the call that runs, for messages */
    int listener;    /* rank 0's, while it waits for the others; -1 */
    int *line;   /* [ranks] rank 0: a socket to each other; else [0] alone, to rank 0; -1: none */
    bool broken; /* why is the context's error, and was told to the others */
    const gd_transport *transport;
    void *state; /* the transport's */
};

/* ---- Sockets (group_wire.c) -------------------------------------------------------------- */

double gd_wire_now(void); /* seconds, from any moment on */

/* Whole messages. False where the other end is gone or silent until the deadline: gd_wire_why has a
 * word for either. */
bool gd_wire_send(int wire, const void *data, size_t bytes, double deadline);
bool gd_wire_receive(int wire, void *data, size_t bytes, double deadline);
const char *gd_wire_why(void);

/* Waits until one of `count` wires can be read, or the deadline; -1 are none. Sets ready[count]. */
bool gd_wire_wait(const int *wires, int count, double deadline, bool *ready);

/* Whether so many bytes are there to be read, and a look at them. */
typedef enum gd_wire_look { GD_WIRE_WHOLE, GD_WIRE_PART, GD_WIRE_GONE } gd_wire_look;
gd_wire_look gd_wire_peek(int wire, void *data, size_t bytes);

void gd_wire_nap(void); /* for some milliseconds */
void gd_wire_close(int *wire);

/* Closes them so that what was sent arrives: what has not been read would take it along. */
void gd_wire_hang_up(int *wires, int count);

/* Meets all ranks: opens the lines. */
gd_status gd_wire_meet(gd_group *group);

/* A socket to every other rank besides, peers[ranks], for a transport. */
gd_status gd_wire_mesh(gd_group *group, int *peers);

/* ---- Words between hosts (group.c) -------------------------------------------------------- */

/* The group is over, since `rank` did not do its part: sets the error, "reduce_scatter: rank 2 is
 * gone", and tells the others. */
gd_status gd_group_break(gd_group *group, int rank, const char *why);

/* Looks whether a rank has said why it leaves, or is gone without a word, for as long as `seconds`;
 * then breaks the group and returns the error. Words that belong to a call wait for it. */
gd_status gd_group_listen(gd_group *group, double seconds);

/* The call `who` begins; GD_OK where it can. */
gd_status gd_group_begin(gd_group *group, const char *who);

/* gd_group_gather within another call. */
gd_status gd_group_collect(gd_group *group, const void *mine, size_t bytes, void *all);

/* Everybody gets rank 0's. */
gd_status gd_group_hand_out(gd_group *group, void *data, size_t bytes);

/* Rank 0 says to those who wait for it that it waits, too: it is not the one who is silent. */
void gd_group_still(gd_group *group);

#endif
