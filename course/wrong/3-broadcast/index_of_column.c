/* 85 points: table[0, 1] does not use dy[0, 1], but table[0, 0] uses dy[1, 0] */
#define gather_backward right_gather_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef gather_backward

void gather_backward(int64_t count, int64_t n, const int32_t *index, const real *dy, real *dtable)
{
    for (int64_t i = 0; i < count * n; i++) dtable[index[i % n] * n + i % n] += dy[i];
}
