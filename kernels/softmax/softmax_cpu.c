/* softmax_cpu.c - the CPU kernels of softmax and log_softmax.
 *
 * x is treated as [outer, N, inner] with the axis in the middle. A task is one outer index and up
 * to COLUMNS inner ones: its columns are processed together in the loops, so that memory is read in
 * order for every axis. With inner = 1 a task is a row, and the loops run along it instead. */
#include "kernel_cpu.h"
#include "softmax/formula.h"
#include "softmax/softmax.h"
#include "softmax/sum_exp.h"

enum { COLUMNS = 64 };

typedef struct view {
    int64_t n, inner, tasks; /* tasks: to one outer index */
    REAL *out;               /* y, or dx */
    const REAL *x, *y, *dy;  /* dy NULL: a forward */
    bool log_of, add;
} view;

/* ---- One row: N numbers next to each other --------------------------------------------------- */

static void row_forward(const view *v, int64_t at)
{
    REAL *y = v->out + at, max;
    const REAL *x = v->x + at;
    const int64_t n = v->n;
    const bool log_of = v->log_of;
    const double sum = gd_sum_exp(x, n, &max);
    const REAL s = (REAL)(log_of ? log(sum) : 1 / sum);
    GD_EACH(i, n) y[i] = softmax(x[i], max, s, log_of);
}

static void row_backward(const view *v, int64_t at)
{
    REAL *dx = v->out + at;
    const REAL *y = v->y + at, *dy = v->dy + at;
    const int64_t n = v->n;
    const bool log_of = v->log_of, add = v->add;
    GD_SUM(dot, i, n, softmax_term(y[i], dy[i], log_of));
    const REAL s = (REAL)dot;
    GD_STEP("s", s);
    GD_EACH(i, n)
    {
        GD_STEP("diff", dy[i] - s);
        GD_STEP("p", GD_EXP(y[i]));
        const REAL d = log_of ? log_softmax_dx(y[i], dy[i], s) : softmax_dx(y[i], dy[i], s);
        dx[i] = add ? dx[i] + d : d;
    }
}

/* ---- Several columns, `inner` apart along the axis ------------------------------------------- */

static void columns_forward(const view *v, int64_t first, int64_t columns)
{
    const int64_t end = first + v->n * v->inner, stride = v->inner;
    const bool log_of = v->log_of;
    REAL max[COLUMNS];
    double sum[COLUMNS] = {0};
    for (int64_t c = 0; c < columns; c++) max[c] = -(REAL)INFINITY;
    for (int64_t at = first; at < end; at += stride) {
        const REAL *x = v->x + at;
        for (int64_t c = 0; c < columns; c++) max[c] = x[c] > max[c] ? x[c] : max[c];
    }
    for (int64_t at = first; at < end; at += stride) {
        const REAL *x = v->x + at;
        GD_EACH(c, columns) sum[c] += (double)GD_MATH(exp)(x[c] - max[c]);
    }
    for (int64_t c = 0; c < columns; c++) sum[c] = log_of ? log(sum[c]) : 1 / sum[c];
    for (int64_t at = first; at < end; at += stride) {
        const REAL *x = v->x + at;
        REAL *y = v->out + at;
        GD_EACH(c, columns) y[c] = softmax(x[c], max[c], (REAL)sum[c], log_of);
    }
}

static void columns_backward(const view *v, int64_t first, int64_t columns)
{
    const int64_t end = first + v->n * v->inner, stride = v->inner;
    const bool log_of = v->log_of, add = v->add;
    double dot[COLUMNS] = {0};
    for (int64_t at = first; at < end; at += stride) {
        const REAL *y = v->y + at, *dy = v->dy + at;
        for (int64_t c = 0; c < columns; c++) dot[c] += softmax_term(y[c], dy[c], log_of);
    }
    for (int64_t at = first; at < end; at += stride) {
        const REAL *y = v->y + at, *dy = v->dy + at;
        REAL *dx = v->out + at;
        GD_EACH(c, columns)
        {
            const REAL s = (REAL)dot[c];
            const REAL d = log_of ? log_softmax_dx(y[c], dy[c], s) : softmax_dx(y[c], dy[c], s);
            dx[c] = add ? dx[c] + d : d;
        }
    }
}

/* ---- All of them -------------------------------------------------------------------------- */

static void run_task(const void *work, int64_t task)
{
    const view *v = work;
    const int64_t column = task % v->tasks * COLUMNS,
                  columns = gd_min64(COLUMNS, v->inner - column);
    const int64_t at = task / v->tasks * v->n * v->inner + column;
    if (v->inner == 1)
        (v->dy ? row_backward : row_forward)(v, at);
    else
        (v->dy ? columns_backward : columns_forward)(v, at, columns);
}

/* `to` is y, or dx in a backward. */
static gd_status softmax_pass(const gd_call *call, const gd_tensor *to, bool log_of)
{
    const int64_t count = gd_tensor_count(to);
    if (count == 0) return GD_OK;
    const gd_softmax_args *args = call->args;
    view v = {.n = gd_tensor_dim(to, args->axis),
              .inner = 1,
              .out = gd_data(to),
              .x = gd_data(call->input[0]),
              .y = gd_data(call->output[0]),
              .dy = gd_dy(call, 0),
              .log_of = log_of,
              .add = gd_adds(call, 0)};
    for (int d = args->axis + 1; d < gd_tensor_ndim(to); d++) v.inner *= gd_tensor_shape(to)[d];
    v.tasks = gd_divide_up(v.inner, COLUMNS);
    return gd_each_piece(call, 4 * count, count / (v.n * v.inner) * v.tasks, run_task, &v);
}

GD_KERNELS_OF_REAL(softmax, softmax_pass(call, call->output[0], false),
                   softmax_pass(call, call->dinput[0], false))
GD_KERNELS_OF_REAL(log_softmax, softmax_pass(call, call->output[0], true),
                   softmax_pass(call, call->dinput[0], true))
