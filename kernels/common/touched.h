/* touched.h - the parts of an array that may be other than 0 (services.h), on the CPU. */
#ifndef GRADUS_TOUCHED_H
#define GRADUS_TOUCHED_H

#include "kernel.h"

enum { GD_TOUCHED_PIECE = 2048 }; /* granules of one piece of work */

/* Elements of neighbouring granules. */
typedef struct gd_run {
    int64_t begin, end;
} gd_run;

/* The next run after *run and before element `end`, of granules of `unit` elements; false: there is
 * none. */
static inline bool gd_next_run(const uint8_t *touched, int64_t unit, int64_t end, gd_run *run)
{
    const int64_t first = gd_divide_up(run->end, unit), last = gd_divide_up(end, unit);
    if (!touched || first == last) {
        *run = (gd_run){run->end, end};
        return run->begin < end;
    }
    const uint8_t *from = memchr(touched + first, 1, (size_t)(last - first));
    const uint8_t *to = from ? memchr(from, 0, (size_t)(touched + last - from)) : NULL;
    if (from) *run = (gd_run){(from - touched) * unit, to ? (to - touched) * unit : end};
    return from != NULL;
}

#endif
