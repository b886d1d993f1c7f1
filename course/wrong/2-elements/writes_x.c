/* 80 points: relu_backward wrote to x[0], which it may only read */
#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    for (int64_t i = 0; i < n; i++) {
        ((real *)x)[i] = x[i] > 0;
        dx[i] += x[i] * dy[i];
    }
}
