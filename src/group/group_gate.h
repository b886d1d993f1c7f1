/* group_gate.h - how a rank identifies itself on a new connection, and how strangers are kept out
 * (group_gate.c). */
#ifndef GRADUS_GROUP_GATE_H
#define GRADUS_GROUP_GATE_H

#include "group/group.h"
#include "platform/socket.h"

/* What proofs are made with, and random numbers. */
typedef struct gd_gate {
    uint8_t run[GD_HMAC_BYTES], key[GD_HMAC_BYTES]; /* keys: of the id; of the id and the secret */
    uint8_t seed[GD_HMAC_BYTES];                    /* of the random numbers, */
    uint64_t drawn;                                 /* which are counted */
} gd_gate;

/* `run` [bytes] is the run's id. */
gd_status gd_gate_open(gd_group *group, gd_gate *gate, const void *run, size_t bytes);

/* Waits on a listener until every higher rank has a wire[rank]. */
gd_status gd_gate_admit(gd_group *group, gd_gate *gate, int listener, int *wire, double deadline);

/* Connects to a listener at one of several addresses, as often as it takes until the deadline: the other
 * end may not listen yet. If not JOINED, `problem` says why. LOST also with the error set. */
enum { GD_GATE_PROBLEM = 140 };
typedef enum gd_outcome { GD_GATE_JOINED, GD_GATE_REJECTED, GD_GATE_LOST } gd_outcome;
gd_outcome gd_gate_join(gd_group *group, gd_gate *gate, const gd_wire_address *at, int count,
                        double deadline, int *wire, char problem[GD_GATE_PROBLEM]);

/* Tells the user. */
void gd_group_notice(gd_group *group, const char *sentence);

#endif
