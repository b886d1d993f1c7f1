/* spy.h - watches a backward: what each node adds to the gradient of each of its inputs. */
#ifndef GRADUS_STUDY_SPY_H
#define GRADUS_STUDY_SPY_H

#include "core/core.h"

enum { SPY_SHOWN = 64 }; /* values of a tensor that are looked at */

/* Prints the first `shown` values of every tensor on the tape, a line each, "value n4 1 2 3 ...",
 * then, as `backward` goes, what arrives at each input of a node and what has arrived there so far,
 * "part n4_1 1 2 3 ..." and "total n4_1 ...", and last the tape as a graph, whose ids these are. */
gd_status spy_tape(gd_tensor *loss, int shown, gd_status (*backward)(gd_tensor *));

#endif
