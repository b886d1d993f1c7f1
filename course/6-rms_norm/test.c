/* test.c - assignment 6: RMSNorm, dw by parts, and the residual. */
#ifdef COURSE_STUDENT

#include COURSE_FILE
#include <stdlib.h>

#include "child.h"

/* Two rows at a time, the last ones first: a part each. */
static void in_parts(const int64_t *n, void *const *a)
{
    const int64_t rows = n[0], columns = n[1], parts = (rows + 1) / 2;
    const real *x = a[0], *dy = a[2];
    real *dx = a[3], *part = calloc((size_t)(parts * columns + 1), sizeof(real));
    if (!part) abort();
    for (int64_t p = parts - 1; p >= 0; p--) {
        const int64_t at = 2 * p * columns, count = rows - 2 * p < 2 ? rows - 2 * p : 2;
        rms_norm_backward(count, columns, (real)1e-5, x + at, a[1], dy + at, dx + at,
                          part + p * columns);
    }
    add_parts(parts, columns, part, a[4]);
    free(part);
}

/* dw is the only part. */
CHILD_CALL(add_rms_norm_backward, n[0], n[1], (real)1e-5, a[1], a[0], a[2], a[3], a[4], a[5], a[6])

const child_function child_functions[] = {{"rms_norm_backward", in_parts},
                                          CHILD_ROW(add_rms_norm_backward, ){NULL, NULL}};

#else

#include <math.h>

#include "grader.h"

static void rows_and_columns(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_dim(call->input[0], 0);
    n[1] = gd_tensor_dim(call->input[0], 1);
}

static void normalise(const int64_t *n, const double *x, const double *w, double *y)
{
    for (int64_t i = 0; i < n[0]; i++) {
        double squares = 0;
        for (int64_t k = 0; k < n[1]; k++) squares += x[i * n[1] + k] * x[i * n[1] + k];
        const double rms = sqrt(squares / (double)n[1] + 1e-5);
        for (int64_t k = 0; k < n[1]; k++) y[i * n[1] + k] = x[i * n[1] + k] / rms * w[k];
    }
}

static void rms_norm(const int64_t *n, double *const *a)
{
    normalise(n, a[0], a[1], a[2]);
}

static void add_rms_norm(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[1]; i++) a[4][i] = a[0][i] + a[1][i];
    normalise(n, a[4], a[2], a[3]);
}

/* The weight is about 1, and not 1. */
#define X(rows, columns) GD_DIMS(rows, columns)
#define W(columns) GD_NORMAL(1, 0.5), GD_DIMS(columns)
static const gd_case cases[] = {
    {.name = "5x8", GD_INPUTS({X(5, 8)}, {W(8)})},
    {.name = "4x7", GD_INPUTS({X(4, 7)}, {W(7)})},
    {.name = "7x33", GD_INPUTS({X(7, 33)}, {W(33)})},
    {.name = "one column", GD_INPUTS({X(3, 1)}, {W(1)})},
    {.name = "one row", GD_INPUTS({X(1, 130)}, {W(130)})},
    {.name = "tiny x", GD_INPUTS({GD_NORMAL(0, 1e-3), X(3, 6)}, {W(6)})},
    {.name = "no rows", GD_INPUTS({X(0, 5)}, {W(5)}), .may_be_empty = true}};
static const gd_case residual_cases[] = {
    {.name = "5x8", GD_INPUTS({X(5, 8)}, {X(5, 8)}, {W(8)})},
    {.name = "4x7", GD_INPUTS({X(4, 7)}, {X(4, 7)}, {W(7)})},
    {.name = "one column", GD_INPUTS({X(3, 1)}, {X(3, 1)}, {W(1)})},
    {.name = "one row", GD_INPUTS({X(1, 130)}, {X(1, 130)}, {W(130)})},
    {.name = "no rows", GD_INPUTS({X(0, 5)}, {X(0, 5)}, {W(5)}), .may_be_empty = true}};

static const grader_function functions[] = {
    {.name = "rms_norm_backward",
     .points = 40,
     .begin = "dw first: what does row i add to part[k]? Then dx, as if rstd were a constant",
     .op = GRADER_OP("rms_norm", "x[M, N] w[N] -> y[M, N]", 2, 3, 0, cases),
     .takes = "x w dy dx dw",
     .sizes = rows_and_columns,
     .forward = rms_norm},
    {.name = "add_rms_norm_backward",
     .points = 40,
     .begin = "the sum is read twice: what arrives at it from y, and by other ways, is added",
     .op = {.name = "add_rms_norm",
            .signature = "x[M, N] branch[M, N] w[N] -> y[M, N] sum[M, N]",
            .inputs = 3,
            .outputs = 2,
            .backward_reads_inputs = 4,
            .backward_reads_outputs = 2,
            GD_CASES(residual_cases)},
     .takes = "w sum dy dsum dx dbranch dw",
     .sizes = rows_and_columns,
     .forward = add_rms_norm}};

/* ---- The lesson's matrix --------------------------------------------------------------------- */

enum { ROWS = 3, COLUMNS = 8, COUNT = ROWS * COLUMNS };

/* The sum of dy y, which a backward differentiates. */
static double weighted(const double *x, const double *w, const double *dy)
{
    double y[COUNT], sum = 0;
    normalise((const int64_t[]){ROWS, COLUMNS}, x, w, y);
    for (int i = 0; i < COUNT; i++) sum += dy[i] * y[i];
    return sum;
}

/* The worked page's numbers, with dy[i][k] = (k - 3) / 4, of which each must be right. */
static void check_matrix(grader *g)
{
    double x[COUNT] = {2,    -1, 3,    0.5, -0.5, 1.5, -2,   1,   4, -3, 2.5, 1,
                       -1.5, 0,  -0.5, 2,   -1,   3.5, -2.5, 1.5, 0, -3, 2.5, -0.5};
    double w[COLUMNS], dy[COUNT], dx[COUNT] = {0}, dw[COLUMNS] = {0};
    grader_row *row = grader_add_row(g, "the lesson's matrix");
    for (int k = 0; k < COLUMNS; k++) w[k] = 1;
    for (int i = 0; i < COUNT; i++) dy[i] = (i % COLUMNS - 3) / 4.0;
    const student_array arrays[] = {{"x", x, COUNT, sizeof *x, false},
                                    {"w", w, COLUMNS, sizeof *w, false},
                                    {"dy", dy, COUNT, sizeof *dy, false},
                                    {"dx", dx, COUNT, sizeof *dx, true},
                                    {"dw", dw, COLUMNS, sizeof *dw, true}};
    const char *why = student_call(&g->student, false, "rms_norm_backward",
                                   (const int64_t[CHILD_SIZES]){ROWS, COLUMNS}, arrays, 5);
    grader_cell(row, 0, 20, !why, "%s", why ? why : "");
    for (int i = 0; !why && i < COUNT + COLUMNS; i++) {
        double *value = i < COUNT ? &x[i] : &w[i - COUNT];
        const double before = *value, h = 1e-5, got = i < COUNT ? dx[i] : dw[i - COUNT];
        *value = before + h;
        double slope = weighted(x, w, dy);
        *value = before - h;
        slope = (slope - weighted(x, w, dy)) / (2 * h);
        *value = before;
        if (i < COUNT)
            grader_cell(row, 0, 0, fabs(got - slope) < 1e-8,
                        "dx[%d][%d] is %.6f, by differences %.6f", i / COLUMNS, i % COLUMNS, got,
                        slope);
        else
            grader_cell(row, 0, 0, fabs(got - slope) < 1e-8, "dw[%d] is %.6f, by differences %.6f",
                        i - COUNT, got, slope);
    }
}

const grader_assignment grader_this = {.name = "6-rms_norm",
                                       .file = "rms_norm.c",
                                       .functions = functions,
                                       .count = 2,
                                       .more = check_matrix};

#endif
