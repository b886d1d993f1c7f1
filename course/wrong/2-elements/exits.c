/* 80 points: tanh_backward ended the program, with status 0 */
#include <stdlib.h>

#define tanh_backward right_tanh_backward
#include "../../solutions/2-elements/elements.c"
#undef tanh_backward

void tanh_backward(int64_t n, const real *y, const real *dy, real *dx)
{
    (void)n, (void)y, (void)dy, (void)dx;
    exit(0);
}
