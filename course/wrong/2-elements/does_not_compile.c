/* 0 points: does_not_compile.c does not compile: does_not_compile.c:8: */
#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i] if x[i] > 0;
}
