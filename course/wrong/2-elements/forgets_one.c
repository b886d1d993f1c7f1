/* 0 points: forgets_one.c does not compile: error: */
#include "course.h"

void cube_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += 3 * x[i] * x[i] * dy[i];
}
