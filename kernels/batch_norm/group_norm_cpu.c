/* group_norm_cpu.c - the CPU kernels of group_norm. The variance is taken around the mean in a second
 * pass over a group, which is in cache. */
#include "batch_norm/formula.h"
#include "batch_norm/group_norm.h"
#include "kernel.h"

typedef struct group_work {
    gd_groups g;
    const REAL *x, *weight, *bias, *dy;
    REAL *y, *dx;
    double *mean, *rstd; /* [rows], or NULL in a forward */
    double *dw, *db;     /* [pieces, groups * channels] */
    double eps;
    int64_t pieces;
    bool add; /* into dx */
} group_work;

static void forward_row(const void *work, int64_t row)
{
    const group_work *w = work;
    const gd_groups g = w->g;
    const REAL *x = w->x + row * g.size;
    const int64_t first = row % g.groups * g.channels;
    double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < g.size; i++) sum += (double)x[i];
    const double mean = sum / (double)g.size;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < g.size; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double rstd = 1 / sqrt(squares / (double)g.size + w->eps);
    for (int64_t c = 0; c < g.channels; c++) {
        const double scale = rstd * (w->weight ? (double)w->weight[first + c] : 1);
        const double bias = w->bias ? (double)w->bias[first + c] : 0;
        const int64_t at = row * g.size + c * g.S;
        for (int64_t i = at; i < at + g.S; i++)
            w->y[i] = (REAL)(((double)w->x[i] - mean) * scale + bias);
    }
    if (w->mean) w->mean[row] = mean, w->rstd[row] = rstd;
}

gd_status GD_REAL_NAME(group_norm_forward)(const gd_call *call)
{
    const gd_group_norm_args *args = call->args;
    const group_work w = {.g = gd_groups_of(call),
                          .x = gd_data(call->input[0]),
                          .weight = gd_data(call->input[1]),
                          .bias = gd_data(call->input[2]),
                          .y = gd_data(call->output[0]),
                          .mean = gd_data(call->save[0]),
                          .rstd = gd_data(call->save[1]),
                          .eps = args->eps};
    const int64_t count = w.g.rows * w.g.size;
    if (count) gd_for_each(gd_threads_for(call->threads, count), w.g.rows, forward_row, &w);
    return GD_OK;
}

/* A group: the sums over each of its channels, which are its parts of db and dw, then dx, which may
 * be dy. */
static void backward_row(const group_work *w, int64_t row, double *dw, double *db)
{
    const gd_groups g = w->g;
    const int64_t first = row % g.groups * g.channels;
    const double mean = w->mean[row], rstd = w->rstd[row];
    double sum_h = 0, sum_hx = 0;
    for (int64_t c = 0; c < g.channels; c++) {
        const REAL *x = w->x + row * g.size + c * g.S, *dy = w->dy + row * g.size + c * g.S;
        const double weight = w->weight ? (double)w->weight[first + c] : 1;
        double sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
        for (int64_t i = 0; i < g.S; i++) {
            sum += (double)dy[i];
            product += (double)dy[i] * ((double)x[i] - mean) * rstd;
        }
        db[first + c] += sum;     /* [group_norm db] */
        dw[first + c] += product; /* [group_norm dw] */
        sum_h += weight * sum, sum_hx += weight * product;
    }
    const double mean_h = sum_h / (double)g.size, mean_hx = sum_hx / (double)g.size;
    for (int64_t c = 0; c < g.channels && w->dx; c++) {
        const double weight = w->weight ? (double)w->weight[first + c] : 1;
        const int64_t at = row * g.size + c * g.S;
        for (int64_t i = at; i < at + g.S; i++) {
            const double h = (double)w->dy[i] * weight,
                         xhat = norm_xhat((double)w->x[i] - mean, rstd);
            const double value = norm_dx(rstd, h, mean_h, xhat, mean_hx);
            w->dx[i] = (REAL)(w->add ? (double)w->dx[i] + value : value);
        }
    }
}

static void backward_piece(const void *work, int64_t piece)
{
    const group_work *w = work;
    const int64_t C = w->g.groups * w->g.channels;
    const int64_t end = w->g.rows * (piece + 1) / w->pieces;
    for (int64_t row = w->g.rows * piece / w->pieces; row < end; row++)
        backward_row(w, row, w->dw + piece * C, w->db + piece * C);
}

/* dw or db [C] from the sums of the pieces, in order. */
static void add_pieces(const gd_call *call, int input, const double *sums, int64_t pieces,
                       int64_t C)
{
    REAL *to = gd_data(call->dinput[input]);
    for (int64_t c = 0; to && c < C; c++) {
        double sum = call->accumulate[input] ? (double)to[c] : 0;
        for (int64_t p = 0; p < pieces; p++) sum += sums[p * C + c];
        to[c] = (REAL)sum;
    }
}

gd_status GD_REAL_NAME(group_norm_backward)(const gd_call *call)
{
    enum { PIECES = 16 };
    group_work w = {.g = gd_groups_of(call),
                    .x = gd_data(call->input[0]),
                    .weight = gd_data(call->input[1]),
                    .dy = gd_data(call->doutput[0]),
                    .dx = gd_data(call->dinput[0]),
                    .mean = gd_data(call->save[0]),
                    .rstd = gd_data(call->save[1]),
                    .add = call->accumulate[0]};
    const int64_t C = w.g.groups * w.g.channels;
    w.pieces = gd_min64(w.g.rows, PIECES);
    const size_t bytes = 2 * (size_t)(w.pieces * C) * sizeof(double);
    w.dw = gd_call_scratch(call, bytes);
    if (!w.dw) return gd_error_status(call->context);
    memset(w.dw, 0, bytes);
    w.db = w.dw + w.pieces * C;
    if (w.g.size)
        gd_for_each(gd_threads_for(call->threads, w.g.rows * w.g.size), w.pieces, backward_piece,
                    &w);
    add_pieces(call, 1, w.dw, w.pieces, C);
    add_pieces(call, 2, w.db, w.pieces, C);
    return GD_OK;
}
