/* test.c - assignment 1: losses and slopes of programs that a tape records. */
#include "grader.h"

#include "calls.h"

typedef struct program {
    const char *name, *hint;
    int64_t n[CHILD_SIZES];
} program;

static const program programs[] = {
    {"a + b",
     "begin here: tape_leaf, tape_add and tape_value; then the slope of a sum is 1 by each",
     {2, 1, 0, ADD, 0, 1}},
    {"tanh(w x + b)",
     "the slope by w is that of tanh times that of w x, by the chain rule",
     {3, 3, 2, MUL, 0, 1, ADD, 3, 2, TANH, 4, 4}},
    {"x x x + x",
     "x is read four times, and gets a term for each",
     {1, 3, 2, MUL, 0, 0, MUL, 1, 0, ADD, 2, 0}},
    {"four steps of a recurrence",
     "h = tanh(w h + x): the slope of h is complete when all that read h are done",
     {3, 12,  11, MUL, 0,   1, ADD, 3,    2,  TANH, 4,   4, MUL, 0,   5,  ADD, 6,    2,  TANH, 7,
      7, MUL, 0,  8,   ADD, 9, 2,   TANH, 10, 10,   MUL, 0, 11,  ADD, 12, 2,   TANH, 13, 13}},
    {"more after the loss",
     "what is computed after the loss has no part in its slopes",
     {2, 3, 0, MUL, 0, 1, TANH, 2, 2, ADD, 3, 0}}};

static double loss_of(const int64_t *n, const double *x)
{
    double value[NUMBERS];
    memcpy(value, x, (size_t)n[LEAVES] * sizeof *x);
    for (int64_t k = 0; k <= n[LOSS]; k++) {
        const int64_t *step = n + FIRST + 3 * k;
        const double a = value[step[1]], b = value[step[2]];
        value[n[LEAVES] + k] = step[0] == ADD ? a + b : step[0] == MUL ? a * b : tanh(a);
    }
    return value[n[LEAVES] + n[LOSS]];
}

/* Judges the program with real as float or as double. */
static void check_program(grader *g, grader_row *row, const program *p, bool is_float)
{
    const int64_t count = p->n[LEAVES];
    const double most = is_float ? 1e-5 : 1e-9, h = 1e-5, begin = (double)(g->seed % 1000);
    double x[NUMBERS], slopes[NUMBERS] = {0}, got = 0;
    for (int i = 0; i < count; i++) x[i] = (float)sin(begin + 3 * i + 1);
    const student_array a[] = {{"x", x, count, sizeof *x, false},
                               {"the loss", &got, 1, sizeof *x, true},
                               {"the slopes", slopes, count, sizeof *x, true}};
    if (student_call(&g->student, is_float, "run_program", p->n, a, 3)) {
        grader_no_points(row, "%s", g->student.why);
        return;
    }
    const double loss = loss_of(p->n, x);
    grader_cell(row, 0, 0, fabs(got - loss) <= most, "the loss is %.6g, wanted %.6g; %s", got, loss,
                p->hint);
    for (int64_t i = 0; i < count; i++) {
        const double before = x[i];
        x[i] = before + h;
        const double above = loss_of(p->n, x);
        x[i] = before - h;
        const double numeric = (above - loss_of(p->n, x)) / (2 * h);
        x[i] = before;
        grader_cell(row, 1, 0, fabs(slopes[i] - numeric) <= most + 1e-8,
                    "the slope by leaf %d is %.6g, by differences %.6g; %s", (int)i, slopes[i],
                    numeric, p->hint);
    }
}

static void more(grader *g)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        grader_row *row = grader_add_row(g, programs[i].name);
        grader_cell(row, 0, 5, true, "%s", "");
        grader_cell(row, 1, 15, true, "%s", "");
        for (int is_float = 0; is_float < 2; is_float++)
            check_program(g, row, &programs[i], is_float);
    }
}

const grader_assignment grader_this = {
    .name = "1-tape", .columns = {"losses", "slopes"}, .more = more};
