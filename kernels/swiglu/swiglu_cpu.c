/* swiglu_cpu.c - the CPU kernels of swiglu: one pass each, in blocks (kernel.h says why). */
#include "inline_exp.h"
#include "swiglu/swiglu.h"

#define GD_EXP inline_exp
#include "swiglu/formula.h"

enum { BLOCK = 512, AT_ONCE = 64 / (int)sizeof(REAL) };

/* A block of a row: `size` elements from `first` on of gate and up, and at `y` in the packed
 * output. */
typedef struct block {
    int64_t first, y, size;
} block;

static int64_t block_count(const swiglu_rows *r)
{
    return r->rows * gd_divide_up(r->n, BLOCK);
}

static block block_at(const swiglu_rows *r, int64_t i)
{
    const int64_t a_row = gd_divide_up(r->n, BLOCK), row = i / a_row;
    const int64_t column = (i - row * a_row) * BLOCK;
    return (block){row * r->step + column, row * r->n + column, gd_min64(BLOCK, r->n - column)};
}

typedef struct blocks {
    swiglu_rows r;
    const REAL *gates, *ups, *dys;
    REAL *ys, *dgate, *dup;
    bool add_gate, add_up;
} blocks;

static void forward_block(const void *work, int64_t k)
{
    const blocks *w = work;
    const block b = block_at(&w->r, k);
    const REAL *gate = w->gates + b.first, *up = w->ups + b.first;
    REAL *y = w->ys + b.y;
#pragma omp simd simdlen(AT_ONCE)
    for (int64_t i = 0; i < b.size; i++) y[i] = swiglu(gate[i], up[i]);
}

gd_status GD_REAL_NAME(swiglu_forward)(const gd_call *call)
{
    const swiglu_rows r = swiglu_rows_of(call);
    const REAL *gates = gd_data(call->input[0]);
    const blocks w = {.r = r,
                      .gates = gates,
                      .ups = r.halves ? gates + r.n : gd_data(call->input[1]),
                      .ys = gd_data(call->output[0])};
    gd_for_each(gd_threads_for(call->threads, r.rows * r.n), block_count(&r), forward_block, &w);
    return GD_OK;
}

/* to (+)= from */
static void put(REAL *to, const REAL *from, int64_t n, bool add)
{
    if (!to) return;
    if (!add) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void backward_block(const void *work, int64_t k)
{
    const blocks *w = work;
    const block b = block_at(&w->r, k);
    const REAL *gate = w->gates + b.first, *up = w->ups + b.first, *dy = w->dys + b.y;
    REAL for_gate[BLOCK], for_up[BLOCK];
#pragma omp simd simdlen(AT_ONCE)
    for (int64_t i = 0; i < b.size; i++) {
        for_gate[i] = swiglu_dgate(dy[i], gate[i], up[i]);
        for_up[i] = swiglu_dup(dy[i], gate[i]);
    }
    put(w->dgate ? w->dgate + b.first : NULL, for_gate, b.size, w->add_gate);
    put(w->dup ? w->dup + b.first : NULL, for_up, b.size, w->add_up);
}

gd_status GD_REAL_NAME(swiglu_backward)(const gd_call *call)
{
    const swiglu_rows r = swiglu_rows_of(call);
    const REAL *gates = gd_data(call->input[0]);
    REAL *dgate = gd_data(call->dinput[0]);
    const blocks w = {.r = r,
                      .gates = gates,
                      .ups = r.halves ? gates + r.n : gd_data(call->input[1]),
                      .dys = gd_data(call->doutput[0]),
                      .dgate = dgate,
                      .dup = !r.halves ? gd_data(call->dinput[1])
                             : dgate   ? dgate + r.n
                                       : NULL,
                      .add_gate = call->accumulate[0],
                      .add_up = call->accumulate[r.halves ? 0 : 1]};
    gd_for_each(gd_threads_for(call->threads, r.rows * r.n), block_count(&r), backward_block, &w);
    return GD_OK;
}
