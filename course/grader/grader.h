/* grader.h - what a test.c says about its assignment, and how it adds rows to the table. */
#ifndef COURSE_GRADER_H
#define COURSE_GRADER_H

#include <gradus/gradus.h>
#include <math.h> /* for every forward */
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "student.h"

enum { GRADER_COLUMNS = 4, GRADER_ROWS = 24 };

typedef struct grader grader;
typedef struct grader_function grader_function;

/* A backward that gradcheck judges. Its points, a multiple of 20, are divided so: 60 in 100 for
 * values, which must be right in float64 and float32; 15 for adding into gradients that are there;
 * 10 for being linear in dy; 15 for other shapes. */
struct grader_function {
    const char *name; /* of the student's function */
    int points;
    const char *begin; /* where to begin, for who has not */
    /* Of the record. A tensor has its dimensions in brackets; `takes` has what the function gets,
     * by names of the signature, where "dx" is the gradient of x: "x dy dx". */
    const char *signature, *takes;
    /* In double, whatever the dtype: a has the inputs and the outputs; NULL for an input that is not
     * given. n has the count of the first input, and the dimensions of all; if the record has
     * arguments, it has these instead. The student's function gets the same n. */
    void (*forward)(const int64_t *n, double *const *a);
    /* How the inputs of cases are filled, which are made for the sizes that the signature names; an
     * index is below the size of the number b. Then cases of its own, or these alone if the record
     * has arguments. The first is that of the values, the rest are for other shapes. */
    gd_case_input like[GD_CASE_MAX_INPUTS];
    bool kinks;
    const gd_case *cases;
    int case_count;
    size_t args_size;                                        /* of its arguments, and */
    gd_status (*shape)(const gd_call *call, gd_shapes *out); /* what they say of the shapes */
    /* One that calls its own backward, with a as `takes` says, in float64, and a fault or -1. */
    void (*backward)(int fault, const int64_t *n, double *const *a);
    /* The reverse: the names of its faults, to NULL. The student's function gets the number of one
     * in n, and writes sizes, from 1 to `most`, and vectors of them, on which gradcheck finds the
     * fault. The points are for each. */
    const char *const *faults;
    int most;
    /* Unset, or one whose gradient by its own backward this function is: gradcheck at order 2 on its
     * first case judges the values, too. */
    const grader_function *derivative_of;
};

#define GRADER_LIKE(...) .like = {__VA_ARGS__}

typedef struct grader_assignment {
    const char *name;                    /* "2-elements" */
    const char *columns[GRADER_COLUMNS]; /* unset: values, adds, linear, shapes */
    const grader_function *functions;
    int count;
    /* Adds rows for what no gradcheck of one function says; may be NULL. */
    void (*more)(grader *g);
} grader_assignment;

extern const grader_assignment grader_this; /* defined by test.c */

typedef struct grader_row {
    char name[CHILD_NAME];
    int got[GRADER_COLUMNS], of[GRADER_COLUMNS]; /* of: 0 where there is nothing to judge */
    char hint[GRADER_COLUMNS][640];
} grader_row;

struct grader {
    student student;
    uint64_t seed;
    grader_row row[GRADER_ROWS];
    int rows;
};

/* Zeros, which free() frees; ends the program where there is no memory. */
void *grader_alloc(int64_t count, size_t size);
/* A row without points. */
grader_row *grader_add_row(grader *g, const char *name);
/* Gives all points of a column or none; the hint says why. Where a row is judged several times, the
 * first failure stays. */
void grader_cell(grader_row *row, int column, int of, bool good, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Takes all points of a row, for one reason. */
void grader_no_points(grader_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Judges a function: adds a row with the four columns, or one for each fault. */
void grader_check(grader *g, const grader_function *f);
void grader_check_reverse(grader *g, const grader_function *f);
/* What gradcheck says at given numbers, in float64, and in `text`; `shapes` has the dimensions. */
gd_verdict grader_check_at(grader *g, const grader_function *f, int fault, const gd_case *shapes,
                           double *const *values, char *text, size_t size);
/* Step k of Adam: p and grad [count], moments [2 count]. */
void grader_adam(double *p, double *moments, const double *grad, int count, int k, double rate);
int grader_inputs(const grader_function *f);

#endif
