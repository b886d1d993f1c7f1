/* 85 points: what is computed after the loss has no part in its slopes */
#define tape_backward right_tape_backward
#include "../../solutions/1-tape/tape.c"
#undef tape_backward

void tape_backward(int64_t loss)
{
    for (int64_t i = 0; i < nodes; i++) tape[i].slope = 0;
    tape[nodes - 1].slope = 1;
    for (int64_t i = nodes - 1; i >= 0; i--) {
        tape[tape[i].a].slope += tape[i].slope * tape[i].by_a;
        tape[tape[i].b].slope += tape[i].slope * tape[i].by_b;
    }
}
