/* rms_norm.c - the backwards of RMSNorm, and of RMSNorm of a residual stream. */
#include "course.h"

/* Of some rows of y[i][k] = x[i][k] rstd[i] w[k], rstd = 1 / sqrt(mean of x[i]^2 + eps): adds to dx
 * [rows, n], and what these rows give to dw to part [n]. */
void rms_norm_backward(int64_t rows, int64_t n, real eps, const real *x, const real *w,
                       const real *dy, real *dx, real *part)
{
}

/* Adds the sum of all parts [count, n] to dw [n]. */
void add_parts(int64_t count, int64_t n, const real *parts, real *dw) {}

/* Of sum = x + branch and y = rms_norm(sum), where dy arrives at y, and dsum at the sum by other
 * ways: adds to dx, dbranch and part. */
void add_rms_norm_backward(int64_t rows, int64_t n, real eps, const real *sum, const real *w,
                           const real *dy, const real *dsum, real *dx, real *dbranch, real *part)
{
}
