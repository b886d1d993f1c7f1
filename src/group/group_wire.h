/* group_wire.h - sockets ("wires"): whole messages with deadlines, addresses, connections. Nothing
 * here knows of groups. */
#ifndef GRADUS_GROUP_WIRE_H
#define GRADUS_GROUP_WIRE_H

#include <stdbool.h>
#include <stddef.h>

/* ---- Messages ------------------------------------------------------------------------------ */

double gd_wire_now(void); /* seconds on a monotonic clock */

/* Sends or receives a whole message. False if the other end is gone or is silent until the
 * deadline; gd_wire_why says which. */
bool gd_wire_send(int wire, const void *data, size_t bytes, double deadline);
bool gd_wire_receive(int wire, void *data, size_t bytes, double deadline);
const char *gd_wire_why(void);

/* Waits until one of `count` wires can be read, or until the deadline; wires of -1 are ignored.
 * Sets ready[count]. */
bool gd_wire_wait(const int *wires, int count, double deadline, bool *ready);

/* Whether `bytes` bytes can be read; copies them to `data` without consuming them. */
typedef enum gd_wire_look { GD_WIRE_WHOLE, GD_WIRE_PART, GD_WIRE_GONE } gd_wire_look;
gd_wire_look gd_wire_peek(int wire, void *data, size_t bytes);

void gd_wire_nap(int milliseconds);
void gd_wire_close(int *wire);

/* Closes the wires after reading what is left: closing with unread data could discard what was
 * sent. */
void gd_wire_hang_up(int *wires, int count);

/* ---- Addresses and connections ------------------------------------------------------------- */

#if defined(__unix__) || defined(__APPLE__)

#include <netinet/in.h>
#include <sys/socket.h>

enum { GD_WIRE_ADDRESSES = 8 };

/* Of IPv4 or IPv6, with a port. */
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

/* A socket that listens at an address, or on all interfaces; port 0: any. -1 and errno on error. */
int gd_wire_listen(const gd_wire_address *at);
int gd_wire_listen_all(int port);

/* The next connection, without waiting; -1 and errno if there is none. */
int gd_wire_accept(int listener);

/* A single attempt to connect; -1 and errno on error. */
int gd_wire_connect(const gd_wire_address *a, double deadline);

/* Reads what has arrived, at most `bytes` bytes; 0 if nothing has, -1 if the other end is gone. */
ptrdiff_t gd_wire_read(int wire, void *data, size_t bytes);

#endif
#endif
