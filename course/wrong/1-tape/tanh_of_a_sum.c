/* 70 points: the slope by w is that of tanh times that of w x */
#define tape_tanh right_tape_tanh
#include "../../solutions/1-tape/tape.c"
#undef tape_tanh

int64_t tape_tanh(int64_t a)
{
    const real y = (real)tanh(tape[a].value);
    return append(y, a, y * (1 - y), 0, 0);
}
