/* plain_cpu.c - batch_norm as README.md derives it, channel by channel. It has the interface of
 * batch_norm_cpu.c's kernels, which tests compare with it, but saves nothing and leaves the running
 * statistics as they are. */
#include "batch_norm/batch_norm.h"
#include "batch_norm/formula.h"
#include "kernel_cpu.h"

/* for each of the elements `at` of channel c */
#define EACH_OF_CHANNEL(at, s, c)                            \
    for (int64_t e = 0, at = (c) * (s).S; e < (s).B * (s).S; \
         e++, at = (e / (s).S * (s).C + (c)) * (s).S + e % (s).S)

/* Forward and backward, which has a dy. */
static gd_status plain(const gd_call *call, bool fixed)
{
    const gd_channels s = gd_channels_of(call->input[BATCH_X]);
    const double n = (double)(s.B * s.S), eps = ((const gd_batch_norm_args *)call->args)->eps;
    const REAL *x = gd_data(call->input[BATCH_X]), *weight = gd_data(call->input[BATCH_WEIGHT]);
    const REAL *bias = gd_data(call->input[BATCH_BIAS]), *dy = gd_dy(call, 0);
    const REAL *given_mean = gd_data(call->input[BATCH_MEAN]);
    const REAL *given_var = gd_data(call->input[BATCH_VAR]);
    REAL *y = gd_data(call->output[0]), *dx = gd_dx(call, BATCH_X);
    REAL *dw = gd_dx(call, BATCH_WEIGHT), *db = gd_dx(call, BATCH_BIAS);
    for (int64_t c = 0; c < s.C; c++) {
        const double w = gd_or(weight, c, 1), b = gd_or(bias, c, 0);
        double sum = 0, squares = 0, sum_d = 0, sum_dx = 0;
        EACH_OF_CHANNEL(at, s, c) sum += (double)x[at];
        const double mean = fixed ? (double)given_mean[c] : sum / n;
        EACH_OF_CHANNEL(at, s, c) squares += ((double)x[at] - mean) * ((double)x[at] - mean);
        const double var = fixed ? (double)given_var[c] : squares / n, rstd = 1 / sqrt(var + eps);
        GD_STEP("mean", mean);
        GD_STEP("v", var);
        GD_STEP("rstd", rstd);
        if (!dy) {
            EACH_OF_CHANNEL(at, s, c) y[at] = (REAL)(w * norm_xhat((double)x[at] - mean, rstd) + b);
            continue;
        }
        EACH_OF_CHANNEL(at, s, c) sum_d += (double)dy[at];
        EACH_OF_CHANNEL(at, s, c) sum_dx += (double)dy[at] * ((double)x[at] - mean);
        const double dw_c = batch_norm_dw(sum_dx, rstd, n);
        const double mean_d = batch_norm_mean(sum_d, n, fixed);
        const double mean_dx = batch_norm_mean(dw_c, n, fixed);
        if (db) gd_store(db, c, sum_d, gd_adds(call, BATCH_BIAS));
        if (dw) gd_store(dw, c, dw_c, gd_adds(call, BATCH_WEIGHT));
        if (!dx) continue;
        EACH_OF_CHANNEL(at, s, c)
        {
            const double xhat = norm_xhat((double)x[at] - mean, rstd);
            GD_STEP("xhat", xhat);
            double value = w * rstd * (double)dy[at]; /* [batch_norm_fixed] */
            if (!fixed) value = norm_dx(w * rstd, (double)dy[at], mean_d, xhat, mean_dx);
            gd_store(dx, at, value, gd_adds(call, BATCH_X));
        }
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(batch_norm_plain, plain(call, false), plain(call, false))
GD_KERNELS_OF_REAL(batch_norm_fixed_plain, plain(call, true), plain(call, true))
