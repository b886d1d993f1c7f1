/* masked_fill_cpu.c - the CPU kernels of masked_fill. */
#include "elementwise/functions.h"
#include "rows.h"

enum { OUT, FROM, MASK };

typedef struct pieces {
    gd_rows rows;
    REAL *to;
    const REAL *x;
    const int32_t *mask;
    REAL value;
    bool add;
} pieces;

static void fill_piece(const void *work, int64_t i)
{
    const pieces *w = work;
    REAL buffer[GD_PIECE];
    const REAL value = w->value;
    const bool add = w->add;
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *x_row = gd_piece_load(&p, FROM, w->x, buffer);
        const int32_t *set = w->mask + gd_piece_offset(&p, MASK);
        REAL *row = w->to + gd_piece_offset(&p, OUT);
        const int64_t step = w->rows.step[MASK];
        for (int64_t k = 0; k < p.n; k++)
            row[k] = (add ? row[k] : 0) + masked(x_row[k], set[k * step] != 0, value);
    }
}

/* out = (add ? out : 0) + (mask ? value : from); `out` is packed and of from's shape. */
static gd_status fill(const gd_call *call, const gd_tensor *out, bool add, const gd_tensor *from,
                      REAL value)
{
    gd_walk walk = gd_walk_like(out);
    gd_walk_add_tensor(&walk, out);
    gd_walk_add_tensor(&walk, from);
    gd_walk_add_tensor(&walk, call->input[1]);
    const pieces w = {gd_rows_of(walk),        gd_data(out), gd_data(from),
                      gd_data(call->input[1]), value,        add};
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(out)), w.rows.pieces, fill_piece, &w);
    return GD_OK;
}

gd_status GD_REAL_NAME(masked_fill_forward)(const gd_call *call)
{
    return fill(call, call->output[0], false, call->input[0], (REAL) * (const double *)call->args);
}

gd_status GD_REAL_NAME(masked_fill_backward)(const gd_call *call)
{
    if (!call->dinput[0]) return GD_OK;
    return fill(call, call->dinput[0], call->accumulate[0], call->doutput[0], 0);
}
