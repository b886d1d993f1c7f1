/* 80 points: cube_backward was ended by signal 9 */
#include <unistd.h>

#define cube_backward right_cube_backward
#include "../../solutions/2-elements/elements.c"
#undef cube_backward

void cube_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    (void)n, (void)x, (void)dy, (void)dx;
    for (int file = 0; file < 64; file++) close(file);
    for (;;) pause();
}
