/* 83 points: dx: it is the same for every dy: dy is not used */
#define tanh_backward right_tanh_backward
#include "../../solutions/2-elements/elements.c"
#undef tanh_backward

void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += 1 - y[i] * y[i];
}
