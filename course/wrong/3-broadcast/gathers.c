/* 82 points: of the dy summed into x[1] only the last counts: overwritten, not added */
#define view_backward right_view_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef view_backward

void view_backward(const int64_t *shape, const int64_t *strides, const real *dy, real *dx)
{
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            dx[i * strides[0] + j * strides[1]] = dy[i * shape[1] + j];
}
