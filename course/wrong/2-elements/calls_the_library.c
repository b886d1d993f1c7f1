/* 0 points: calls_the_library.c calls gd_relu_backward, a function of the library */
#include "course.h"

void gd_relu_backward(int64_t n, const real *x, const real *dy, real *dx);

#define relu_backward right_relu_backward
#include "../../solutions/2-elements/elements.c"
#undef relu_backward

void relu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    gd_relu_backward(n, x, dy, dx);
}
