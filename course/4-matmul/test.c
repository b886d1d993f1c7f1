/* test.c - assignment 4: a product of matrices, and a linear layer. */
#include "grader.h"

#ifdef COURSE_STUDENT

#define CALLS(CALL)                                                       \
    CALL(matmul_backward, n[1], n[2], n[4], a[0], a[1], a[2], a[3], a[4]) \
    CALL(linear_backward, n[1], n[2], n[3], a[0], a[1], a[2], a[3], a[4], a[5])
CHILD_FUNCTIONS(CALLS)

#else

static void matmul(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[1] * n[4]; i++) {
        a[2][i] = 0;
        for (int64_t p = 0; p < n[2]; p++)
            a[2][i] += a[0][i / n[4] * n[2] + p] * a[1][p * n[4] + i % n[4]];
    }
}

static void linear(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[1] * n[3]; i++) {
        a[3][i] = a[2] ? a[2][i % n[3]] : 0;
        for (int64_t p = 0; p < n[2]; p++)
            a[3][i] += a[0][i / n[3] * n[2] + p] * a[1][i % n[3] * n[2] + p];
    }
}

static const gd_case matmul_cases[] = {
    {.name = "4x3_3x5", GD_INPUTS({GD_DIMS(4, 3)}, {GD_DIMS(3, 5)})},
    {.name = "3x3_3x3", GD_INPUTS({GD_DIMS(3, 3)}, {GD_DIMS(3, 3)})},
    {.name = "1x7_7x1", GD_INPUTS({GD_DIMS(1, 7)}, {GD_DIMS(7, 1)})},
    {.name = "sums_of_none", GD_INPUTS({GD_DIMS(2, 0)}, {GD_DIMS(0, 3)}), .may_be_empty = true}};
static const gd_case linear_cases[] = {
    {.name = "4x3_to_5", GD_INPUTS({GD_DIMS(4, 3)}, {GD_DIMS(5, 3)}, {GD_DIMS(5)})},
    {.name = "3x3_to_3", GD_INPUTS({GD_DIMS(3, 3)}, {GD_DIMS(3, 3)}, {GD_DIMS(3)})},
    {.name = "no_bias", GD_INPUTS({GD_DIMS(2, 7)}, {GD_DIMS(3, 7)}, GD_ABSENT)},
    {.name = "no_rows",
     GD_INPUTS({GD_DIMS(0, 3)}, {GD_DIMS(5, 3)}, {GD_DIMS(5)}),
     .may_be_empty = true}};

static const grader_function functions[] = {
    {"matmul_backward", 40,
     "y[i][j] is a sum of products a[i][p] b[p][j]: which y does a[i][p] move?",
     "a[M, K] b[K, N] -> y[M, N]", "a b dy da db", matmul, GD_CASES(matmul_cases)},
    {"linear_backward", 60, "dbias[j] is the sum of column j of dy; dx and dw are as in matmul",
     "x[M, K] w[N, K] bias[N]? -> y[M, N]", "x w dy dx dw dbias", linear, GD_CASES(linear_cases)}};

const grader_assignment grader_this = {.name = "4-matmul", .functions = functions, .count = 2};

#endif
