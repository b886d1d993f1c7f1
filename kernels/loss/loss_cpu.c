/* loss_cpu.c - the CPU kernels of the losses of pairs (loss.def). */
#include "loops.h"
#include "loss/functions.h"
#include "loss/loss.h"

#define ROW(name, value) GD_GRADIENT_ROW(name, dy, x, t, w, p, q, dy *(value))
#define LOSS(name, formula, value, dx, dt, dw, ...) \
    ROW(name##_row, value)                          \
    ROW(name##_dx_row, dx)                          \
    ROW(name##_dt_row, dt)                          \
    ROW(name##_dw_row, dw)
#include "loss/loss.def"
#undef LOSS

enum { DY, X, T, W };

typedef struct pair_blocks {
    gd_map map; /* of dy, or NULL: `factor` for all elements; x; t; and w, or NULL: 1 */
    REAL factor;
    double *sums; /* of each block, instead of `out` */
} pair_blocks;

enum { PART = GD_BLOCK / 4 }; /* of a block: three of them are on the stack */

static const REAL *block_or_same(const REAL *from, int64_t first, REAL same, REAL *buffer)
{
    if (from) return from + first;
    for (int64_t i = 0; i < PART; i++) buffer[i] = same;
    return buffer;
}

static void pair_block(const void *work, int64_t block)
{
    const pair_blocks *b = work;
    const gd_map *m = &b->map;
    const int64_t end = gd_min64(m->n, (block + 1) * GD_BLOCK);
    REAL dy_buffer[PART], w_buffer[PART], values[PART];
    double sum = 0;
    for (int64_t first = block * GD_BLOCK; first < end; first += PART) {
        const int64_t n = gd_min64(PART, end - first);
        m->row.function(b->sums ? values : (REAL *)m->out + first,
                        block_or_same(m->in[DY], first, b->factor, dy_buffer), m->in[X] + first,
                        m->in[T] + first, block_or_same(m->in[W], first, 1, w_buffer), &m->row, n);
        for (int64_t i = 0; b->sums && i < n; i++) sum += (double)values[i];
    }
    if (b->sums) b->sums[block] = sum;
}

static gd_status by_blocks(const gd_call *call, pair_blocks *b, gd_row_function *row)
{
    gd_map *m = &b->map;
    m->in[X] = gd_data(call->input[0]);
    m->in[T] = gd_data(call->input[1]);
    m->in[W] = call->inputs > 2 ? gd_data(call->input[2]) : NULL;
    m->n = gd_tensor_count(call->input[0]);
    m->row.function = row;
    m->row.p = (REAL)gd_loss_parameter(call);
    return gd_each_piece(call, m->n, gd_divide_up(m->n, GD_BLOCK), pair_block, b);
}

/* The blocks' sums are added in order, for any number of threads. */
static gd_status loss_forward(const gd_call *call, gd_row_function *row)
{
    pair_blocks b = {.factor = 1};
    REAL *loss = b.map.out = gd_data(call->output[0]);
    if (((const gd_loss_args *)call->args)->reduction == GD_NONE) return by_blocks(call, &b, row);
    const int64_t blocks = gd_divide_up(gd_tensor_count(call->input[0]), GD_BLOCK);
    b.sums = gd_call_scratch(call, (size_t)gd_max64(blocks, 1) * sizeof *b.sums);
    if (!b.sums) return gd_error_status(call->context);
    by_blocks(call, &b, row);
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += b.sums[i];
    *loss = (REAL)loss_divided(sum, gd_loss_divisor(call));
    return GD_OK;
}

static gd_status loss_backward(const gd_call *call, gd_row_function *const row[3])
{
    const bool none = ((const gd_loss_args *)call->args)->reduction == GD_NONE;
    const REAL *dy = gd_data(call->doutput[0]);
    for (int k = 0; k < call->inputs; k++) {
        if (!call->dinput[k]) continue;
        pair_blocks b = {.map = {.out = gd_data(call->dinput[k]), .row.add = call->accumulate[k]}};
        if (none)
            b.map.in[DY] = dy;
        else
            b.factor = (REAL)loss_divided(*dy, gd_loss_divisor(call));
        by_blocks(call, &b, row[k]);
    }
    return GD_OK;
}

#define LOSS(name, ...)                                               \
    GD_KERNEL_OF_REAL(name##_forward, loss_forward(call, name##_row)) \
    GD_KERNEL_OF_REAL(                                                \
        name##_backward,                                              \
        loss_backward(call, (gd_row_function *[]){name##_dx_row, name##_dt_row, name##_dw_row}))
#include "loss/loss.def"
