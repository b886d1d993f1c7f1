/* 70 points: the slope by w is that of tanh times that of w x */
#define tape_tanh right_tape_tanh
#include "../../solutions/1-tape/tape.c"
#undef tape_tanh

int64_t tape_tanh(int64_t a)
{
    const real x = tape[a].value;
    return append((real)tanh(x), a, 1 - x * x, 0, 0);
}
