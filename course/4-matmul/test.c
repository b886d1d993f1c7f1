/* test.c - assignment 4: a product of matrices, and a linear layer. */
#ifdef COURSE_STUDENT

#include COURSE_FILE
#include "child.h"

#define CALLS(CALL)                                                       \
    CALL(matmul_backward, n[0], n[1], n[2], a[0], a[1], a[2], a[3], a[4]) \
    CALL(linear_backward, n[0], n[1], n[2], a[0], a[1], a[2], a[3], a[4], a[5])
CHILD_FUNCTIONS(CALLS)

#else

#include "grader.h"

static void sizes(const gd_call *call, int64_t *n)
{
    n[0] = gd_tensor_dim(call->input[0], 0);
    n[1] = gd_tensor_dim(call->input[0], 1);
    n[2] = gd_tensor_dim(call->output[0], 1);
}

static void matmul(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[2]; i++) {
        a[2][i] = 0;
        for (int64_t p = 0; p < n[1]; p++)
            a[2][i] += a[0][i / n[2] * n[1] + p] * a[1][p * n[2] + i % n[2]];
    }
}

static void linear(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0] * n[2]; i++) {
        a[3][i] = a[2] ? a[2][i % n[2]] : 0;
        for (int64_t p = 0; p < n[1]; p++)
            a[3][i] += a[0][i / n[2] * n[1] + p] * a[1][i % n[2] * n[1] + p];
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
     GRADER_OP("matmul", "a[M, K] b[K, N] -> y[M, N]", 2, 3, 0, matmul_cases), "a b dy da db",
     sizes, matmul},
    {"linear_backward",
     60,
     "dbias[j] is the sum of column j of dy; dx and dw are as in matmul",
     {.name = "linear",
      .signature = "x[M, K] w[N, K] bias[N]? -> y[M, N]",
      .inputs = 3,
      .optional_inputs = 4,
      .outputs = 1,
      .backward_reads_inputs = 3,
      GD_CASES(linear_cases)},
     "x w dy dx dw dbias",
     sizes,
     linear}};

const grader_assignment grader_this = {
    .name = "4-matmul", .file = "matmul.c", .functions = functions, .count = 2};

#endif
