/* port.h - a port that no other program gets while a test uses it. */
#ifndef GRADUS_TEST_PORT_H
#define GRADUS_TEST_PORT_H

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <sys/socket.h>

static inline struct sockaddr_in port_address(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* A socket that has the port but does not listen: rank 0, which uses SO_REUSEADDR, can listen
 * there; the system gives the port to nobody else until the socket is closed. */
static inline int port_reserve(int *port)
{
    struct sockaddr_in a = port_address(0);
    socklen_t size = sizeof a;
    const int on = 1, wire = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(wire, 0);
    ck_assert_int_eq(bind(wire, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(getsockname(wire, (struct sockaddr *)&a, &size), 0);
    ck_assert_int_eq(setsockopt(wire, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    *port = ntohs(a.sin_port);
    return wire;
}

#endif
