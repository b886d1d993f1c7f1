/* group_rendezvous.c - how the ranks of a group connect: a rank to the listener of rank 0, and in a mesh to
 * that of each lower rank. On every connection both ends first say who they are (group_gate.c). */
#include "group/group_gate.h"
#include "platform/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Control connections -------------------------------------------------------------------- */

static gd_status refuse(const gd_group *group, const char *what, const char *reason)
{
    const gd_group_options *o = &group->options;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: rank %d cannot %s %s:%d: %s", group->who,
                   group->rank, what, o->host, o->port, reason);
}

static gd_status find(const gd_group *group, gd_wire_address at[GD_WIRE_ADDRESSES], int *count)
{
    const gd_group_options *o = &group->options;
    const char *why = gd_wire_find(o->host, o->port, at, count);
    return why ? refuse(group, "find", why) : GD_OK;
}

/* Listens at the host's own address, so that no other interface is open: of several, at that of
 * IPv4, which every rank can reach. If the address is not of this host, or is a loopback address
 * that other hosts cannot reach, listens on all interfaces. */
static gd_status listen_at_host(gd_group *group)
{
    const gd_group_options *o = &group->options;
    gd_wire_address at[GD_WIRE_ADDRESSES];
    int count, first = 0;
    char text[500];
    if (find(group, at, &count)) return group->ctx->status;
    while (first < count && at[first].any.sa_family != AF_INET) first++;
    const gd_wire_address *own = &at[first < count ? first : 0];
    const bool hidden = o->several_hosts && gd_wire_is_loopback(own);
    errno = EADDRNOTAVAIL;
    if (!hidden) group->listener = gd_wire_listen(own);
    if (group->listener < 0 && errno == EADDRNOTAVAIL) {
        group->listener = gd_wire_listen_all(o->port);
        snprintf(text, sizeof text, "%s: rank 0 listens at port %d of all interfaces: %.255s is %s",
                 group->who, o->port, o->host,
                 hidden ? "a loopback address, and the ranks are on several hosts"
                        : "not an address of this host");
        if (group->listener >= 0) gd_group_notice(group, text);
    }
    return group->listener < 0 ? refuse(group, "listen at", strerror(errno)) : GD_OK;
}

static void warn_if_open(gd_group *group)
{
    const gd_group_options *o = &group->options;
    char text[300];
    if (o->secret[0]) return;
    snprintf(text, sizeof text,
             "%s: the group has %s: any program that can reach port %d of rank 0%s can join it "
             "(GRADUS_GROUP_SECRET keeps strangers out)",
             group->who, o->run[0] ? "an id but no secret" : "neither an id nor a secret", o->port,
             o->run[0] ? " and knows or guesses the id" : "");
    gd_group_notice(group, text);
}

gd_status gd_rendezvous_meet(gd_group *group)
{
    const gd_group_options *o = &group->options;
    const double deadline = gd_os_now() + group->timeout;
    gd_wire_address at[GD_WIRE_ADDRESSES];
    char problem[GD_GATE_PROBLEM];
    int count;
    gd_gate g;
    if (gd_gate_open(group, &g, o->run, strlen(o->run))) return group->ctx->status;
    if (group->rank == 0) {
        if (group->listener < 0 && listen_at_host(group)) return group->ctx->status;
        warn_if_open(group);
        gd_gate_admit(group, &g, group->listener, group->control, deadline);
        gd_wire_close(&group->listener);
        return gd_error_status(group->ctx);
    }
    if (find(group, at, &count)) return group->ctx->status;
    const gd_outcome got = gd_gate_join(group, &g, at, count, deadline, group->control, problem);
    if (got == GD_GATE_JOINED) return GD_OK;
    return refuse(group, got == GD_GATE_LOST ? "reach rank 0 at" : "join rank 0 at", problem);
}

/* ---- A mesh --------------------------------------------------------------------------------- */

/* The address at which a rank listens, as rank 0 sees it. A rank on the host of rank 0 has the address
 * by which the others reach rank 0. */
typedef struct endpoint {
    gd_wire_address at;
    int32_t beside_rank_0;
} endpoint;

/* Whether all ranks are on the host of rank 0. */
static bool all_beside(gd_group *group)
{
    int32_t beside = true;
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        const gd_wire_address a = gd_wire_there(group->control[rank]);
        beside = beside && gd_wire_is_loopback(&a);
    }
    gd_group_broadcast_within(group, &beside, sizeof beside);
    return beside != 0;
}

/* Listens on the interface of the control connections, if it is a single one. */
static int listen_beside(const gd_group *group, bool all_here)
{
    gd_wire_address own = {0};
    for (int i = 0; i < group->ranks; i++) {
        if (group->control[i] < 0) continue;
        gd_wire_address a = gd_wire_here(group->control[i]);
        if (!all_here && gd_wire_is_loopback(&a)) continue;
        gd_wire_set_port(&a, 0);
        if (!gd_wire_is_address(&own)) own = a;
        if (memcmp(&a, &own, sizeof a) != 0) return gd_wire_listen_all(0);
    }
    const int wire = gd_wire_is_address(&own) ? gd_wire_listen(&own) : -1;
    return wire >= 0 ? wire : gd_wire_listen_all(0);
}

/* The addresses at which this rank can reach the others, all [ranks]; ports [ranks] is scratch. */
static gd_status find_endpoints(gd_group *group, int listener, endpoint *all, int32_t *ports)
{
    const gd_wire_address here = gd_wire_here(listener);
    const int32_t mine = gd_wire_port(&here);
    if (gd_group_all_gather_within(group, &mine, sizeof mine, ports)) return group->ctx->status;
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        all[rank].at = gd_wire_there(group->control[rank]);
        all[rank].beside_rank_0 = gd_wire_is_loopback(&all[rank].at);
    }
    gd_group_broadcast_within(group, all, (size_t)group->ranks * sizeof *all);
    const gd_wire_address first = group->rank > 0 ? gd_wire_there(group->control[0]) : here;
    for (int rank = 0; rank < group->ranks && !gd_failed(group->ctx); rank++) {
        if (rank == 0 || (group->rank > 0 && all[rank].beside_rank_0)) all[rank].at = first;
        if (ports[rank] < 1 || ports[rank] > 65535 || !gd_wire_is_address(&all[rank].at))
            return gd_group_abort(group, rank, "has no address");
        gd_wire_set_port(&all[rank].at, ports[rank]);
    }
    return gd_error_status(group->ctx);
}

/* Connects to the lower ranks, and waits for the higher ones. */
static gd_status join_all(gd_group *group, gd_gate *g, int listener, const endpoint *all,
                          int *peers)
{
    const double deadline = gd_os_now() + group->timeout;
    char problem[GD_GATE_PROBLEM], text[GD_GATE_PROBLEM + 30];
    for (int rank = 0; rank < group->rank; rank++) {
        if (gd_gate_join(group, g, &all[rank].at, 1, deadline, &peers[rank], problem) ==
            GD_GATE_JOINED)
            continue;
        if (gd_failed(group->ctx)) return group->ctx->status;
        snprintf(text, sizeof text, "cannot be reached: %s", problem);
        return gd_group_abort(group, rank, text);
    }
    return gd_gate_admit(group, g, listener, peers, deadline);
}

/* The id of a mesh is a random one, which rank 0 draws: who has seen only the run's id cannot join
 * it. */
gd_status gd_rendezvous_mesh(gd_group *group, int *peers)
{
    const size_t ranks = (size_t)group->ranks, bytes = ranks * (sizeof(endpoint) + sizeof(int32_t));
    uint8_t id[GD_HMAC_BYTES];
    gd_gate g;
    for (int rank = 0; rank < group->ranks; rank++) peers[rank] = -1;
    if (gd_gate_open(group, &g, NULL, 0)) return group->ctx->status;
    memcpy(id, g.seed, sizeof id);
    if (gd_group_broadcast_within(group, id, sizeof id) || gd_gate_open(group, &g, id, sizeof id))
        return group->ctx->status;
    int listener = listen_beside(group, all_beside(group));
    endpoint *all = gd_host_allocate(group->ctx, bytes, "a group");
    if (listener < 0) refuse(group, "listen beside", strerror(errno));
    if (all && listener >= 0 &&
        !find_endpoints(group, listener, all, (int32_t *)(void *)(all + ranks)))
        join_all(group, &g, listener, all, peers);
    gd_wire_close(&listener);
    gd_host_release(group->ctx, all, bytes);
    return gd_error_status(group->ctx);
}
