/* 85 points: dx: a constant factor 1/3 */
#define cube_backward right_cube_backward
#include "../../solutions/2-elements/elements.c"
#undef cube_backward

void cube_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += x[i] * x[i] * dy[i];
}
