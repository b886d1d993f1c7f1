/* 85 points: x[0, 0, 1] does not use dy[0, 1], but x[0, 0, 1] uses dy[0, 0] */
#define sum_backward right_sum_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef sum_backward

void sum_backward(int64_t outer, int64_t n, int64_t inner, const real *dy, real *dx)
{
    for (int64_t i = 0; i < outer * n * inner; i++) dx[i] += dy[i / inner % (outer * inner)];
}
