/* 85 points: dx: it is dy y/x */
#define silu_backward right_silu_backward
#include "../../solutions/2-elements/elements.c"
#undef silu_backward

void silu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i] / (real)(1 + exp(-x[i]));
}
