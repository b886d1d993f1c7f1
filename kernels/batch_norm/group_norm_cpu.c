/* group_norm_cpu.c - the CPU kernels of group_norm. */
#include "batch_norm/formula.h"
#include "batch_norm/group_norm.h"
#include "norms.h"

typedef struct group_work {
    gd_norm_rows v; /* a row is a group */
    gd_groups g;
} group_work;

static void forward_row(const void *work, int64_t row)
{
    const group_work *w = work;
    const gd_norm_rows v = w->v;
    const gd_groups g = w->g;
    double mean, rstd, scale[GD_STRIP], bias[GD_STRIP];
    gd_row_statistics(&v, row, &mean, &rstd);
    GD_EACH_STRIP(strip, g.channels, g.S)
    {
        const int64_t at = row * g.size + strip.first * g.S;
        for (int64_t c = 0, of = row % g.groups * g.channels + strip.first; c < strip.count;
             c++, of++)
            scale[c] = rstd * gd_or(v.weight, of, 1), bias[c] = gd_or(v.bias, of, 0);
        GD_CHANNEL_EACH(i, c, g.S, strip,
                        v.y[at + i] = (REAL)(((double)v.x[at + i] - mean) * scale[c] + bias[c]));
    }
}

typedef struct group_means {
    double x, rstd, h, hx; /* of x, h = dy weight and h xhat */
} group_means;

static inline double dx_of(const group_means *mean, double x, double h)
{
    const double xhat = norm_xhat(x - mean->x, mean->rstd);
    GD_STEP("xhat", xhat);
    GD_STEP("h", h);
    return norm_dx(mean->rstd, h, mean->h, xhat, mean->hx);
}

/* A group: the sums over each of its channels, which are its parts of db and dw, then dx, which may
 * be dy. */
static void backward_row(const void *work, int64_t row, double *dw, double *db)
{
    const group_work *w = work;
    const gd_norm_rows v = w->v;
    const gd_groups g = w->g;
    const int64_t first = row % g.groups * g.channels;
    const double mean = v.mean[row], rstd = v.rstd[row];
    double sum_h = 0, sum_hx = 0;
    GD_EACH_STRIP(strip, g.channels, g.S)
    {
        const REAL *x = v.x + row * g.size + strip.first * g.S;
        const REAL *dy = v.dy + row * g.size + strip.first * g.S;
        double sum[GD_STRIP] = {0}, product[GD_STRIP] = {0};
        GD_CHANNEL_SUMS(i, c, sum, product, g.S, strip, (double)dy[i],
                        (double)dy[i] * ((double)x[i] - mean) * rstd);
        for (int64_t i = 0, c = first + strip.first; i < strip.count; i++, c++) {
            const double weight = gd_or(v.weight, c, 1);
            if (db) db[c] += sum[i];     /* [group_norm db] */
            if (dw) dw[c] += product[i]; /* [group_norm dw] */
            sum_h += weight * sum[i], sum_hx += weight * product[i];
        }
    }
    const group_means means = {mean, rstd, sum_h / (double)g.size, sum_hx / (double)g.size};
    GD_STEP("mean", mean);
    GD_STEP("rstd", rstd);
    GD_STEP("mean_h", means.h);
    GD_STEP("mean_hx", means.hx);
    if (!v.dx) return;
    GD_EACH_STRIP(strip, g.channels, g.S)
    {
        const int64_t at = row * g.size + strip.first * g.S;
        double weight[GD_STRIP];
        for (int64_t c = 0; c < strip.count; c++)
            weight[c] = gd_or(v.weight, first + strip.first + c, 1);
        GD_CHANNEL_EACH(
            i, c, g.S, strip,
            gd_store(v.dx, at + i,
                     dx_of(&means, (double)v.x[at + i], (double)v.dy[at + i] * weight[c]), v.add));
    }
}

GD_COLUMNS_TASK(backward_piece, backward_row)

static group_work work_of(const gd_call *call)
{
    const gd_groups g = gd_groups_of(call);
    const double eps = ((const gd_group_norm_args *)call->args)->eps;
    return (group_work){gd_norm_rows_of(call, g.rows, g.size, eps), g};
}

gd_status GD_REAL_NAME(group_norm_forward)(const gd_call *call)
{
    const group_work w = work_of(call);
    const int64_t count = w.g.rows * w.g.size;
    return count ? gd_each_piece(call, count, w.g.rows, forward_row, &w) : GD_OK;
}

gd_status GD_REAL_NAME(group_norm_backward)(const gd_call *call)
{
    const group_work w = work_of(call);
    return gd_each_row(call, w.g.rows * w.g.size, w.g.rows, w.g.groups * w.g.channels,
                       backward_piece, &w);
}
