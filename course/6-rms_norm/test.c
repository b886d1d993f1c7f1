/* test.c - assignment 6: RMSNorm, dw by parts, and the residual. */
#include "grader.h"

#ifdef COURSE_STUDENT

#include <stdlib.h>

/* Two rows at a time, the last ones first: a part each. */
static void in_parts(const int64_t *n, void *const *a)
{
    const int64_t rows = n[1], columns = n[2], parts = (rows + 1) / 2;
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
CHILD_CALL(add_rms_norm_backward, n[1], n[2], (real)1e-5, a[1], a[0], a[2], a[3], a[4], a[5], a[6])

const child_function child_functions[] = {{"rms_norm_backward", in_parts},
                                          CHILD_ROW(add_rms_norm_backward, ){NULL, NULL}};

#else

static void normalise(const int64_t *n, const double *x, const double *w, double *y)
{
    for (int64_t i = 0; i < n[1]; i++, x += n[2], y += n[2]) {
        double squares = 0;
        for (int64_t k = 0; k < n[2]; k++) squares += x[k] * x[k];
        const double rms = sqrt(squares / (double)n[2] + 1e-5);
        for (int64_t k = 0; k < n[2]; k++) y[k] = x[k] / rms * w[k];
    }
}

static void rms_norm(const int64_t *n, double *const *a)
{
    normalise(n, a[0], a[1], a[2]);
}

static void add_rms_norm(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++) a[4][i] = a[0][i] + a[1][i];
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
    {"rms_norm_backward", 40,
     "dw first: what does row i add to part[k]? Then dx, as if rstd were a constant",
     "x[M, N] w[N] -> y[M, N]", "x w dy dx dw", rms_norm, GD_CASES(cases)},
    {"add_rms_norm_backward", 40,
     "the sum is read twice: what arrives at it from y, and by other ways, is added",
     "x[M, N] branch[M, N] w[N] -> y[M, N] sum[M, N]", "w sum dy dsum dx dbranch dw", add_rms_norm,
     GD_CASES(residual_cases)}};

/* The worked page's numbers, of which each gradient must be right. */
static void check_matrix(grader *g)
{
    double x[] = {2,    -1, 3,    0.5, -0.5, 1.5, -2,   1,   4, -3, 2.5, 1,
                  -1.5, 0,  -0.5, 2,   -1,   3.5, -2.5, 1.5, 0, -3, 2.5, -0.5};
    double w[] = {1, 1, 1, 1, 1, 1, 1, 1};
    const gd_case shapes = {GD_INPUTS({X(3, 8)}, {W(8)})};
    char text[512];
    grader_row *row = grader_add_row(g, "the lesson's matrix");
    const gd_verdict verdict =
        grader_check_at(g, functions, -1, &shapes, (double *[]){x, w}, text, sizeof text);
    grader_cell(row, 0, 20, verdict == GD_VERDICT_PASS, "%s", text);
}

const grader_assignment grader_this = {
    .name = "6-rms_norm", .functions = functions, .count = 2, .more = check_matrix};

#endif
