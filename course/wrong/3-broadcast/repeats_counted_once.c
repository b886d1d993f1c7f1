/* 85 points: of the dy summed into table[0, 0] only the last counts */
#define gather_backward right_gather_backward
#include "../../solutions/3-broadcast/broadcast.c"
#undef gather_backward

void gather_backward(int64_t count, int64_t n, const int32_t *index, const real *dy, real *dtable)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t last = i;
        for (int64_t k = i + 1; k < count; k++) last = index[k] == index[i] ? k : last;
        for (int64_t j = 0; last == i && j < n; j++) dtable[index[i] * n + j] += dy[i * n + j];
    }
}
