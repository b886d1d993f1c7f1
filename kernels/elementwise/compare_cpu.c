/* compare_cpu.c - the CPU kernels of the comparisons (compare.def), with broadcast. */
#include "rows.h"

typedef void compare_row(int32_t *y, const REAL *a, const REAL *b, int64_t n);

typedef struct pieces {
    gd_rows rows;
    int32_t *y;
    const REAL *a, *b;
    compare_row *row;
} pieces;

static void compare_piece(const void *work, int64_t i)
{
    enum { Y, A, B };
    const pieces *w = work;
    REAL a_buffer[GD_BLOCK], b_buffer[GD_BLOCK];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *a_row = gd_piece_load(&p, A, w->a, a_buffer);
        const REAL *b_row = gd_piece_load(&p, B, w->b, b_buffer);
        w->row(w->y + gd_piece_offset(&p, Y), a_row, b_row, p.n);
    }
}

static gd_status compare_forward(const gd_call *call, compare_row *row)
{
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    for (int i = 0; i < 2; i++) gd_walk_add_tensor(&walk, call->input[i]);
    const pieces w = {gd_rows_of(walk), gd_data(call->output[0]), gd_data(call->input[0]),
                      gd_data(call->input[1]), row};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(call->output[0])), w.rows.pieces,
                compare_piece, &w);
    return GD_OK;
}

#define COMPARE(name, formula, condition)                                               \
    static void name##_row(int32_t *y, const REAL *a_row, const REAL *b_row, int64_t n) \
    {                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                               \
            const REAL a = a_row[i], b = b_row[i];                                      \
            y[i] = condition;                                                           \
        }                                                                               \
    }                                                                                   \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)                         \
    {                                                                                   \
        return compare_forward(call, name##_row);                                       \
    }
#include "elementwise/compare.def"
