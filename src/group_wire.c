/* group_wire.c - sockets between the ranks of a group: whole messages with deadlines, and how the
 * ranks connect.
 *
 * Rank 0 listens. Every other rank connects to it, sends its rank, and keeps that connection as its
 * line. If a transport needs a connection between every two ranks, each rank listens on a port of
 * its own, the ports are gathered over the lines, and each rank connects to the lower ranks. */
#define _DEFAULT_SOURCE /* getaddrinfo, clock_gettime */
#include "group.h"

#if defined(__unix__) || defined(__APPLE__)

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

static const uint64_t MAGIC = 0x3170756f72676467; /* "gdgroup1" */

/* The first message on a new connection. */
typedef struct hello {
    uint64_t magic;
    int32_t rank, ranks;
    char version[16];
} hello;

/* ---- Bytes ---------------------------------------------------------------------------------- */

static _Thread_local const char *why = "";

const char *gd_wire_why(void)
{
    return why;
}

double gd_wire_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int milliseconds_to(double deadline)
{
    const double left = 1e3 * (deadline - gd_wire_now());
    return left <= 0 ? 0 : left > 1e9 ? 1000000000 : (int)left + 1;
}

/* Waits until the wire is ready for `events` or broken; the next call on it returns that error. */
static bool ready_for(int wire, short events, double deadline)
{
    struct pollfd one = {.fd = wire, .events = events};
    int count;
    why = "has left";
    if (wire < 0) return false;
    do {
        count = poll(&one, 1, milliseconds_to(deadline));
    } while (count < 0 && errno == EINTR);
    if (count == 0) why = "is silent";
    return count > 0;
}

static bool over(ssize_t moved)
{
    if (moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
        return false;
    why = "is gone";
    return true;
}

bool gd_wire_send(int wire, const void *data, size_t bytes, double deadline)
{
    for (const char *at = data; bytes > 0;) {
        if (!ready_for(wire, POLLOUT, deadline)) return false;
        const ssize_t moved = send(wire, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (over(moved)) return false;
        if (moved > 0) at += moved, bytes -= (size_t)moved;
    }
    return true;
}

bool gd_wire_receive(int wire, void *data, size_t bytes, double deadline)
{
    for (char *at = data; bytes > 0;) {
        if (!ready_for(wire, POLLIN, deadline)) return false;
        const ssize_t moved = recv(wire, at, bytes, MSG_DONTWAIT);
        if (over(moved)) return false;
        if (moved > 0) at += moved, bytes -= (size_t)moved;
    }
    return true;
}

bool gd_wire_wait(const int *wires, int count, double deadline, bool *ready)
{
    enum { AT_ONCE = 64 };
    bool any = false;
    do {
        for (int first = 0; first < count; first += AT_ONCE) {
            struct pollfd set[AT_ONCE];
            const int here = count - first < AT_ONCE ? count - first : AT_ONCE;
            const bool all = count <= AT_ONCE;
            for (int i = 0; i < here; i++)
                set[i] = (struct pollfd){.fd = wires[first + i], .events = POLLIN};
            /* More wires than fit in one set: poll the sets in turn, 1 ms each. */
            const int left = milliseconds_to(deadline);
            poll(set, (nfds_t)here, all || left < 1 ? left : 1);
            for (int i = 0; i < here; i++) {
                ready[first + i] = set[i].fd >= 0 && set[i].revents;
                any = any || ready[first + i];
            }
        }
    } while (!any && milliseconds_to(deadline) > 0);
    return any;
}

gd_wire_look gd_wire_peek(int wire, void *data, size_t bytes)
{
    const ssize_t there = recv(wire, data, bytes, MSG_PEEK | MSG_DONTWAIT);
    if (there == (ssize_t)bytes) return GD_WIRE_WHOLE;
    return over(there) ? GD_WIRE_GONE : GD_WIRE_PART;
}

void gd_wire_nap(void)
{
    const struct timespec moment = {0, 5000000};
    nanosleep(&moment, NULL);
}

/* Reads until the other end closes too, for at most a second. */
void gd_wire_hang_up(int *wires, int count)
{
    const double deadline = gd_wire_now() + 1;
    for (int i = 0; i < count; i++) {
        if (wires[i] >= 0) shutdown(wires[i], SHUT_WR);
    }
    for (int i = 0; i < count; i++) {
        char rest[4096];
        while (wires[i] >= 0 && ready_for(wires[i], POLLIN, deadline) &&
               recv(wires[i], rest, sizeof rest, MSG_DONTWAIT) > 0)
            continue;
        gd_wire_close(&wires[i]);
    }
}

void gd_wire_close(int *wire)
{
    if (*wire >= 0) close(*wire);
    *wire = -1;
}

/* ---- Addresses ------------------------------------------------------------------------------ */

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} address;

static socklen_t address_size(const address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

static void set_port(address *a, int port)
{
    if (a->any.sa_family == AF_INET6)
        a->v6.sin6_port = htons((uint16_t)port);
    else
        a->v4.sin_port = htons((uint16_t)port);
}

static int port_of(int wire)
{
    address a = {0};
    socklen_t size = sizeof a;
    if (getsockname(wire, &a.any, &size)) return -1;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static bool is_loopback(const address *a)
{
    if (a->any.sa_family == AF_INET6) {
        const unsigned char *b = a->v6.sin6_addr.s6_addr;
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr) && b[12] == 127);
    }
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

static gd_status refuse(const gd_group *group, const char *what, const char *reason)
{
    const gd_group_options *o = &group->options;
    return gd_fail(group->ctx, GD_ERROR_IO, "%s: rank %d cannot %s %s:%d: %s", group->who,
                   group->rank, what, o->host, o->port, reason);
}

static gd_status resolve(const gd_group *group, address *a)
{
    const gd_group_options *o = &group->options;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const int error = getaddrinfo(o->host, NULL, &hints, &found);
    if (error) return refuse(group, "find", gai_strerror(error));
    memcpy(a, found->ai_addr, found->ai_addrlen < sizeof *a ? found->ai_addrlen : sizeof *a);
    freeaddrinfo(found);
    set_port(a, o->port);
    return GD_OK;
}

/* ---- Connections ---------------------------------------------------------------------------- */

static void prepare(int wire)
{
    const int on = 1;
    fcntl(wire, F_SETFD, FD_CLOEXEC);
    setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* A socket that listens on a port of the address (0: any port); -1 on error. */
static int listen_at(address a, int port)
{
    const int on = 1, off = 0;
    set_port(&a, port);
    int wire = socket(a.any.sa_family, SOCK_STREAM, 0);
    if (wire < 0) return -1;
    prepare(wire);
    setsockopt(wire, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a.any.sa_family == AF_INET6) setsockopt(wire, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(wire, &a.any, address_size(&a)) || listen(wire, GD_GROUP_MOST)) gd_wire_close(&wire);
    return wire;
}

/* Listens on the loopback interface if the address is one, else on all interfaces: the host name
 * may resolve to another interface than the one that the other ranks use. */
static int listen_like(const address *a, int port)
{
    address all = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
    if (is_loopback(a)) return listen_at(*a, port);
    const int wire = listen_at(all, port);
    if (wire >= 0) return wire;
    all = (address){.v4 = {.sin_family = AF_INET}};
    return listen_at(all, port);
}

/* -1 if nobody connects in time, with the error set if connections cannot be accepted at all. */
static int accept_until(const gd_group *group, int listener, double deadline, address *from)
{
    socklen_t size = sizeof *from;
    if (!ready_for(listener, POLLIN, deadline)) return -1;
    const int wire = accept(listener, &from->any, &size);
    if (wire >= 0)
        prepare(wire);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        refuse(group, "accept connections for", strerror(errno));
    return wire;
}

/* A single attempt. */
static int connect_to(const address *a, double deadline)
{
    int wire = socket(a->any.sa_family, SOCK_STREAM, 0), error = 0;
    socklen_t size = sizeof error;
    if (wire < 0) return -1;
    prepare(wire);
    fcntl(wire, F_SETFL, O_NONBLOCK);
    if (connect(wire, &a->any, address_size(a)) &&
        (errno != EINPROGRESS || !ready_for(wire, POLLOUT, deadline) ||
         getsockopt(wire, SOL_SOCKET, SO_ERROR, &error, &size) || error)) {
        if (error) errno = error;
        gd_wire_close(&wire);
    }
    return wire;
}

/* Retries until the deadline: the other end may not listen yet. */
static int connect_until(const address *a, double deadline)
{
    const struct timespec moment = {0, 20000000};
    for (;;) {
        const int wire = connect_to(a, deadline);
        if (wire >= 0 || gd_wire_now() >= deadline) return wire;
        nanosleep(&moment, NULL);
    }
}

static hello introduce(const gd_group *group)
{
    hello h = {MAGIC, group->rank, group->ranks, ""};
    snprintf(h.version, sizeof h.version, "%s", gd_version());
    return h;
}

/* ---- Connecting all ranks ------------------------------------------------------------------- */

/* Whether a new connection is a rank that is still missing; if not, `problem` says why. */
static bool fits(const gd_group *group, const hello *h, char problem[200])
{
    problem[0] = '\0';
    if (h->ranks != group->ranks) {
        snprintf(problem, 200, "was started with %d ranks, rank 0 with %d", h->ranks, group->ranks);
    } else if (h->rank <= 0 || h->rank >= group->ranks) {
        snprintf(problem, 200, "is not between 1 and %d", group->ranks - 1);
    } else if (group->line[h->rank] >= 0) {
        snprintf(problem, 200, "connected twice");
    } else if (strncmp(h->version, gd_version(), sizeof h->version) != 0) {
        snprintf(problem, 200, "runs gradus %.15s, rank 0 runs %s", h->version, gd_version());
    }
    return !problem[0];
}

static int first_missing(const gd_group *group)
{
    int rank = 1;
    while (rank < group->ranks && group->line[rank] >= 0) rank++;
    return rank;
}

/* Rank 0: accepts all other ranks. Any program can connect to the port; connections that do not
 * send a valid hello are closed. */
static gd_status take_in(gd_group *group)
{
    const double deadline = gd_wire_now() + group->timeout;
    for (int there = 1; there < group->ranks;) {
        address from = {0};
        hello h;
        char problem[200];
        int wire = accept_until(group, group->listener, gd_wire_now() + group->timeout / 4, &from);
        if (gd_failed(group->ctx)) return gd_error_status(group->ctx);
        if (wire < 0 && gd_wire_now() < deadline) {
            gd_group_still(group);
            continue;
        }
        if (wire < 0) {
            snprintf(problem, sizeof problem, "has not connected within %g s (%d of %d have)",
                     group->timeout, there, group->ranks);
            return gd_group_break(group, first_missing(group), problem);
        }
        const double soon = gd_wire_now() + 5;
        if (!gd_wire_receive(wire, &h, sizeof h, soon < deadline ? soon : deadline) ||
            h.magic != MAGIC) {
            gd_wire_close(&wire);
            continue;
        }
        const bool fine = fits(group, &h, problem);
        if (h.rank > 0 && h.rank < group->ranks && group->line[h.rank] < 0) {
            group->line[h.rank] = wire;
            there++;
        } else {
            gd_wire_close(&wire);
        }
        if (!fine) return gd_group_break(group, h.rank, problem);
    }
    return GD_OK;
}

gd_status gd_wire_meet(gd_group *group)
{
    address a = {0};
    if (group->rank == 0) {
        if (group->listener < 0) {
            if (resolve(group, &a)) return gd_error_status(group->ctx);
            group->listener = listen_like(&a, group->options.port);
        }
        if (group->listener < 0) return refuse(group, "listen at", strerror(errno));
        return take_in(group);
    }
    const double deadline = gd_wire_now() + group->timeout;
    if (resolve(group, &a)) return gd_error_status(group->ctx);
    group->line[0] = connect_until(&a, deadline);
    if (group->line[0] < 0) return refuse(group, "reach rank 0 at", strerror(errno));
    const hello h = introduce(group);
    if (!gd_wire_send(group->line[0], &h, sizeof h, deadline))
        return gd_group_break(group, 0, gd_wire_why());
    return GD_OK;
}

/* ---- A mesh --------------------------------------------------------------------------------- */

/* The address where a rank listens, as rank 0 sees it. A rank on the host of rank 0 has the address
 * by which the others reach rank 0. */
typedef struct place {
    address at;
    int port;
    bool beside_rank_0;
} place;

/* Whether all ranks are on the host of rank 0. */
static bool all_beside(gd_group *group)
{
    bool beside = true;
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        address a = {0};
        socklen_t size = sizeof a;
        getpeername(group->line[rank], &a.any, &size);
        beside = beside && is_loopback(&a);
    }
    gd_group_hand_out(group, &beside, sizeof beside);
    return beside;
}

/* The addresses at which this rank can reach the others. */
static gd_status find_places(gd_group *group, int port, place *all)
{
    const place mine = {.port = port};
    address own = {0}; /* of rank 0 */
    socklen_t size;
    if (gd_group_collect(group, &mine, sizeof mine, all)) return gd_error_status(group->ctx);
    for (int rank = 1; group->rank == 0 && rank < group->ranks; rank++) {
        size = sizeof all[rank].at;
        getpeername(group->line[rank], &all[rank].at.any, &size);
        all[rank].beside_rank_0 = is_loopback(&all[rank].at);
    }
    gd_group_hand_out(group, all, (size_t)group->ranks * sizeof *all);
    size = sizeof own;
    if (group->rank > 0) getpeername(group->line[0], &own.any, &size);
    for (int rank = 0; rank < group->ranks; rank++) {
        if (group->rank > 0 && (rank == 0 || all[rank].beside_rank_0)) all[rank].at = own;
        set_port(&all[rank].at, all[rank].port);
    }
    return gd_error_status(group->ctx);
}

static gd_status join_mesh(gd_group *group, int listener, const place *all, int *peers)
{
    const double deadline = gd_wire_now() + group->timeout;
    const hello mine = introduce(group);
    for (int rank = 0; rank < group->rank; rank++) {
        peers[rank] = connect_until(&all[rank].at, deadline);
        if (peers[rank] < 0 || !gd_wire_send(peers[rank], &mine, sizeof mine, deadline))
            return gd_group_break(group, rank, "cannot be reached");
    }
    for (int there = group->rank + 1; there < group->ranks;) {
        address from = {0};
        hello h = {0};
        int wire = accept_until(group, listener, deadline, &from);
        if (gd_failed(group->ctx)) return gd_error_status(group->ctx);
        if (wire < 0) {
            int missing = group->rank + 1;
            while (peers[missing] >= 0) missing++;
            return gd_group_break(group, missing, gd_wire_why());
        }
        const double soon = gd_wire_now() + 5;
        if (!gd_wire_receive(wire, &h, sizeof h, soon) || h.magic != MAGIC ||
            h.rank <= group->rank || h.rank >= group->ranks || peers[h.rank] >= 0) {
            gd_wire_close(&wire);
            continue;
        }
        peers[h.rank] = wire;
        there++;
    }
    return GD_OK;
}

gd_status gd_wire_mesh(gd_group *group, int *peers)
{
    const size_t bytes = (size_t)group->ranks * sizeof(place);
    const bool beside = all_beside(group);
    address a = {.v4 = {.sin_family = AF_INET}};
    socklen_t size = sizeof a;
    for (int rank = 0; rank < group->ranks; rank++) peers[rank] = -1;
    if (beside) getsockname(group->line[group->rank ? 0 : 1], &a.any, &size);
    int listener = listen_like(&a, 0);
    place *all = gd_host_allocate(group->ctx, bytes, "a group");
    if (listener < 0) refuse(group, "listen beside", strerror(errno));
    if (all && listener >= 0 && !find_places(group, port_of(listener), all))
        join_mesh(group, listener, all, peers);
    gd_wire_close(&listener);
    gd_host_release(group->ctx, all, bytes);
    return gd_error_status(group->ctx);
}

#endif
