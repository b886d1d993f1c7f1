/* trace.h - what a segment of gd_recompute did in its first run, with which the second is
 * compared. */
#ifndef GRADUS_RECOMPUTE_TRACE_H
#define GRADUS_RECOMPUTE_TRACE_H

#include "core/core.h"

/* In the arena. */
typedef struct gd_trace {
    gd_call_listener listener;            /* first, so that it leads here */
    struct gd_traced_call *first, **next; /* the calls; where the next one is or will be */
    int64_t number;                       /* of the last call, from 1 */
    uint64_t calls, versions;             /* of the context when the run began */
    bool again;                           /* it is the second */
    int64_t reads;                        /* inputs of the calls */
    bool wanted;                          /* one of these requires a gradient */
} gd_trace;

/* Around a run: the first leaves its calls in the trace, the second is compared with them, and an
 * error says where it differs. `y`: what the segment returned. */
void gd_trace_begin(gd_context *ctx, gd_trace *trace, bool again);
void gd_trace_end(gd_context *ctx, gd_trace *trace, gd_tensor *y);

/* Adds the leaves that require a gradient and that a call has read to a list, in which each tensor
 * is once. Returns its length, which grows by at most trace->reads. */
int gd_trace_leaves(const gd_trace *trace, gd_tensor **list, int count);

#endif
