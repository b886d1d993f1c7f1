/* tape.c - a tape of numbers: what was computed, and its slopes by one walk back. */
#include "course.h"

/* What the tape remembers of a number is yours to choose; a program has at most 1000. */

/* Begins a new program: nothing is on the tape. */
void tape_clear(void) {}

/* Each of these appends a number, and returns its place on the tape: 0 for the first. */
int64_t tape_leaf(real value)
{
    return 0;
}

int64_t tape_add(int64_t a, int64_t b)
{
    return 0;
}

int64_t tape_mul(int64_t a, int64_t b)
{
    return 0;
}

int64_t tape_tanh(int64_t a)
{
    return 0;
}

real tape_value(int64_t i)
{
    return 0;
}

/* Walks the tape back from a number, and computes the slope of this number by every other one. */
void tape_backward(int64_t loss) {}

real tape_slope(int64_t i)
{
    return 0;
}
