/* swiglu_cpu.c - the CPU kernels of swiglu: one pass each, in blocks (kernel.h says why). */
#include "inline_exp.h"
#include "kernel_cpu.h"
#include "swiglu/swiglu.h"

#define GD_EXP inline_exp
#include "swiglu/formula.h"

enum { BLOCK = 512, AT_ONCE = 64 / (int)sizeof(REAL) };

typedef struct swiglu_work {
    swiglu_rows r;
    const REAL *gate, *up, *dy;
    REAL *y, *dgate, *dup;
    bool add_gate, add_up;
} swiglu_work;

/* A block of a row: `size` elements from `first` on of gate and up, and at `y` in the packed
 * output. */
typedef struct block {
    int64_t first, y, size;
} block;

static block block_at(const swiglu_rows *r, int64_t i)
{
    const int64_t a_row = gd_divide_up(r->n, BLOCK), row = i / a_row;
    const int64_t column = (i - row * a_row) * BLOCK;
    return (block){row * r->step + column, row * r->n + column, gd_min64(BLOCK, r->n - column)};
}

static void forward_block(const void *work, int64_t k)
{
    const swiglu_work *w = work;
    const block b = block_at(&w->r, k);
    const REAL *gate = w->gate + b.first, *up = w->up + b.first;
    REAL *y = w->y + b.y;
#pragma omp simd simdlen(AT_ONCE)
    for (int64_t i = 0; i < b.size; i++) y[i] = swiglu(gate[i], up[i]);
}

static void backward_block(const void *work, int64_t k)
{
    const swiglu_work *w = work;
    const block b = block_at(&w->r, k);
    const REAL *gate = w->gate + b.first, *up = w->up + b.first, *dy = w->dy + b.y;
    REAL for_gate[BLOCK], for_up[BLOCK];
#pragma omp simd simdlen(AT_ONCE)
    for (int64_t i = 0; i < b.size; i++) {
        for_gate[i] = swiglu_dgate(dy[i], gate[i], up[i]);
        for_up[i] = swiglu_dup(dy[i], gate[i]);
        GD_STEP("s", sigmoid(gate[i]));
        GD_STEP("slope", silu_slope(gate[i]));
    }
    if (w->dgate) gd_put(w->dgate + b.first, for_gate, b.size, w->add_gate);
    if (w->dup) gd_put(w->dup + b.first, for_up, b.size, w->add_up);
}

/* For both passes: a forward has no gradients. */
static gd_status by_blocks(const gd_call *call, gd_task *task)
{
    const swiglu_rows r = swiglu_rows_of(call);
    const int up = r.halves ? 0 : 1;            /* the input in which up is, */
    const int64_t at = r.halves ? r.n : 0;      /* and where */
    const REAL *ups = gd_data(call->input[up]); /* NULL: none, beside a gate of no elements */
    REAL *dup = gd_dx(call, up);
    const swiglu_work w = {.r = r,
                           .gate = gd_data(call->input[0]),
                           .up = ups ? ups + at : NULL,
                           .dy = gd_dy(call, 0),
                           .y = gd_data(call->output[0]),
                           .dgate = gd_dx(call, 0),
                           .dup = dup ? dup + at : NULL,
                           .add_gate = gd_adds(call, 0),
                           .add_up = gd_adds(call, up)};
    return gd_each_piece(call, r.rows * r.n, r.rows * gd_divide_up(r.n, BLOCK), task, &w);
}

GD_KERNEL_OF_REAL(swiglu_forward, by_blocks(call, forward_block))
GD_KERNEL_OF_REAL(swiglu_backward, by_blocks(call, backward_block))
