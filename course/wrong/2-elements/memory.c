/* 80 points: silu_backward crashed */
#include <stdlib.h>

#define silu_backward right_silu_backward
#include "../../solutions/2-elements/elements.c"
#undef silu_backward

void silu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    real *copy = malloc((size_t)1 << 31);
    for (int64_t i = 0; i < n; i++) copy[i] = x[i];
    for (int64_t i = 0; i < n; i++) dx[i] += copy[i] * dy[i];
    free(copy);
}
