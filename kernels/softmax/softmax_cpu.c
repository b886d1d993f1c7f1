/* softmax_cpu.c - the CPU kernels of softmax and log_softmax.
 *
 * x is treated as [outer, N, inner] with the axis in the middle. A task is one outer index and up
 * to COLUMNS inner ones: its columns are processed together in the loops, so that memory is read in
 * order for every axis. With inner = 1 a task is a row, and the loops run along it instead. */
#include "softmax/formula.h"
#include "softmax/softmax.h"
#include "softmax/sum_exp.h"

enum { COLUMNS = 64 };

typedef struct view {
    int64_t outer, n, inner, tasks_inner; /* tasks_inner: tasks to one outer index */
    int threads;
    REAL *out; /* y, or dx */
    const REAL *x, *y, *dy;
    bool log_of, add;
} view;

static view view_of(const gd_call *call, const gd_tensor *t)
{
    const gd_softmax_args *args = call->args;
    view v = {.outer = 1, .n = gd_tensor_dim(t, args->axis), .inner = 1};
    for (int d = 0; d < args->axis; d++) v.outer *= gd_tensor_shape(t)[d];
    for (int d = args->axis + 1; d < gd_tensor_ndim(t); d++) v.inner *= gd_tensor_shape(t)[d];
    v.tasks_inner = gd_divide_up(v.inner, COLUMNS);
    v.threads = gd_threads_for(call->threads, 4 * gd_tensor_count(t));
    return v;
}

/* ---- One row: N numbers next to each other --------------------------------------------------- */

static void row_forward(REAL *y, const REAL *x, int64_t n, bool log_of)
{
    REAL max;
    double sum = gd_sum_exp(x, n, &max);
    const REAL s = (REAL)(log_of ? log(sum) : 1 / sum);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = softmax(x[i], max, s, log_of);
}

static void row_backward(REAL *dx, const REAL *y, const REAL *dy, int64_t n, bool log_of, bool add)
{
    double dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) dot += softmax_term(y[i], dy[i], log_of);
    REAL s = (REAL)dot;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        REAL d = log_of ? log_softmax_dx(y[i], dy[i], s) : softmax_dx(y[i], dy[i], s);
        dx[i] = add ? dx[i] + d : d;
    }
}

/* ---- Several columns, `stride` apart along the axis ------------------------------------------ */

static void columns_forward(REAL *y, const REAL *x, int64_t n, int64_t stride, int64_t columns,
                            bool log_of)
{
    REAL max[COLUMNS];
    double sum[COLUMNS] = {0};
    for (int64_t c = 0; c < columns; c++) max[c] = -(REAL)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < columns; c++) {
            max[c] = x[i * stride + c] > max[c] ? x[i * stride + c] : max[c];
        }
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            sum[c] += (double)GD_MATH(exp)(x[i * stride + c] - max[c]);
        }
    }
    for (int64_t c = 0; c < columns; c++) sum[c] = log_of ? log(sum[c]) : 1 / sum[c];
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            y[i * stride + c] = softmax(x[i * stride + c], max[c], (REAL)sum[c], log_of);
        }
    }
}

static void columns_backward(REAL *dx, const REAL *y, const REAL *dy, int64_t n, int64_t stride,
                             int64_t columns, bool log_of, bool add)
{
    double dot[COLUMNS] = {0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < columns; c++) {
            dot[c] += softmax_term(y[i * stride + c], dy[i * stride + c], log_of);
        }
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = i * stride + c;
            REAL s = (REAL)dot[c];
            REAL d = log_of ? log_softmax_dx(y[at], dy[at], s) : softmax_dx(y[at], dy[at], s);
            dx[at] = add ? dx[at] + d : d;
        }
    }
}

/* ---- All of them -------------------------------------------------------------------------- */

static void forward_task(const void *work, int64_t task)
{
    const view *v = work;
    if (v->inner == 1) {
        row_forward(v->out + task * v->n, v->x + task * v->n, v->n, v->log_of);
    } else {
        int64_t column = task % v->tasks_inner * COLUMNS;
        int64_t at = task / v->tasks_inner * v->n * v->inner + column;
        int64_t columns = gd_min64(COLUMNS, v->inner - column);
        columns_forward(v->out + at, v->x + at, v->n, v->inner, columns, v->log_of);
    }
}

static void backward_task(const void *work, int64_t task)
{
    const view *v = work;
    int64_t column = task % v->tasks_inner * COLUMNS;
    int64_t at = task / v->tasks_inner * v->n * v->inner + column;
    int64_t columns = gd_min64(COLUMNS, v->inner - column);
    REAL *dx = v->out + at;
    if (v->inner == 1) {
        row_backward(dx, v->y + at, v->dy + at, v->n, v->log_of, v->add);
    } else {
        columns_backward(dx, v->y + at, v->dy + at, v->n, v->inner, columns, v->log_of, v->add);
    }
}

static gd_status softmax_forward(const gd_call *call, bool log_of)
{
    view v = view_of(call, call->output[0]);
    if (gd_tensor_count(call->output[0]) == 0) return GD_OK;
    v.out = gd_data(call->output[0]);
    v.x = gd_data(call->input[0]);
    v.log_of = log_of;
    gd_for_each(v.threads, v.outer * v.tasks_inner, forward_task, &v);
    return GD_OK;
}

static gd_status softmax_backward(const gd_call *call, bool log_of)
{
    gd_tensor *gradient = call->dinput[0];
    if (!gradient || gd_tensor_count(gradient) == 0) return GD_OK;
    view v = view_of(call, gradient);
    v.out = gd_data(gradient);
    v.y = gd_data(call->output[0]);
    v.dy = gd_data(call->doutput[0]);
    v.log_of = log_of;
    v.add = call->accumulate[0];
    gd_for_each(v.threads, v.outer * v.tasks_inner, backward_task, &v);
    return GD_OK;
}

gd_status GD_REAL_NAME(softmax_forward)(const gd_call *call)
{
    return softmax_forward(call, false);
}

gd_status GD_REAL_NAME(softmax_backward)(const gd_call *call)
{
    return softmax_backward(call, false);
}

gd_status GD_REAL_NAME(log_softmax_forward)(const gd_call *call)
{
    return softmax_forward(call, true);
}

gd_status GD_REAL_NAME(log_softmax_backward)(const gd_call *call)
{
    return softmax_backward(call, true);
}
