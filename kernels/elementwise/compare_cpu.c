/* compare_cpu.c - the CPU kernels of the comparisons (compare.def), with broadcast. */
#include "rows.h"

typedef void compare_row(int32_t *y, const REAL *a, const REAL *b, int64_t n);

static gd_status forward(const gd_call *call, compare_row *row)
{
    enum { Y, A, B };
    int32_t *y = gd_data(call->output[0]);
    const REAL *a = gd_data(call->input[0]), *b = gd_data(call->input[1]);
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    for (int i = 0; i < 2; i++) gd_walk_add_tensor(&walk, call->input[i]);
    const gd_rows rows = gd_rows_of(walk);
    const int threads = gd_threads_for(call->threads, gd_tensor_count(call->output[0]));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows.pieces; i++) {
        REAL a_buffer[GD_BLOCK], b_buffer[GD_BLOCK];
        for (gd_piece p = gd_piece_begin(&rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
            const REAL *a_row = gd_piece_load(&p, A, a, a_buffer);
            const REAL *b_row = gd_piece_load(&p, B, b, b_buffer);
            row(y + gd_piece_offset(&p, Y), a_row, b_row, p.n);
        }
    }
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
        return forward(call, name##_row);                                               \
    }
#include "elementwise/compare.def"
