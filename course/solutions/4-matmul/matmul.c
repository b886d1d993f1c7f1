/* matmul.c - backwards of products of matrices. */
#include "course.h"

/* y = a b,  a [m, k], b [k, n], y [m, n] */
void matmul_backward(int64_t m, int64_t k, int64_t n, const real *a, const real *b, const real *dy,
                     real *da, real *db)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++) { /* a term of y[i][j]: a product of two */
                da[i * k + p] += dy[i * n + j] * b[p * n + j];
                db[p * n + j] += dy[i * n + j] * a[i * k + p];
            }
}

/* y = x w^T + bias,  x [m, k], w [n, k], bias [n], y [m, n]; without a bias dbias is NULL */
void linear_backward(int64_t m, int64_t k, int64_t n, const real *x, const real *w, const real *dy,
                     real *dx, real *dw, real *dbias)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            if (dbias) dbias[j] += dy[i * n + j];
            for (int64_t p = 0; p < k; p++) {
                dx[i * k + p] += dy[i * n + j] * w[j * k + p];
                dw[j * k + p] += dy[i * n + j] * x[i * k + p];
            }
        }
}
