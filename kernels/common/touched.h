/* touched.h - the rows of an array that may be other than 0 (gd_touched), on the CPU. */
#ifndef GRADUS_TOUCHED_H
#define GRADUS_TOUCHED_H

#include "kernel.h"

enum { GD_TOUCHED_PIECE = 2048 }; /* rows of one piece of work */

/* Elements of the array that belong to neighbouring touched rows. */
typedef struct gd_run {
    int64_t begin, end;
} gd_run;

static inline bool gd_is_touched(const gd_touched *rows, int64_t row)
{
    return rows->touched[row / 32] >> row % 32 & 1;
}

/* The next run of touched rows from *row on and below `last`, after which *row is; false: there is
 * none. It is widened to whole units of `unit` elements, which divide 64 bytes (16 floats), so
 * that a loop over it is as vectorised as one over all; but it begins at run->end at the earliest,
 * so that no element is in two runs. Before the first call run->end is where *row, a multiple of
 * 32, begins. */
static inline bool gd_next_run(const gd_touched *rows, int64_t unit, int64_t last, int64_t *row,
                               gd_run *run)
{
    int64_t i = *row;
    while (i < last && !(rows->touched[i / 32] >> i % 32)) i = gd_round_up(i + 1, 32);
    if (i >= last) return false;
    i += __builtin_ctz(rows->touched[i / 32] >> i % 32);
    if (i >= last) return false;
    const int64_t begin = rows->begin + i * rows->columns / unit * unit;
    while (i < last && gd_is_touched(rows, i)) i++;
    run->begin = gd_max64(begin, run->end);
    run->end = rows->begin + gd_round_up(i * rows->columns, unit);
    *row = i;
    return true;
}

/* The number of rows. Zeros after them may count as a few more, whose bits are never set. */
static inline int64_t gd_row_limit(const gd_touched *rows)
{
    return gd_divide_up(rows->end - rows->begin, rows->columns);
}

#endif
