/* matmul.c - backwards of products of matrices. */
#include "course.h"

/* y = a b,  a [m, k], b [k, n], y [m, n] */
void matmul_backward(int64_t m, int64_t k, int64_t n, const real *a, const real *b, const real *dy,
                     real *da, real *db)
{
}

/* y = x w^T + bias,  x [m, k], w [n, k], bias [n], y [m, n]; without a bias dbias is NULL */
void linear_backward(int64_t m, int64_t k, int64_t n, const real *x, const real *w, const real *dy,
                     real *dx, real *dw, real *dbias)
{
}
