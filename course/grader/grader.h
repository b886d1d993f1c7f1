/* grader.h - what a test.c says about its assignment, and how it adds rows of its own to the table.
 *
 * A test.c is compiled twice: with COURSE_STUDENT into the child, where it calls the student's
 * functions (child.h) and includes the student's file, and without into the grader. */
#ifndef COURSE_GRADER_H
#define COURSE_GRADER_H

#include <gradus/gradus.h>
#include <stdbool.h>
#include <stdint.h>

#include "child.h"
#include "student.h"

enum { GRADER_COLUMNS = 4, GRADER_ROWS = 24 };

/* A backward that gradcheck judges. Its points, a multiple of 20, are divided so: 60 in 100 for
 * values, which must be right in float64 and float32; 15 for adding into gradients that are there;
 * 10 for being linear in dy; 15 for other shapes. */
typedef struct grader_function {
    const char *name; /* of the student's function */
    int points;
    const char *begin; /* where to begin, for who has not */
    /* The record without kernels: the name, the signature, what the backward reads, and the cases,
     * of which the first is that of the values, and all are for other shapes. */
    gd_op op;
    const char *takes; /* the student's names of its arrays: "x dy dx" */
    /* The sizes that are passed in n, of CHILD_SIZES zeros, which the forward below gets, too. */
    void (*sizes)(const gd_call *call, int64_t *n);
    /* In double, whatever the dtype: a has the inputs, the outputs and the saves, in this order.
     * The student's function gets the inputs and the outputs that the record says it reads, the
     * saves, each dy, and the gradient of each real input; NULL for an input that is not given. */
    void (*forward)(const int64_t *n, double *const *a);
} grader_function;

/* Its record: of one output, with masks of the inputs and the outputs that the backward reads. */
#define GRADER_OP(title, which, count, reads_inputs, reads_outputs, all_cases)          \
    {                                                                                   \
        .name = title, .signature = which, .inputs = count, .outputs = 1,               \
        .backward_reads_inputs = reads_inputs, .backward_reads_outputs = reads_outputs, \
        GD_CASES(all_cases)                                                             \
    }

typedef struct grader grader;

typedef struct grader_assignment {
    const char *name;                    /* "2-elements" */
    const char *file;                    /* "elements.c" */
    const char *columns[GRADER_COLUMNS]; /* unset: values, adds, linear, shapes */
    const grader_function *functions;
    int count;
    /* Adds rows for what no gradcheck of one function says; may be NULL. */
    void (*more)(grader *g);
    double seconds; /* of processor time, for a call; unset: 0.5 */
    /* Unset, or a record with kernels whose derivative is grader_apply(): gradcheck at order 2 on
     * its first case judges the values of the first function, too. */
    const gd_op *second_order;
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

/* A row without points. */
grader_row *grader_add_row(grader *g, const char *name);
/* Gives all points of a column or none; the hint says why. Where a row is judged several times, the
 * first failure stays. */
void grader_cell(grader_row *row, int column, int of, bool good, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Takes all points of a row, for one reason. */
void grader_no_points(grader_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- check.c ------------------------------------------------------------------------------ */

/* Judges a function: adds a row with the four columns. */
void grader_check(grader *g, const grader_function *f);
/* Applies the op whose backward is that of the function that grader_check() is judging. */
gd_tensor *grader_apply(gd_tensor *const *inputs, int count);
/* Gradcheck's sentence on a report that has not passed, in `text`. */
void grader_say(const gd_gradcheck_report *report, char *text, size_t size);
/* The numbers of a real tensor, which free() frees, or NULL; and back. */
double *grader_read(const gd_tensor *t);
void grader_write(gd_tensor *t, const double *x);
/* A forward in double for a call of any dtype. */
gd_status grader_run_forward(const gd_call *call, const int64_t *n,
                             void (*forward)(const int64_t *n, double *const *a));

/* ---- reverse.c: faults are given, and the student writes the case that shows each ----------- */

/* The student's function gets the number of a fault in n, and as arrays the sizes that it sets,
 * from 1 to `most`, and the inputs that it fills. */
typedef struct grader_reverse {
    const char *name, *begin;
    int points; /* for each fault */
    int most, sizes;
    const char *dims[GD_CASE_MAX_INPUTS]; /* of each input: "01" is [n[0], n[1]] */
    gd_op op;                             /* of one output, all float64 */
    void (*forward)(const int64_t *n, double *const *a);
    /* In double: a has the inputs, dy, and the gradients, to which it adds. -1: without a fault. */
    void (*backward)(int fault, const int64_t *n, double *const *a);
    const char *const *faults; /* their names */
    int count;
} grader_reverse;

/* Adds a row for each fault. */
void grader_check_reverse(grader *g, const grader_reverse *r);

#endif
