/* elements.c - backwards of functions of each element. */
#include "course.h"

#include <math.h>

/* y = x^3 */
void cube_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += 3 * x[i] * x[i] * dy[i];
}

/* y = max(x, 0) */
void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += x[i] > 0 ? dy[i] : 0;
}

/* y = tanh(x), of which y is given */
void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += (1 - y[i] * y[i]) * dy[i];
}

/* y = x / (1 + exp(-x)) */
void silu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) {
        const real s = (real)(1 / (1 + exp(-x[i])));
        dx[i] += (s + x[i] * s * (1 - s)) * dy[i];
    }
}

/* y = a / b */
void divide_backward(int64_t n, const real *a, const real *b, const real *dy, real *da, real *db)
{
    for (int64_t i = 0; i < n; i++) {
        da[i] += dy[i] / b[i];
        db[i] -= dy[i] * a[i] / (b[i] * b[i]);
    }
}
