/* 85 points: the gradient is zero at the wrong elements, all in row 2 (the last) */
#define tanh_backward right_tanh_backward
#include "../../solutions/2-elements/elements.c"
#undef tanh_backward

void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n - n % 4; i++) dx[i] += (1 - y[i] * y[i]) * dy[i];
}
