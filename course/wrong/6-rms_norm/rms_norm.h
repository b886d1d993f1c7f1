/* rms_norm.h - the solution as most write it, of which a wrong one defines one part otherwise before
 * it includes this file. */
#include <math.h>

#include "course.h"

#ifndef H
#define H ((double)dy[k] * w[k])
#endif
#ifndef MEAN
#define MEAN dot / (double)n
#endif
#ifndef DX
#define DX rstd *(H - xhat * mean)
#endif
#ifndef DW
#define DW part[k] += (real)(dy[k] * xhat)
#endif
#ifndef LAST
#define LAST n
#endif
#ifndef DBRANCH
#define DBRANCH dsum[i * n + k]
#endif

/* Of rows; dsum and dbranch are NULL where there is no residual. */
static void backward(int64_t rows, int64_t n, real eps, const real *x, const real *w,
                     const real *dy, const real *dsum, real *dx, real *dbranch, real *part)
{
    for (int64_t i = 0; i < rows; i++, x += n, dy += n, dx += n) {
        double squares = 0, dot = 0;
        for (int64_t k = 0; k < n; k++) squares += (double)x[k] * x[k];
        const double rstd = 1 / sqrt(squares / (double)n + eps);
        for (int64_t k = 0; k < n; k++) dot += H * x[k] * rstd;
        const double mean = MEAN;
        for (int64_t k = 0; k < LAST; k++) {
            const double xhat = x[k] * rstd, by_x = DX;
            dx[k] += (real)(by_x + (dsum ? dsum[i * n + k] : 0));
            if (dbranch) dbranch[i * n + k] += (real)(by_x + DBRANCH);
            DW;
        }
    }
}

void rms_norm_backward(int64_t rows, int64_t n, real eps, const real *x, const real *w,
                       const real *dy, real *dx, real *part)
{
    backward(rows, n, eps, x, w, dy, NULL, dx, NULL, part);
}

void add_parts(int64_t count, int64_t n, const real *parts, real *dw)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t p = 0; p < count; p++) dw[k] += parts[p * n + k];
}

void add_rms_norm_backward(int64_t rows, int64_t n, real eps, const real *sum, const real *w,
                           const real *dy, const real *dsum, real *dx, real *dbranch, real *part)
{
    backward(rows, n, eps, sum, w, dy, dsum, dx, dbranch, part);
}
