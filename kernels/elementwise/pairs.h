/* pairs.h - y = f(a, b) row by row, with broadcast: the forward of binary_cpu.c and compare_cpu.c. */
#ifndef GRADUS_PAIRS_H
#define GRADUS_PAIRS_H

#include "rows.h"

/* n numbers of y, REAL or int32_t. */
typedef void pair_row(void *y, const REAL *a, const REAL *b, int64_t n);

typedef struct pairs {
    gd_rows rows; /* of y, a, b */
    char *y;
    size_t y_size; /* bytes of an element */
    const REAL *a, *b;
    pair_row *row;
} pairs;

static void pair_piece(const void *work, int64_t i)
{
    enum { Y, A, B };
    const pairs *w = work;
    REAL a_buffer[GD_PIECE], b_buffer[GD_PIECE];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *a_row = gd_piece_load(&p, A, w->a, a_buffer);
        const REAL *b_row = gd_piece_load(&p, B, w->b, b_buffer);
        w->row(w->y + gd_piece_offset(&p, Y) * (int64_t)w->y_size, a_row, b_row, p.n);
    }
}

/* `walk`: over y, a and b. */
static gd_status for_each_pair(const gd_call *call, gd_walk walk, const REAL *a, const REAL *b,
                               pair_row *row)
{
    const gd_tensor *y = call->output[0];
    const pairs w = {gd_rows_of(walk), gd_data(y), gd_dtype_size(gd_tensor_dtype(y)), a, b, row};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(y)), w.rows.pieces, pair_piece, &w);
    return GD_OK;
}

#endif
