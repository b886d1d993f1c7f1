/* graph.h - what the other files of this room tell a graph (gradus/graph.h). */
#ifndef GRADUS_OPTIM_GRAPH_H
#define GRADUS_OPTIM_GRAPH_H

#include "core/core.h"

/* Records that the graph being captured has an update. Each run of the graph calls
 * submit(optimizer) on the host before it is launched, and marks its end (gd_mark). */
gd_status gd_capture_update(gd_context *ctx, gd_status (*submit)(gd_optimizer *optimizer),
                            gd_optimizer *optimizer);

/* Drops all captures, because parameters or an optimizer that they use are about to be freed. An
 * error while one is being made. */
void gd_graphs_forget(gd_context *ctx);

/* A fingerprint of all the user's tensors, on which a captured graph depends. */
uint64_t gd_graph_key(const gd_context *ctx);

#endif
