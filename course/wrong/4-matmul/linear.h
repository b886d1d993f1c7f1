/* linear.h - a linear layer's backward as most write it, of which a wrong solution defines one part
 * otherwise before it includes this file. matmul_backward is the solution's. */
#define linear_backward right_linear_backward
#include "../../solutions/4-matmul/matmul.c"
#undef linear_backward

#ifndef DBIAS
#define DBIAS \
    if (dbias) dbias[j] += dy[i * n + j]
#endif
#ifndef W
#define W w[j * k + p]
#endif
#ifndef DW
#define DW dw[j * k + p]
#endif
#ifndef FACTOR
#define FACTOR 1
#endif

void linear_backward(int64_t m, int64_t k, int64_t n, const real *x, const real *w, const real *dy,
                     real *dx, real *dw, real *dbias)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            DBIAS;
            for (int64_t p = 0; p < k; p++) {
                dx[i * k + p] += dy[i * n + j] * W;
                DW += dy[i * n + j] * x[i * k + p] * FACTOR;
            }
        }
}
