/* test.c - assignment 4: a product of matrices, and a linear layer. */
#include "grader.h"

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

static const gd_case no_terms[] = {
    {.name = "sums of none", GD_INPUTS({GD_DIMS(2, 0)}, {GD_DIMS(0, 3)})}};
static const gd_case no_bias[] = {
    {.name = "no bias", GD_INPUTS({GD_DIMS(2, 7)}, {GD_DIMS(3, 7)}, GD_ABSENT)}};

static const grader_function functions[] = {
    {"matmul_backward", 40,
     "y[i][j] is a sum of products a[i][p] b[p][j]: which y does a[i][p] move?",
     "a[M, K] b[K, N] -> y[M, N]", "a b dy da db", matmul, GD_CASES(no_terms)},
    {"linear_backward", 60, "dbias[j] is the sum of column j of dy; dx and dw are as in matmul",
     "x[M, K] w[N, K] bias[N]? -> y[M, N]", "x w dy dx dw dbias", linear, GD_CASES(no_bias)}};

const grader_assignment grader_this = {.name = "4-matmul", .functions = functions, .count = 2};
