/* group_norm_cpu.c - the CPU kernels of group_norm. */
#include "batch_norm/formula.h"
#include "batch_norm/group_norm.h"
#include "loops.h"

typedef struct group_work {
    gd_groups g;
    const REAL *x, *weight, *bias, *dy;
    REAL *y, *dx;
    double *mean, *rstd; /* [rows], or NULL in a forward */
    gd_columns columns;  /* of the rows; n = groups * channels */
    double eps;
    bool add; /* into dx */
} group_work;

static void forward_row(const void *work, int64_t row)
{
    const group_work *w = work;
    const gd_groups g = w->g;
    const int64_t first = row % g.groups * g.channels;
    double mean, rstd;
    gd_row_statistics(w->x + row * g.size, g.size, w->eps, &mean, &rstd);
    for (int64_t c = 0; c < g.channels; c++) {
        const double scale = rstd * (w->weight ? (double)w->weight[first + c] : 1);
        const double bias = w->bias ? (double)w->bias[first + c] : 0;
        const int64_t at = row * g.size + c * g.S;
        for (int64_t i = at; i < at + g.S; i++)
            w->y[i] = (REAL)(((double)w->x[i] - mean) * scale + bias);
    }
    if (w->mean) w->mean[row] = mean, w->rstd[row] = rstd;
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
    GD_STEP("mean", mean);
    GD_STEP("rstd", rstd);
    GD_STEP("mean_h", mean_h);
    GD_STEP("mean_hx", mean_hx);
    for (int64_t c = 0; c < g.channels && w->dx; c++) {
        const double weight = w->weight ? (double)w->weight[first + c] : 1;
        const int64_t at = row * g.size + c * g.S;
        for (int64_t i = at; i < at + g.S; i++) {
            const double h = (double)w->dy[i] * weight,
                         xhat = norm_xhat((double)w->x[i] - mean, rstd);
            const double value = norm_dx(rstd, h, mean_h, xhat, mean_hx);
            GD_STEP("xhat", xhat);
            GD_STEP("h", h);
            w->dx[i] = (REAL)(w->add ? (double)w->dx[i] + value : value);
        }
    }
}

static void backward_piece(const void *work, int64_t p)
{
    const group_work *w = work;
    const gd_columns *c = &w->columns;
    const int64_t end = gd_columns_row(c, p + 1);
    for (int64_t row = gd_columns_row(c, p); row < end; row++)
        backward_row(w, row, c->dw + p * c->n, c->db + p * c->n);
}

static group_work work_of(const gd_call *call)
{
    return (group_work){.g = gd_groups_of(call),
                        .x = gd_data(call->input[0]),
                        .weight = gd_data(call->input[1]),
                        .bias = gd_data(call->input[2]),
                        .dy = gd_dy(call, 0),
                        .y = gd_data(call->output[0]),
                        .dx = gd_dx(call, 0),
                        .mean = gd_data(call->save[0]),
                        .rstd = gd_data(call->save[1]),
                        .eps = ((const gd_group_norm_args *)call->args)->eps,
                        .add = gd_adds(call, 0)};
}

gd_status GD_REAL_NAME(group_norm_forward)(const gd_call *call)
{
    const group_work w = work_of(call);
    const int64_t count = w.g.rows * w.g.size;
    return count ? gd_each_piece(call, count, w.g.rows, forward_row, &w) : GD_OK;
}

gd_status GD_REAL_NAME(group_norm_backward)(const gd_call *call)
{
    group_work w = work_of(call);
    gd_columns *c = &w.columns;
    if (!gd_columns_begin(call, w.g.rows, w.g.groups * w.g.channels, c))
        return gd_error_status(call->context);
    if (w.g.size) gd_each_piece(call, w.g.rows * w.g.size, c->pieces, backward_piece, &w);
    gd_columns_store(gd_dx(call, 1), c->dw, c->pieces, c->n, gd_adds(call, 1));
    gd_columns_store(gd_dx(call, 2), c->db, c->pieces, c->n, gd_adds(call, 2));
    return GD_OK;
}
