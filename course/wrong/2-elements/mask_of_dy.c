/* 83 points: dx: it is not linear in dy */
#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i] > 0 ? dy[i] : 0;
}
