/* socket_posix.c - see socket.h. */
#define _DEFAULT_SOURCE /* getaddrinfo */
#include "platform/socket.h"
#include "platform/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CALLERS = 1024 }; /* that may wait to be accepted */

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* ---- Bytes ---------------------------------------------------------------------------------- */

static _Thread_local const char *why = "";

const char *gd_wire_why(void)
{
    return why;
}

static int milliseconds_to(double deadline)
{
    const double left = 1e3 * (deadline - gd_os_now());
    return left <= 0 ? 0 : left > 1e9 ? 1000000000 : (int)left + 1;
}

/* Waits until the wire is ready for `events` or aborted; the next call on it returns that error. */
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

ptrdiff_t gd_wire_write(int wire, const void *data, size_t bytes)
{
    const ssize_t moved = send(wire, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (over(moved)) return -1;
    return moved > 0 ? moved : 0;
}

bool gd_wire_send(int wire, const void *data, size_t bytes, double deadline)
{
    for (const char *at = data; bytes > 0;) {
        if (!ready_for(wire, POLLOUT, deadline)) return false;
        const ptrdiff_t moved = gd_wire_write(wire, at, bytes);
        if (moved < 0) return false;
        at += moved, bytes -= (size_t)moved;
    }
    return true;
}

ptrdiff_t gd_wire_read(int wire, void *data, size_t bytes)
{
    const ssize_t moved = recv(wire, data, bytes, MSG_DONTWAIT);
    if (over(moved)) return -1;
    return moved > 0 ? moved : 0;
}

bool gd_wire_receive(int wire, void *data, size_t bytes, double deadline)
{
    for (char *at = data; bytes > 0;) {
        if (!ready_for(wire, POLLIN, deadline)) return false;
        const ptrdiff_t moved = gd_wire_read(wire, at, bytes);
        if (moved < 0) return false;
        at += moved, bytes -= (size_t)moved;
    }
    return true;
}

bool gd_wire_wait(const int *wires, int count, double deadline, bool *ready)
{
    enum { AT_ONCE = 256 };
    bool any = false;
    do {
        for (unsigned first = 0; first < (unsigned)count; first += AT_ONCE) {
            struct pollfd set[AT_ONCE];
            const unsigned rest = (unsigned)count - first, here = rest < AT_ONCE ? rest : AT_ONCE;
            const bool all = count <= AT_ONCE;
            for (unsigned i = 0; i < here; i++)
                set[i] = (struct pollfd){.fd = wires[first + i], .events = POLLIN};
            /* More wires than fit in one set: poll the sets in turn, 1 ms each. */
            const int left = milliseconds_to(deadline);
            poll(set, here, all || left < 1 ? left : 1);
            for (unsigned i = 0; i < here; i++) {
                ready[first + i] = set[i].fd >= 0 && set[i].revents;
                any = any || ready[first + i];
            }
        }
    } while (!any && milliseconds_to(deadline) > 0);
    return any;
}

bool gd_wire_wait_for(gd_wire_event *events, int count, double deadline)
{
    struct pollfd set[GD_WIRE_EVENTS];
    for (int i = 0; i < count; i++)
        set[i] = (struct pollfd){
            .fd = events[i].wire,
            .events = (short)((events[i].reads ? POLLIN : 0) | (events[i].writes ? POLLOUT : 0))};
    const int some = poll(set, (nfds_t)count, milliseconds_to(deadline));
    for (int i = 0; i < count; i++) events[i].ready = some > 0 && set[i].fd >= 0 && set[i].revents;
    return some > 0;
}

gd_wire_look gd_wire_peek(int wire, void *data, size_t bytes)
{
    const ssize_t there = recv(wire, data, bytes, MSG_PEEK | MSG_DONTWAIT);
    if (there == (ssize_t)bytes) return GD_WIRE_WHOLE;
    return over(there) ? GD_WIRE_GONE : GD_WIRE_PART;
}

/* Reads until the other end closes too, for at most a second. */
void gd_wire_hang_up(int *wires, int count)
{
    const double deadline = gd_os_now() + 1;
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

static socklen_t address_size(const gd_wire_address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

bool gd_wire_is_address(const gd_wire_address *a)
{
    return a->any.sa_family == AF_INET || a->any.sa_family == AF_INET6;
}

void gd_wire_set_port(gd_wire_address *a, int port)
{
    if (a->any.sa_family == AF_INET6)
        a->v6.sin6_port = htons((uint16_t)port);
    else
        a->v4.sin_port = htons((uint16_t)port);
}

int gd_wire_port(const gd_wire_address *a)
{
    return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

bool gd_wire_is_loopback(const gd_wire_address *a)
{
    if (a->any.sa_family == AF_INET6) {
        const unsigned char *b = a->v6.sin6_addr.s6_addr;
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr) && b[12] == 127);
    }
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

gd_wire_address gd_wire_here(int wire)
{
    gd_wire_address a = {0};
    socklen_t size = sizeof a;
    if (getsockname(wire, &a.any, &size)) a = (gd_wire_address){0};
    return a;
}

gd_wire_address gd_wire_there(int wire)
{
    gd_wire_address a = {0};
    socklen_t size = sizeof a;
    if (getpeername(wire, &a.any, &size)) a = (gd_wire_address){0};
    return a;
}

gd_wire_text gd_wire_name(const gd_wire_address *a)
{
    gd_wire_text name;
    if (getnameinfo(&a->any, address_size(a), name.text, sizeof name.text, NULL, 0, NI_NUMERICHOST))
        snprintf(name.text, sizeof name.text, "an unknown address");
    return name;
}

const char *gd_wire_find(const char *host, int port, gd_wire_address *found, int *count)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    const int error = getaddrinfo(host, NULL, &hints, &list);
    *count = 0;
    if (error) return gai_strerror(error);
    for (const struct addrinfo *at = list; at && *count < GD_WIRE_ADDRESSES; at = at->ai_next) {
        if (at->ai_addrlen > sizeof *found) continue;
        gd_wire_address *a = &found[*count];
        *a = (gd_wire_address){0};
        memcpy(a, at->ai_addr, at->ai_addrlen);
        if (!gd_wire_is_address(a)) continue;
        gd_wire_set_port(a, port);
        ++*count;
    }
    freeaddrinfo(list);
    return *count ? NULL : "no address of IPv4 or IPv6";
}

/* ---- Connections ---------------------------------------------------------------------------- */

static void prepare(int wire)
{
    const int on = 1;
    fcntl(wire, F_SETFD, FD_CLOEXEC);
    setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE /* where send() has no such flag */
    setsockopt(wire, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

int gd_wire_listen(const gd_wire_address *at)
{
    const int on = 1, off = 0;
    int wire = socket(at->any.sa_family, SOCK_STREAM, 0);
    if (wire < 0) return -1;
    prepare(wire);
    /* A port of the system's choice must not be one that another program is about to use. */
    if (gd_wire_port(at) > 0) setsockopt(wire, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->any.sa_family == AF_INET6)
        setsockopt(wire, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(wire, &at->any, address_size(at)) || listen(wire, CALLERS)) {
        const int reason = errno;
        gd_wire_close(&wire);
        errno = reason;
    }
    return wire;
}

int gd_wire_listen_all(int port)
{
    gd_wire_address all = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
    gd_wire_set_port(&all, port);
    const int wire = gd_wire_listen(&all);
    if (wire >= 0) return wire;
    all = (gd_wire_address){.v4 = {.sin_family = AF_INET}};
    gd_wire_set_port(&all, port);
    return gd_wire_listen(&all);
}

int gd_wire_listen_here(int *port)
{
    gd_wire_address a = {.v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    socklen_t size = sizeof a;
    int wire = socket(AF_INET, SOCK_STREAM, 0);
    if (wire >= 0 && (bind(wire, &a.any, address_size(&a)) || listen(wire, SOMAXCONN) ||
                      getsockname(wire, &a.any, &size)))
        gd_wire_close(&wire);
    *port = gd_wire_port(&a);
    return wire;
}

int gd_wire_accept(int listener)
{
    fcntl(listener, F_SETFL, O_NONBLOCK); /* what was ready may be gone */
    const int wire = accept(listener, NULL, NULL);
    if (wire >= 0) prepare(wire);
    return wire;
}

int gd_wire_connect(const gd_wire_address *a, double deadline)
{
    int wire = socket(a->any.sa_family, SOCK_STREAM, 0), error = 0;
    socklen_t size = sizeof error;
    if (wire < 0) return -1;
    prepare(wire);
    fcntl(wire, F_SETFL, O_NONBLOCK);
    if (!connect(wire, &a->any, address_size(a))) return wire;
    error = errno;
    if (error == EINPROGRESS) {
        error = ETIMEDOUT;
        if (ready_for(wire, POLLOUT, deadline) &&
            getsockopt(wire, SOL_SOCKET, SO_ERROR, &error, &size))
            error = errno;
    }
    if (error) {
        gd_wire_close(&wire);
        errno = error;
    }
    return wire;
}
