/* test.c - assignment 6: RMSNorm, dw by parts, and the residual. */
#include "grader.h"

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

static const gd_case tiny[] = {
    {.name = "tiny x", GD_INPUTS({GD_NORMAL(0, 1e-3), GD_DIMS(3, 6)}, {GD_DIMS(6)})}};

/* The weight is about 1, and not 1. */
static const grader_function functions[] = {
    {"rms_norm_backward", 40,
     "dw first: what does row i add to part[k]? Then dx, as if rstd were a constant",
     "x[M, N] w[N] -> y[M, N]", "x w dy dx dw", rms_norm, GRADER_LIKE({0}, {GD_NORMAL(1, 0.5)}),
     GD_CASES(tiny)},
    {"add_rms_norm_backward", 40,
     "the sum is read twice: what arrives at it from y, and by other ways, is added",
     "x[M, N] branch[M, N] w[N] -> y[M, N] sum[M, N]", "w sum dy dsum dx dbranch dw", add_rms_norm,
     GRADER_LIKE({0}, {0}, {GD_NORMAL(1, 0.5)})}};

/* The worked page's numbers, of which each gradient must be right. */
static void check_matrix(grader *g)
{
    double x[] = {2,    -1, 3,    0.5, -0.5, 1.5, -2,   1,   4, -3, 2.5, 1,
                  -1.5, 0,  -0.5, 2,   -1,   3.5, -2.5, 1.5, 0, -3, 2.5, -0.5};
    double w[] = {1, 1, 1, 1, 1, 1, 1, 1};
    const gd_case shapes = {GD_INPUTS({GD_DIMS(3, 8)}, {GD_DIMS(8)})};
    char text[512];
    grader_row *row = grader_add_row(g, "the lesson's matrix");
    const gd_verdict verdict =
        grader_check_at(g, functions, -1, &shapes, (double *[]){x, w}, text, sizeof text);
    grader_cell(row, 0, 20, verdict == GD_VERDICT_PASS, "%s", text);
}

const grader_assignment grader_this = {
    .name = "6-rms_norm", .functions = functions, .count = 2, .more = check_matrix};
