/* 40 points: by the chain rule */
#define tape_mul right_tape_mul
#include "../../solutions/1-tape/tape.c"
#undef tape_mul

int64_t tape_mul(int64_t a, int64_t b)
{
    return append(tape[a].value * tape[b].value, a, tape[a].value, b, tape[b].value);
}
