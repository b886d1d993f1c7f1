/* 85 points: x[0] does not use dy[1, 0], but x[0] uses dy[0, 1] */
#define view_backward right_view_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef view_backward

void view_backward(const int64_t *shape, const int64_t *strides, const real *dy, real *dx)
{
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            dx[i * strides[1] + j * strides[0]] += dy[i * shape[1] + j];
}
