/* 25 points: the slope by leaf 1 is 0, by differences 1 */
#define tape_backward right_tape_backward
#include "../../solutions/1-tape/tape.c"
#undef tape_backward

void tape_backward(int64_t loss)
{
    for (int64_t i = 0; i < nodes; i++) tape[i].slope = 0;
    tape[loss].slope = 1;
    for (int64_t i = loss; i >= 0; i--) {
        tape[tape[i].a].slope += tape[i].slope * tape[i].by_a;
    }
}
