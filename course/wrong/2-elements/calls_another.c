/* 0 points: cannot be linked with libc and libm alone: undefined */
#include "course.h"

real step(real x);

#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += step(x[i]) * dy[i];
}
