/* group.c - a group of processes (gradus/group.h): the messages between hosts.
 *
 * Every rank has a connection to rank 0, its line. A message is a header and some bytes.
 * In normal operation the messages are those of gathers: every rank sends its data, and rank 0
 * sends all of it back. A rank that fails sends the reason to rank 0; rank 0 forwards this, or the
 * fact that a line was closed, to all other ranks. So every rank reports the first cause, in
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

/* Sends the reason to all ranks with an open line; NULL: no error. */
static void send_reason(gd_group *group, const char *text)
{
    const double soon = gd_os_now() + fmin(1, group->timeout);
    message m = {.kind = MESSAGE_ABORT, .bytes = text ? strlen(text) : 0};
    if (!text) m = (message){.kind = MESSAGE_LEAVE};
    for (int i = 0; i < group->ranks; i++) {
        if (group->line[i] < 0 || !gd_wire_send(group->line[i], &m, sizeof m, soon)) continue;
        gd_wire_send(group->line[i], text, (size_t)m.bytes, soon);
    }
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
    if (!gd_wire_receive(group->line[from], text, bytes, deadline))
        return gd_group_abort(group, from, gd_wire_why());
    return abort_group(group, group->rank > 0, text);
}

/* Handles a pending message of rank i that does not belong to a call, if there is one. */
static gd_status poll_rank(gd_group *group, int i)
{
    message m;
    const gd_wire_look look = gd_wire_peek(group->line[i], &m, sizeof m);
    if (look == GD_WIRE_GONE) return gd_group_abort(group, i, "is gone");
    if (look == GD_WIRE_PART || m.kind == MESSAGE_GATHER || m.kind == MESSAGE_BROADCAST)
        return GD_OK;
    gd_wire_receive(group->line[i], &m, sizeof m, gd_os_now());
    group->heard[i] = gd_os_now();
    if (m.kind == MESSAGE_ABORT) return receive_abort(group, i, &m, gd_os_now() + 1);
    if (m.kind == MESSAGE_LEAVE) gd_wire_close(&group->line[i]);
    return GD_OK;
}

gd_status gd_group_poll(gd_group *group, double seconds)
{
    const double deadline = gd_os_now() + seconds;
    bool ready[GD_GROUP_MOST];
    while (!gd_failed(group->ctx)) {
        const bool any = gd_wire_wait(group->line, group->ranks, deadline, ready);
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
        if (group->line[i] >= 0) gd_wire_send(group->line[i], &m, sizeof m, gd_os_now());
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
    return gd_os_now() < group->heard[i] + group->timeout;
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
    if (gd_wire_send(group->line[to], &m, sizeof m, deadline) &&
        gd_wire_send(group->line[to], data, bytes, deadline)) {
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
        if (!gd_wire_receive(group->line[from], &m, sizeof m, deadline))
            return gd_group_abort(group, from, gd_wire_why());
        group->heard[from] = gd_os_now();
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
        if (gd_wire_receive(group->line[from], data, bytes, deadline)) return GD_OK;
        return gd_group_abort(group, from, gd_wire_why());
    }
}

/* Takes a heartbeat off the line to rank i, if that is what comes next. */
static bool take_heartbeat(gd_group *group, int i)
{
    message m;
    const gd_wire_look look = gd_wire_peek(group->line[i], &m, sizeof m);
    return look == GD_WIRE_WHOLE && m.kind == MESSAGE_HEARTBEAT && !poll_rank(group, i);
}

/* Rank 0: receives from all others, in the order of arrival. */
static gd_status receive_all(gd_group *group, char *all, size_t bytes)
{
    int waiting[GD_GROUP_MOST];
    bool ready[GD_GROUP_MOST], missing[GD_GROUP_MOST] = {false};
    const double begun = gd_os_now();
    double beat = begun + group->timeout / 4;
    memcpy(waiting, group->line, (size_t)group->ranks * sizeof *waiting);
    for (int i = 1; i < group->ranks; i++) missing[i] = true;
    for (int left = group->ranks - 1; left > 0;) {
        for (int i = 1; i < group->ranks; i++) {
            if (missing[i] && group->line[i] < 0) return gd_group_abort(group, i, "has left");
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

/* ---- Making and leaving --------------------------------------------------------------------- */

static const gd_transport *const transports[GD_DEVICE_COUNT] = {
    [GD_CPU] = &gd_transport_cpu,
#ifdef GD_HAVE_CUDA
    [GD_CUDA] = &gd_transport_cuda,
#endif
};

/* Whether the texts end within their arrays. */
static bool texts_end(const gd_group_options *o)
{
    return memchr(o->host, 0, sizeof o->host) && memchr(o->run, 0, sizeof o->run) &&
           memchr(o->secret, 0, sizeof o->secret) && memchr(o->problem, 0, sizeof o->problem);
}

static gd_status check_options(gd_context *ctx, const gd_group_options *o)
{
    if (!texts_end(o)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: a text of the options is not terminated, wanted host, run, "
                       "secret and problem with a NUL at their end");
    }
    if (gd_is_garbage((uintptr_t)o->notice)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: notice is at %p, wanted a function or NULL",
                       (void *)UINTPTR_MAX);
    }
    if (o->problem[0]) return gd_fail(ctx, GD_ERROR_ARGUMENT, "group_create: %s", o->problem);
    if (o->ranks < 1 || o->ranks > GD_GROUP_MOST || o->rank < 0 || o->rank >= o->ranks) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: rank is %d of %d, wanted 0 to ranks - 1, and at most %d",
                       o->rank, o->ranks, GD_GROUP_MOST);
    }
    if (o->port < 1 || o->port > 65535) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "group_create: port is %d, wanted 1 to 65535",
                       o->port);
    }
    if (!(o->timeout > 0) || isinf(o->timeout)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: timeout is %g, wanted a finite number above 0", o->timeout);
    }
    return GD_OK;
}

static gd_status meet(gd_group *group)
{
    gd_context *ctx = group->ctx;
    const size_t ranks = (size_t)group->ranks;
    group->line = gd_host_allocate(ctx, ranks * sizeof *group->line, "a group");
    for (int i = 0; group->line && i < group->ranks; i++) group->line[i] = -1;
    group->heard = gd_host_allocate(ctx, ranks * sizeof *group->heard, "a group");
    if (gd_failed(ctx)) return ctx->status;
    for (int i = 0; i < group->ranks; i++) group->heard[i] = -HUGE_VAL;
    if (group->ranks == 1) return GD_OK;
    if (gd_rendezvous_meet(group)) return ctx->status;
    /* No rank continues before all have connected. */
    if (gd_group_all_gather_within(group, NULL, 0, NULL)) return ctx->status;
    return group->transport->open(group);
}

gd_group *gd_group_create(gd_context *ctx, const gd_group_options *options)
{
    if (gd_error_status(ctx) || !gd_outside_graph(ctx, "group_create")) return NULL;
    gd_group_options o = options ? *options : (gd_group_options){0};
    if (o.ranks == 0) o.ranks = 1;
    if (!o.host[0]) snprintf(o.host, sizeof o.host, "127.0.0.1");
    o.port = o.port ? o.port : 29500;
    o.timeout = gd_option(o.timeout, 600);
    if (check_options(ctx, &o)) return NULL;
    gd_group *group = gd_host_allocate(ctx, sizeof *group, "group_create");
    if (!group) return NULL;
    *group = (gd_group){.ctx = ctx,
                        .options = o,
                        .rank = o.rank,
                        .ranks = o.ranks,
                        .timeout = o.timeout,
                        .who = "group_create",
                        .listener = o.rank == 0 && o.listener > 0 ? o.listener : -1,
                        .transport = transports[gd_context_device(ctx)]};
    gd_context_hold(ctx);
    if (!meet(group)) return group;
    gd_group_free(group);
    return NULL;
}

void gd_group_free(gd_group *group)
{
    if (!group) return;
    gd_context *ctx = group->ctx;
    char text[WHY];
    if (group->line && !group->aborted) {
        const char *error = gd_error(ctx);
        snprintf(text, sizeof text, "rank %d has failed: %.500s", group->rank, error ? error : "");
        send_reason(group, error ? text : NULL);
    }
    if (group->state) group->transport->close(group);
    if (group->line) gd_wire_hang_up(group->line, group->ranks);
    gd_wire_close(&group->listener);
    gd_host_release(ctx, group->line, (size_t)group->ranks * sizeof *group->line);
    gd_host_release(ctx, group->heard, (size_t)group->ranks * sizeof *group->heard);
    gd_host_release(ctx, group, sizeof *group);
    gd_context_drop(ctx);
}

int gd_group_rank(const gd_group *group)
{
    return group ? group->rank : 0;
}

int gd_group_ranks(const gd_group *group)
{
    return group ? group->ranks : 1;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

gd_status gd_group_begin(gd_group *group, const char *who)
{
    group->who = who;
    if (gd_failed(group->ctx)) return group->ctx->status;
    if (!group->aborted) return GD_OK;
    return gd_fail(group->ctx, GD_ERROR_STATE, "%s: the group is over, since a rank has failed",
                   who);
}

gd_status gd_group_all_gather_bytes(gd_group *group, const void *mine, size_t bytes, void *all)
{
    if (!group || group->ranks == 1) {
        if (bytes) memcpy(all, mine, bytes);
        return group ? gd_error_status(group->ctx) : GD_OK;
    }
    if (gd_group_begin(group, "all_gather_bytes")) return group->ctx->status;
    return gd_group_all_gather_within(group, mine, bytes, all);
}

gd_status gd_group_broadcast_bytes(gd_group *group, void *data, size_t bytes)
{
    if (!group || group->ranks == 1) return group ? gd_error_status(group->ctx) : GD_OK;
    if (gd_group_begin(group, "broadcast_bytes")) return group->ctx->status;
    return gd_group_broadcast_within(group, data, bytes);
}

void gd_group_slice(const gd_group *group, int rank, int64_t n, int64_t *begin, int64_t *end)
{
    const int64_t ranks = gd_group_ranks(group), each = n / ranks / 16 * 16;
    *begin = rank * each;
    *end = rank == ranks - 1 ? n : *begin + each;
}

/* Begins a collective on t. False on error, and where no other rank takes part. */
static bool begin(gd_group *group, gd_tensor *t, bool sums, const char *who)
{
    if (!t || gd_failed(t->ctx)) return false;
    gd_context *ctx = t->ctx;
    if (!gd_tensor_writable(t, who)) return false;
    if ((group && group->ctx != ctx) || !gd_tensor_is_contiguous(t)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: the tensor %s is %s, wanted a packed one of the group's context", who,
                gd_shape_text(t).text,
                gd_tensor_is_contiguous(t) ? "of another context" : "not packed");
        return false;
    }
    if (sums && t->dtype != GD_FLOAT32 && t->dtype != GD_FLOAT64) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the tensor is %s, wanted float32 or float64", who,
                gd_dtype_name(t->dtype));
        return false;
    }
    if (!group || group->ranks == 1 || gd_group_begin(group, who)) return false;
    gd_new_version(t->ctx, t->storage);
    return t->count > 0 && !group->transport->fork(group);
}

static gd_status done(gd_group *group, gd_tensor *t, bool begun)
{
    if (begun && !gd_failed(t->ctx)) group->transport->join(group);
    return t ? gd_error_status(t->ctx) : GD_ERROR_ARGUMENT;
}

gd_status gd_group_broadcast(gd_group *group, gd_tensor *t, int root)
{
    if (t && (root < 0 || root >= gd_group_ranks(group))) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "broadcast: root is %d, wanted 0 to %d", root,
                       gd_group_ranks(group) - 1);
    }
    const bool begun = begin(group, t, false, "broadcast");
    if (begun) group->transport->broadcast(group, gd_tensor_data(t), t->dtype, t->count, root);
    return done(group, t, begun);
}

gd_status gd_group_all_reduce(gd_group *group, gd_tensor *t, bool mean)
{
    const bool begun = begin(group, t, true, "all_reduce");
    if (begun) group->transport->all_reduce(group, gd_tensor_data(t), t->dtype, t->count, mean);
    return done(group, t, begun);
}

gd_status gd_group_reduce_scatter(gd_group *group, gd_tensor *t, bool mean)
{
    const bool begun = begin(group, t, true, "reduce_scatter");
    if (begun) group->transport->reduce_scatter(group, gd_tensor_data(t), t->dtype, t->count, mean);
    return done(group, t, begun);
}

gd_status gd_group_all_gather(gd_group *group, gd_tensor *t)
{
    const bool begun = begin(group, t, false, "all_gather");
    if (begun) group->transport->all_gather(group, gd_tensor_data(t), t->dtype, t->count);
    return done(group, t, begun);
}
