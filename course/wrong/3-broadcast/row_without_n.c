/* 85 points: table[1, 0] does not use dy[6, 0], but table[0, 1] uses dy[6, 0] */
#define gather_backward right_gather_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef gather_backward

void gather_backward(int64_t count, int64_t n, const int32_t *index, const real *dy, real *dtable)
{
    for (int64_t i = 0; i < count * n; i++) dtable[index[i / n] + i % n] += dy[i];
}
