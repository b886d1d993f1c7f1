/* rms_norm.c - the backwards of RMSNorm, and of RMSNorm of a residual stream. */
#include "course.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of some rows of y[i][k] = x[i][k] rstd[i] w[k], rstd = 1 / sqrt(mean of x[i]^2 + eps): adds to dx
 * [rows, n], and what these rows give to dw to part [n]. */
void rms_norm_backward(int64_t rows, int64_t n, real eps, const real *x, const real *w,
                       const real *dy, real *dx, real *part)
{
    for (int64_t i = 0; i < rows; i++, x += n, dy += n, dx += n) {
        double squares = 0, dot = 0;
        for (int64_t k = 0; k < n; k++) squares += (double)x[k] * x[k];
        const double rstd = 1 / sqrt(squares / (double)n + eps);
        for (int64_t k = 0; k < n; k++) dot += (double)dy[k] * w[k] * x[k] * rstd;
        for (int64_t k = 0; k < n; k++) {
            const double xhat = x[k] * rstd;
            dx[k] += (real)(rstd * ((double)dy[k] * w[k] - xhat * dot / (double)n));
            part[k] += (real)(dy[k] * xhat);
        }
    }
}

/* Adds the sum of all parts [count, n] to dw [n]. */
void add_parts(int64_t count, int64_t n, const real *parts, real *dw)
{
    for (int64_t i = 0; i < count * n; i++) dw[i % n] += parts[i];
}

/* Of sum = x + branch and y = rms_norm(sum), where dy arrives at y, and dsum at the sum by other
 * ways: adds to dx, dbranch and part. */
void add_rms_norm_backward(int64_t rows, int64_t n, real eps, const real *sum, const real *w,
                           const real *dy, const real *dsum, real *dx, real *dbranch, real *part)
{
    /* what arrives at the sum, by y and by other ways: it reaches x and the branch */
    real *all = calloc((size_t)(rows * n + 1), sizeof *all);
    if (!all) abort();
    memcpy(all, dsum, (size_t)(rows * n) * sizeof *all);
    rms_norm_backward(rows, n, eps, sum, w, dy, all, part);
    for (int64_t i = 0; i < rows * n; i++) {
        dx[i] += all[i];
        dbranch[i] += all[i];
    }
    free(all);
}
