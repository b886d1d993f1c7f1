/* 100 points: relu_backward printed "dx of 15": what a function prints is not graded */
#include <stdio.h>

#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    printf("dx of %d\n", (int)n);
    for (int64_t i = 0; i < n; i++) dx[i] += x[i] > 0 ? dy[i] : 0;
}
