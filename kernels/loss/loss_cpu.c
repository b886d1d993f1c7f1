/* loss_cpu.c - the CPU kernels of the losses of pairs (loss.def). */
#include "loss/functions.h"
#include "loss/loss.h"

/* ---- Rows, by table ----------------------------------------------------------------------- */

typedef struct pair_blocks pair_blocks;
/* n losses, or gradients, of the elements from `first` on. */
typedef void loss_row(REAL *out, bool add, const REAL *dy, const REAL *x, const REAL *t,
                      const REAL *w, REAL p, int64_t n);

#define ROW(row_name, expression)                                                    \
    static void row_name(REAL *out, bool add, const REAL *dy_row, const REAL *x_row, \
                         const REAL *t_row, const REAL *w_row, REAL p, int64_t n)    \
    {                                                                                \
        (void)p;                                                                     \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                          \
        {                                                                            \
            const REAL dy = dy_row[i], x = x_row[i], t = t_row[i], w = w_row[i];     \
            (void)x, (void)t, (void)w;                                               \
            out[i] = (add ? out[i] : 0) + dy * (expression);                         \
        }                                                                            \
    }
#define LOSS(name, formula, value, dx, dt, dw, ...) \
    ROW(name##_row, value)                          \
    ROW(name##_dx_row, dx)                          \
    ROW(name##_dt_row, dt)                          \
    ROW(name##_dw_row, dw)
#include "loss/loss.def"
#undef LOSS

/* ---- The loop over blocks ----------------------------------------------------------------- */

struct pair_blocks {
    const REAL *dy; /* NULL: `factor` for all elements */
    const REAL *x, *t, *w;
    REAL *out;    /* or */
    double *sums; /* of each block */
    REAL p, factor;
    bool add;
    int64_t n;
    loss_row *row;
};

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
    const int64_t end = gd_min64(b->n, (block + 1) * GD_BLOCK);
    REAL dy_buffer[PART], w_buffer[PART], values[PART];
    double sum = 0;
    for (int64_t first = block * GD_BLOCK; first < end; first += PART) {
        const int64_t n = gd_min64(PART, end - first);
        b->row(b->out ? b->out + first : values, b->add,
               block_or_same(b->dy, first, b->factor, dy_buffer), b->x + first, b->t + first,
               block_or_same(b->w, first, 1, w_buffer), b->p, n);
        for (int64_t i = 0; b->sums && i < n; i++) sum += (double)values[i];
    }
    if (b->sums) b->sums[block] = sum;
}

static pair_blocks blocks_of(const gd_call *call, loss_row *row)
{
    return (pair_blocks){.x = gd_data(call->input[0]),
                         .t = gd_data(call->input[1]),
                         .w = call->inputs > 2 ? gd_data(call->input[2]) : NULL,
                         .p = (REAL)gd_loss_parameter(call),
                         .factor = 1,
                         .n = gd_tensor_count(call->input[0]),
                         .row = row};
}

static void run_blocks(const gd_call *call, const pair_blocks *b)
{
    gd_for_each(gd_threads_for(call->threads, b->n), gd_divide_up(b->n, GD_BLOCK), pair_block, b);
}

/* The blocks' sums are added in order, for any number of threads. */
static gd_status loss_forward(const gd_call *call, loss_row *row)
{
    pair_blocks b = blocks_of(call, row);
    REAL *loss = gd_data(call->output[0]);
    if (((const gd_loss_args *)call->args)->reduction == GD_NONE) {
        b.out = loss;
        run_blocks(call, &b);
        return GD_OK;
    }
    const int64_t blocks = gd_divide_up(b.n, GD_BLOCK);
    b.sums = gd_call_scratch(call, (size_t)gd_max64(blocks, 1) * sizeof *b.sums);
    if (!b.sums) return gd_error_status(call->context);
    run_blocks(call, &b);
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += b.sums[i];
    *loss = (REAL)loss_divided(sum, gd_loss_divisor(call));
    return GD_OK;
}

static gd_status loss_backward(const gd_call *call, loss_row *const row[3])
{
    const bool none = ((const gd_loss_args *)call->args)->reduction == GD_NONE;
    const REAL *dy = gd_data(call->doutput[0]);
    for (int k = 0; k < call->inputs; k++) {
        if (!call->dinput[k]) continue;
        pair_blocks b = blocks_of(call, row[k]);
        b.dy = none ? dy : NULL;
        if (!none) b.factor = (REAL)loss_divided(*dy, gd_loss_divisor(call));
        b.out = gd_data(call->dinput[k]);
        b.add = call->accumulate[k];
        run_blocks(call, &b);
    }
    return GD_OK;
}

/* ---- The kernels -------------------------------------------------------------------------- */

#define LOSS(name, ...)                                                          \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)                  \
    {                                                                            \
        return loss_forward(call, name##_row);                                   \
    }                                                                            \
    gd_status GD_REAL_NAME(name##_backward)(const gd_call *call)                 \
    {                                                                            \
        loss_row *const rows[3] = {name##_dx_row, name##_dt_row, name##_dw_row}; \
        return loss_backward(call, rows);                                        \
    }
#include "loss/loss.def"
