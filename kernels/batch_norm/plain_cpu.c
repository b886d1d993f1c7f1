/* plain_cpu.c - batch_norm as README.md derives it, channel by channel. It has the interface of
 * batch_norm_cpu.c's kernels, which tests compare with it, but saves nothing and leaves the running
 * statistics as they are. */
#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "loops.h"

/* for each of the elements `at` of channel c */
#define EACH_OF_CHANNEL(at, s, c)                            \
    for (int64_t e = 0, at = (c) * (s).S; e < (s).B * (s).S; \
         e++, at = (e / (s).S * (s).C + (c)) * (s).S + e % (s).S)

/* [C] or NULL as a number. */
static double of_channel(const gd_tensor *t, int64_t c, double otherwise)
{
    return t ? (double)((const REAL *)gd_data(t))[c] : otherwise;
}

static void statistics(const gd_call *call, gd_channels s, int64_t c, bool fixed, double *mean,
                       double *rstd)
{
    const REAL *x = gd_data(call->input[BATCH_X]);
    const double n = (double)(s.B * s.S);
    double sum = 0, squares = 0;
    EACH_OF_CHANNEL(at, s, c) sum += (double)x[at];
    *mean = fixed ? of_channel(call->input[BATCH_MEAN], c, 0) : sum / n;
    EACH_OF_CHANNEL(at, s, c) squares += ((double)x[at] - *mean) * ((double)x[at] - *mean);
    const double var = fixed ? of_channel(call->input[BATCH_VAR], c, 0) : squares / n;
    *rstd = 1 / sqrt(var + ((const gd_batch_norm_args *)call->args)->eps);
    GD_STEP("mean", *mean);
    GD_STEP("v", var);
    GD_STEP("rstd", *rstd);
}

static gd_status plain_forward(const gd_call *call, bool fixed)
{
    const gd_channels s = gd_channels_of(call->input[BATCH_X]);
    const REAL *x = gd_data(call->input[BATCH_X]);
    REAL *y = gd_data(call->output[0]);
    for (int64_t c = 0; c < s.C; c++) {
        double mean, rstd;
        statistics(call, s, c, fixed, &mean, &rstd);
        const double w = of_channel(call->input[BATCH_WEIGHT], c, 1),
                     b = of_channel(call->input[BATCH_BIAS], c, 0);
        EACH_OF_CHANNEL(at, s, c) y[at] = (REAL)(w * norm_xhat((double)x[at] - mean, rstd) + b);
    }
    return GD_OK;
}

static gd_status plain_backward(const gd_call *call, bool fixed)
{
    const gd_channels s = gd_channels_of(call->input[BATCH_X]);
    const REAL *x = gd_data(call->input[BATCH_X]), *dy = gd_dy(call, 0);
    REAL *dx = gd_dx(call, BATCH_X), *dw = gd_dx(call, BATCH_WEIGHT), *db = gd_dx(call, BATCH_BIAS);
    const double n = (double)(s.B * s.S);
    for (int64_t c = 0; c < s.C; c++) {
        double mean, rstd, sum_d = 0, sum_dx = 0;
        statistics(call, s, c, fixed, &mean, &rstd);
        EACH_OF_CHANNEL(at, s, c) sum_d += (double)dy[at];
        EACH_OF_CHANNEL(at, s, c) sum_dx += (double)dy[at] * ((double)x[at] - mean);
        const double w = of_channel(call->input[BATCH_WEIGHT], c, 1);
        const double dw_c = batch_norm_dw(sum_dx, rstd, n);
        const double mean_d = batch_norm_mean(sum_d, n, fixed),
                     mean_dx = batch_norm_mean(dw_c, n, fixed);
        if (db) db[c] = (REAL)((gd_adds(call, BATCH_BIAS) ? (double)db[c] : 0) + sum_d);
        if (dw) dw[c] = (REAL)((gd_adds(call, BATCH_WEIGHT) ? (double)dw[c] : 0) + dw_c);
        if (!dx) continue;
        EACH_OF_CHANNEL(at, s, c)
        {
            const double xhat = norm_xhat((double)x[at] - mean, rstd);
            GD_STEP("xhat", xhat);
            const double d = norm_dx(w * rstd, (double)dy[at], mean_d, xhat, mean_dx);
            dx[at] = (REAL)((gd_adds(call, BATCH_X) ? (double)dx[at] : 0) + d);
        }
    }
    return GD_OK;
}

GD_KERNEL_OF_REAL(batch_norm_plain_forward, plain_forward(call, false))
GD_KERNEL_OF_REAL(batch_norm_plain_backward, plain_backward(call, false))
GD_KERNEL_OF_REAL(batch_norm_fixed_plain_forward, plain_forward(call, true))
GD_KERNEL_OF_REAL(batch_norm_fixed_plain_backward, plain_backward(call, true))
