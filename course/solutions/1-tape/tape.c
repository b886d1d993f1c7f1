/* tape.c - a tape of at most 1000 numbers: what was computed, and its slopes by one walk back. */
#include "course.h"

#include <math.h>

/* A number, and what it was made of: dvalue/da and dvalue/db. */
typedef struct node {
    real value, slope, by_a, by_b;
    int64_t a, b;
} node;

static node tape[1000];
static int64_t nodes;

static int64_t append(real value, int64_t a, real by_a, int64_t b, real by_b)
{
    tape[nodes] = (node){value, 0, by_a, by_b, a, b};
    return nodes++;
}

/* Begins a new program: nothing is on the tape. */
void tape_clear(void)
{
    nodes = 0;
}

/* Each of these appends a number, and returns its place on the tape: 0 for the first. */
int64_t tape_leaf(real value)
{
    return append(value, 0, 0, 0, 0);
}

int64_t tape_add(int64_t a, int64_t b)
{
    return append(tape[a].value + tape[b].value, a, 1, b, 1);
}

int64_t tape_mul(int64_t a, int64_t b)
{
    return append(tape[a].value * tape[b].value, a, tape[b].value, b, tape[a].value);
}

int64_t tape_tanh(int64_t a)
{
    const real y = (real)tanh(tape[a].value);
    return append(y, a, 1 - y * y, 0, 0);
}

real tape_value(int64_t i)
{
    return tape[i].value;
}

/* Walks the tape back from a number, and computes the slope of this number by every other one. */
void tape_backward(int64_t loss)
{
    for (int64_t i = 0; i < nodes; i++) tape[i].slope = 0;
    tape[loss].slope = 1;
    for (int64_t i = loss; i >= 0; i--) {
        tape[tape[i].a].slope += tape[i].slope * tape[i].by_a;
        tape[tape[i].b].slope += tape[i].slope * tape[i].by_b;
    }
}

real tape_slope(int64_t i)
{
    return tape[i].slope;
}
