/* socket.h - sockets ("wires") of TCP: whole messages with deadlines, addresses, listening and
 * connecting. Deadlines are moments of gd_os_now. */
#ifndef GRADUS_PLATFORM_SOCKET_H
#define GRADUS_PLATFORM_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* ---- Bytes ---------------------------------------------------------------------------------- */

/* Sends or receives a whole message. False if the other end is gone or is silent until the
 * deadline; gd_wire_why says which. */
bool gd_wire_send(int wire, const void *data, size_t bytes, double deadline);
bool gd_wire_receive(int wire, void *data, size_t bytes, double deadline);
const char *gd_wire_why(void);

/* Sends what can be sent, or reads what has arrived, at most `bytes` bytes; 0 if that is nothing, -1
 * if the other end is gone. */
ptrdiff_t gd_wire_write(int wire, const void *data, size_t bytes);
ptrdiff_t gd_wire_read(int wire, void *data, size_t bytes);

/* Waits until one of `count` wires can be read, or until the deadline; wires of -1 are ignored.
 * Sets ready[count]. */
bool gd_wire_wait(const int *wires, int count, double deadline, bool *ready);

/* The same for wires that are to be read or written, at most GD_WIRE_EVENTS; sets `ready` of each,
 * also where the other end is gone. */
enum { GD_WIRE_EVENTS = 2048 };
typedef struct gd_wire_event {
    int wire; /* -1: ignored */
    bool reads, writes, ready;
} gd_wire_event;
bool gd_wire_wait_for(gd_wire_event *events, int count, double deadline);

/* Whether `bytes` bytes can be read; copies them to `data` without consuming them. */
typedef enum gd_wire_look { GD_WIRE_WHOLE, GD_WIRE_PART, GD_WIRE_GONE } gd_wire_look;
gd_wire_look gd_wire_peek(int wire, void *data, size_t bytes);

void gd_wire_close(int *wire);

/* Closes the wires after reading what is left: closing with unread data could discard what was
 * sent. */
void gd_wire_hang_up(int *wires, int count);

/* ---- Addresses ------------------------------------------------------------------------------ */

enum { GD_WIRE_ADDRESSES = 8 };

/* An address of IPv4 or IPv6, with a port. */
typedef union gd_wire_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
} gd_wire_address;

typedef struct gd_wire_text {
    char text[64];
} gd_wire_text;

/* The addresses of a host, at most GD_WIRE_ADDRESSES. NULL, or why there are none. */
const char *gd_wire_find(const char *host, int port, gd_wire_address *found, int *count);

bool gd_wire_is_address(const gd_wire_address *a);
bool gd_wire_is_loopback(const gd_wire_address *a);
int gd_wire_port(const gd_wire_address *a);
void gd_wire_set_port(gd_wire_address *a, int port);
gd_wire_text gd_wire_name(const gd_wire_address *a); /* in digits, without the port */

/* The address of this end of a wire, and of the other; of no family on error. */
gd_wire_address gd_wire_here(int wire);
gd_wire_address gd_wire_there(int wire);

/* ---- Connections ---------------------------------------------------------------------------- */

/* A socket that listens at an address, or on all interfaces; port 0: any. -1 and errno on error. */
int gd_wire_listen(const gd_wire_address *at);
int gd_wire_listen_all(int port);

/* One that listens on a free port of the loopback interface, so it cannot collide with another
 * program. It is inherited by copies of this process. */
int gd_wire_listen_here(int *port);

/* The next connection, without waiting; -1 and errno if there is none. */
int gd_wire_accept(int listener);

/* A single attempt to connect; -1 and errno on error. */
int gd_wire_connect(const gd_wire_address *a, double deadline);

#endif
