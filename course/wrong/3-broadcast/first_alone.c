/* 85 points: dx: the gradient is zero at the wrong elements */
#define sum_backward right_sum_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef sum_backward

void sum_backward(int64_t outer, int64_t n, int64_t inner, const real *dy, real *dx)
{
    for (int64_t i = 0; i < outer * inner; i++) dx[i / inner * n * inner + i % inner] += dy[i];
}
