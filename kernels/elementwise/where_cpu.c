/* where_cpu.c - the CPU kernels of where. */
#include "reduce/reduction.h"
#include "rows.h"

typedef struct pieces {
    gd_rows rows;
    REAL *out;
    const int32_t *condition;
    const REAL *a, *b; /* a: dy in the backward */
    bool add, wanted;
} pieces;

static void choose_piece(const void *work, int64_t i)
{
    enum { Y, CONDITION, A, B };
    const pieces *w = work;
    REAL a_buffer[GD_PIECE], b_buffer[GD_PIECE];
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *a_row = gd_piece_load(&p, A, w->a, a_buffer);
        const REAL *b_row = gd_piece_load(&p, B, w->b, b_buffer);
        const int32_t *chosen = w->condition + gd_piece_offset(&p, CONDITION);
        REAL *y_row = w->out + gd_piece_offset(&p, Y);
        const int64_t step = w->rows.step[CONDITION];
        for (int64_t k = 0; k < p.n; k++) y_row[k] = chosen[k * step] ? a_row[k] : b_row[k];
    }
}

gd_status GD_REAL_NAME(where_forward)(const gd_call *call)
{
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    for (int i = 0; i < 3; i++) gd_walk_add_tensor(&walk, call->input[i]);
    const pieces w = {.rows = gd_rows_of(walk),
                      .out = gd_data(call->output[0]),
                      .condition = gd_data(call->input[0]),
                      .a = gd_data(call->input[1]),
                      .b = gd_data(call->input[2])};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(call->output[0])), w.rows.pieces,
                choose_piece, &w);
    return GD_OK;
}

static void select_piece(const void *work, int64_t i)
{
    enum { PART, CONDITION };
    const pieces *w = work;
    const bool add = w->add, wanted = w->wanted;
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const int32_t *chosen = w->condition + gd_piece_offset(&p, CONDITION);
        const REAL *dy_row = w->a + gd_piece_offset(&p, PART);
        REAL *row = w->out + gd_piece_offset(&p, PART);
        const int64_t step = w->rows.step[CONDITION];
        for (int64_t k = 0; k < p.n; k++) {
            REAL mine = (chosen[k * step] != 0) == wanted ? dy_row[k] : 0; /* [where] */
            row[k] = (add ? row[k] : 0) + mine;
        }
    }
}

/* part = dy where the condition is met (wanted: true) or not (false), else 0; of y's shape. */
static void select_part(const gd_call *call, REAL *part, bool add, bool wanted)
{
    const gd_tensor *dy_tensor = call->doutput[0];
    gd_walk walk = gd_walk_like(dy_tensor);
    gd_walk_add_tensor(&walk, dy_tensor);
    gd_walk_add_tensor(&walk, call->input[0]);
    const pieces w = {.rows = gd_rows_of(walk),
                      .out = part,
                      .condition = gd_data(call->input[0]),
                      .a = gd_data(dy_tensor),
                      .add = add,
                      .wanted = wanted};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(dy_tensor)), w.rows.pieces,
                select_piece, &w);
}

/* The gradient of a (input 1) or b (input 2). If it was broadcast, its part of dy is computed in
 * temporary memory and summed over the repeated axes. */
static gd_status operand_backward(const gd_call *call, int k)
{
    const gd_tensor *dy = call->doutput[0], *dx = call->dinput[k];
    if (!dx) return GD_OK;
    const int64_t n = gd_tensor_count(dy);
    const bool add = call->accumulate[k], wanted = k == 1;
    if (gd_tensor_count(dx) == n) {
        select_part(call, gd_data(dx), add, wanted);
        return GD_OK;
    }
    REAL *part = gd_call_scratch(call, (size_t)n * sizeof(REAL));
    if (!part) return gd_error_status(call->context);
    select_part(call, part, false, wanted);
    gd_reduction r = {.walk = gd_walk_like(dy), .data = {NULL, part}};
    gd_walk_add_tensor(&r.walk, dx);
    gd_walk_add_tensor(&r.walk, dy);
    return gd_reduce_into(dx, add, call, &r);
}

gd_status GD_REAL_NAME(where_backward)(const gd_call *call)
{
    gd_status status = operand_backward(call, 1);
    return status ? status : operand_backward(call, 2);
}
