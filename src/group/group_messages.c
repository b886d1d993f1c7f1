/* group_messages.c - messages between hosts.
 *
 * Every rank has a control connection to rank 0. A message is a header and some bytes.
 * In normal operation the messages are those of gathers: every rank sends its data, and rank 0
 * sends all of it back. A rank that fails sends the reason to rank 0; rank 0 forwards this, or the
 * fact that a connection was closed, to all other ranks. So every rank reports the first cause, in
 * whichever call it waits. */
#include "group/group.h"
#include "platform/clock.h"
#include "platform/socket.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum message_kind {
    MESSAGE_GATHER,    /* a rank's data for a gather */
    MESSAGE_BROADCAST, /* from rank 0: the result of the gather */
    MESSAGE_HEARTBEAT, /* from rank 0: it is alive and waits for other ranks */
    MESSAGE_ABORT,     /* the group has failed; the reason as text */
    MESSAGE_LEAVE      /* the rank is done, without an error */
} message_kind;

typedef struct message {
    int32_t kind;
    uint64_t bytes;
    char call[32];
} message;

enum { WHY = 600 };

/* ---- When it is over ------------------------------------------------------------------------ */

/* Sends the reason to all ranks with an open connection; NULL: no error. */
static void send_reason(gd_group *group, const char *text)
{
    const double soon = gd_os_now() + fmin(1, group->timeout);
    message m = {.kind = MESSAGE_ABORT, .bytes = text ? strlen(text) : 0};
    if (!text) m = (message){.kind = MESSAGE_LEAVE};
    for (int i = 0; i < group->ranks; i++) {
        if (group->control[i] < 0 || !gd_wire_send(group->control[i], &m, sizeof m, soon)) continue;
        gd_wire_send(group->control[i], text, (size_t)m.bytes, soon);
    }
}

void gd_group_leave(gd_group *group)
{
    char text[WHY];
    const char *error = gd_error(group->ctx);
    if (group->aborted) return;
    snprintf(text, sizeof text, "rank %d has failed: %.500s", group->rank, error ? error : "");
    send_reason(group, error ? text : NULL);
}

/* `echo`: the reason came from rank 0, which also sends it to the other ranks. */
static gd_status abort_group(gd_group *group, bool echo, const char *text)
{
    if (!group->aborted) {
        group->aborted = true;
        if (!echo) send_reason(group, text);
        if (group->transport->abort) group->transport->abort(group);
    }
    return gd_fail(group->ctx, GD_ERROR_DEVICE, "%s: %s", group->who, text);
}

gd_status gd_group_abort(gd_group *group, int rank, const char *why)
{
    char text[WHY];
    snprintf(text, sizeof text, "rank %d %.570s", rank, why);
    return abort_group(group, false, text);
}

/* Receives the text of a MESSAGE_ABORT from rank `from` and ends the group. */
static gd_status receive_abort(gd_group *group, int from, const message *m, double deadline)
{
    char text[WHY] = "";
    const size_t bytes = m->bytes < sizeof text ? (size_t)m->bytes : sizeof text - 1;
    if (!gd_wire_receive(group->control[from], text, bytes, deadline))
        return gd_group_abort(group, from, gd_wire_why());
    return abort_group(group, group->rank > 0, text);
}

/* Handles a pending message of rank i that does not belong to a call, if there is one. */
static gd_status poll_rank(gd_group *group, int i)
{
    message m;
    const gd_wire_look look = gd_wire_peek(group->control[i], &m, sizeof m);
    if (look == GD_WIRE_GONE) return gd_group_abort(group, i, "is gone");
    if (look == GD_WIRE_PART || m.kind == MESSAGE_GATHER || m.kind == MESSAGE_BROADCAST)
        return GD_OK;
    gd_wire_receive(group->control[i], &m, sizeof m, gd_os_now());
    group->last_received[i] = gd_os_now();
    if (m.kind == MESSAGE_ABORT) return receive_abort(group, i, &m, gd_os_now() + 1);
    if (m.kind == MESSAGE_LEAVE) gd_wire_close(&group->control[i]);
    return GD_OK;
}

gd_status gd_group_poll(gd_group *group, double seconds)
{
    const double deadline = gd_os_now() + seconds;
    bool ready[GD_GROUP_MOST];
    while (!gd_failed(group->ctx)) {
        const bool any = gd_wire_wait(group->control, group->ranks, deadline, ready);
        for (int i = 0; any && i < group->ranks; i++) {
            if (ready[i] && poll_rank(group, i)) return group->ctx->status;
        }
        if (gd_os_now() >= deadline) break;
        if (any) gd_os_nap(5e-3); /* a pending message may belong to a later call */
    }
    return gd_error_status(group->ctx);
}

/* ---- Gathering ------------------------------------------------------------------------------ */

void gd_group_heartbeat(gd_group *group)
{
    const message m = {.kind = MESSAGE_HEARTBEAT};
    for (int i = 0; i < group->ranks; i++) {
        if (group->control[i] >= 0) gd_wire_send(group->control[i], &m, sizeof m, gd_os_now());
    }
}

double gd_group_keep_alive(gd_group *group, double since, double *beat)
{
    const double now = gd_os_now(), end = since + group->timeout;
    if (now >= *beat) {
        gd_group_heartbeat(group);
        *beat = now + group->timeout / 4;
    }
    return now < end ? fmin(*beat, end) : *beat;
}

static bool is_alive(const gd_group *group, int i)
{
    return gd_os_now() < group->last_received[i] + group->timeout;
}

int gd_group_find_silent(const gd_group *group, const bool *missing, double since)
{
    const double waited = gd_os_now() - since;
    int first = -1, silent = -1, count = 0;
    if (waited < group->timeout) return -1;
    for (int i = 0; i < group->ranks; i++) {
        if (!missing[i]) continue;
        if (first < 0) first = i;
        if (is_alive(group, i)) continue;
        if (count++ == 0) silent = i;
    }
    if (group->rank > 0 && count > 1 && is_alive(group, 0)) silent = -1;
    return silent < 0 && waited >= 2 * group->timeout ? first : silent;
}

static gd_status send_message(gd_group *group, int to, message_kind kind, const void *data,
                              size_t bytes)
{
    const double deadline = gd_os_now() + group->timeout;
    message m = {.kind = (int32_t)kind, .bytes = bytes};
    snprintf(m.call, sizeof m.call, "%s", group->who);
    if (gd_wire_send(group->control[to], &m, sizeof m, deadline) &&
        gd_wire_send(group->control[to], data, bytes, deadline)) {
        return GD_OK;
    }
    /* It may have sent the reason before it closed the connection. */
    if (gd_group_poll(group, 0)) return gd_error_status(group->ctx);
    return gd_group_abort(group, to, gd_wire_why());
}

/* Receives the next message of a rank, which must have this kind and size. */
static gd_status receive_message(gd_group *group, int from, message_kind kind, void *data,
                                 size_t bytes)
{
    message m;
    char problem[WHY];
    for (;;) {
        const double deadline = gd_os_now() + group->timeout;
        if (!gd_wire_receive(group->control[from], &m, sizeof m, deadline))
            return gd_group_abort(group, from, gd_wire_why());
        group->last_received[from] = gd_os_now();
        if (m.kind == MESSAGE_ABORT) return receive_abort(group, from, &m, deadline);
        if (m.kind == MESSAGE_HEARTBEAT) continue;
        if (m.kind == MESSAGE_LEAVE) return gd_group_abort(group, from, "has left");
        m.call[sizeof m.call - 1] = '\0';
        if (m.kind != (int32_t)kind || m.bytes != bytes || strcmp(m.call, group->who) != 0) {
            snprintf(problem, sizeof problem,
                     "is in %s with %llu bytes, rank %d in %s with %zu: all must make the same "
                     "calls",
                     m.call, (unsigned long long)m.bytes, group->rank, group->who, bytes);
            return gd_group_abort(group, from, problem);
        }
        if (gd_wire_receive(group->control[from], data, bytes, deadline)) return GD_OK;
        return gd_group_abort(group, from, gd_wire_why());
    }
}

/* Takes a heartbeat off the connection to rank i, if that is what comes next. */
static bool take_heartbeat(gd_group *group, int i)
{
    message m;
    const gd_wire_look look = gd_wire_peek(group->control[i], &m, sizeof m);
    return look == GD_WIRE_WHOLE && m.kind == MESSAGE_HEARTBEAT && !poll_rank(group, i);
}

/* Rank 0: receives from all others, in the order of arrival. */
static gd_status receive_all(gd_group *group, char *all, size_t bytes)
{
    int waiting[GD_GROUP_MOST];
    bool ready[GD_GROUP_MOST], missing[GD_GROUP_MOST] = {false};
    const double begun = gd_os_now();
    double beat = begun + group->timeout / 4;
    memcpy(waiting, group->control, (size_t)group->ranks * sizeof *waiting);
    for (int i = 1; i < group->ranks; i++) missing[i] = true;
    for (int left = group->ranks - 1; left > 0;) {
        for (int i = 1; i < group->ranks; i++) {
            if (missing[i] && group->control[i] < 0) return gd_group_abort(group, i, "has left");
        }
        const int silent = gd_group_find_silent(group, missing, begun);
        if (silent > 0) return gd_group_abort(group, silent, "is silent");
        const double until = gd_group_keep_alive(group, begun, &beat);
        if (!gd_wire_wait(waiting, group->ranks, until, ready)) continue;
        for (int i = 1; i < group->ranks; i++) {
            if (!ready[i] || take_heartbeat(group, i)) continue;
            if (receive_message(group, i, MESSAGE_GATHER, all + (size_t)i * bytes, bytes))
                return group->ctx->status;
            missing[i] = false;
            waiting[i] = -1;
            left--;
        }
        /* A rank that has already sent its data may fail, too. */
        if (gd_group_poll(group, 0)) return gd_error_status(group->ctx);
    }
    return GD_OK;
}

gd_status gd_group_broadcast_within(gd_group *group, void *data, size_t bytes)
{
    if (gd_failed(group->ctx)) return group->ctx->status;
    if (group->rank > 0) return receive_message(group, 0, MESSAGE_BROADCAST, data, bytes);
    for (int i = 1; i < group->ranks; i++) {
        if (send_message(group, i, MESSAGE_BROADCAST, data, bytes)) break;
    }
    return gd_error_status(group->ctx);
}

gd_status gd_group_all_gather_within(gd_group *group, const void *mine, size_t bytes, void *all)
{
    if (gd_failed(group->ctx)) return group->ctx->status;
    if (group->rank == 0) {
        if (bytes) memcpy(all, mine, bytes);
        if (receive_all(group, all, bytes)) return gd_error_status(group->ctx);
    } else if (send_message(group, 0, MESSAGE_GATHER, mine, bytes)) {
        return gd_error_status(group->ctx);
    }
    return gd_group_broadcast_within(group, all, (size_t)group->ranks * bytes);
}
