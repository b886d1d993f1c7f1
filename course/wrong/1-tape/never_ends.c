/* 0 points: run_program did not return within 0.5 s of processor time */
#define tape_backward right_tape_backward
#include "../../solutions/1-tape/tape.c"
#undef tape_backward

void tape_backward(int64_t loss)
{
    for (int64_t i = 0; i < nodes; i++) tape[i].slope = 0;
    tape[loss].slope = 1;
    for (volatile int64_t i = loss; i >= 0; i += 0) {
        tape[tape[i].a].slope += tape[i].slope * tape[i].by_a;
        tape[tape[i].b].slope += tape[i].slope * tape[i].by_b;
    }
}
