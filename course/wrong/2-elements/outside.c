/* 80 points: tanh_backward wrote outside of an array, to dx[15]: dx has 15 elements */
#define tanh_backward right_tanh_backward
#include "../../solutions/2-elements/elements.c"
#undef tanh_backward

void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < (n + 3) / 4 * 4; i++) dx[i] += (1 - y[i] * y[i]) * dy[i];
}
