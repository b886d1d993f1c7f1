/* 80 points: view_backward wrote outside of an array, to dx[5]: dx has 5 elements */
#define view_backward right_view_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef view_backward

void view_backward(const int64_t *shape, const int64_t *strides, const real *dy, real *dx)
{
    (void)strides;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++) dx[i * shape[1] + j] += dy[i * shape[1] + j];
}
