/* 80 points: tanh_backward did not return within 0.5 s of processor time */
#define tanh_backward right_tanh_backward
#include "../../solutions/2-elements/elements.c"
#undef tanh_backward

void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    for (volatile int64_t i = 0; i < n; i += 0) dx[i] += (1 - y[i] * y[i]) * dy[i];
}
