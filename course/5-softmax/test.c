/* test.c - assignment 5: softmax, cross entropy, and cases that show a fault. */
#include "grader.h"

/* log(sum of exp(x)) - x[at] */
static double loss_of_row(const double *x, int64_t columns, int64_t at)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < columns; j++) largest = fmax(largest, x[j]);
    for (int64_t j = 0; j < columns; j++) sum += exp(x[j] - largest);
    return log(sum) + largest - x[at];
}

static void softmax(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++)
        a[1][i] = exp(-loss_of_row(a[0] + i / n[2] * n[2], n[2], i % n[2]));
}

static void cross_entropy(const int64_t *n, double *const *a)
{
    double sum = 0, count = 0;
    for (int64_t i = 0; i < n[1]; i++) {
        if (a[1][i] < 0) continue;
        sum += loss_of_row(a[0] + i * n[2], n[2], (int64_t)a[1][i]);
        count++;
    }
    a[2][0] = count > 0 ? sum / count : 0;
}

/* Cases of softmax, and of cross entropy. */
static const gd_case ties[] = {{.name = "ties", GD_INPUTS({GD_CONSTANT(2), GD_DIMS(3, 5)})}};
#define X_TARGET(fill, low) \
    NULL, GD_INPUTS({fill, GD_DIMS(4, 5)}, {GD_INDEX(5), .a = (low), GD_DIMS(4)})
static const gd_case cases[] = {{"rows ignored", X_TARGET(GD_NORMAL(0, 1), -5)},
                                {"logits of 1000", X_TARGET(GD_NORMAL(1000, 1), 0)},
                                {"logits of -1000", X_TARGET(GD_NORMAL(-1000, 1), 0)},
                                {"ties", X_TARGET(GD_CONSTANT(-1), 0)}};

/* ---- The reverse: loss = log(sum of exp(x)) - x[0] ------------------------------------------- */

static void row_loss(const int64_t *n, double *const *a)
{
    a[1][0] = loss_of_row(a[0], n[0], 0);
}

/* Fault 0 finds the target by its value; fault 1 subtracts no less than 0. a: x, dloss, dx. */
static void row_gradient(int fault, const int64_t *n, double *const *a)
{
    const double *x = a[0];
    double largest = fault == 1 ? 0 : -INFINITY, sum = 0;
    for (int64_t j = 0; j < n[0]; j++) largest = fmax(largest, x[j]);
    for (int64_t j = 0; j < n[0]; j++) sum += exp(x[j] - largest);
    for (int64_t j = 0; j < n[0]; j++)
        a[2][j] += a[1][0] * (exp(x[j] - largest) / sum - (fault == 0 ? x[j] == x[0] : j == 0));
}

static const char *const faults[] = {"element 0 by its value", "the largest is at least 0", NULL};

static const grader_function functions[] = {
    {"softmax_backward", 40,
     "what would dx[i][j] be, if the sum that divides were a constant? Then the rest",
     "x[M, N] -> y[M, N]", "y dy dx", softmax, GD_CASES(ties)},
    {"cross_entropy_backward", 40, "the slope of log(sum of exp(x)) by x[j] is softmax(x)[j]",
     "x[M, N] target:int32[M] -> loss[1]", "x target dloss dx", cross_entropy,
     GRADER_LIKE({0}, {GD_INDEX(1)}), GD_CASES(cases)},
    {"revealing_case", 10, "when is another element taken for element 0? And when is p 0 / 0?",
     "x[N] -> loss[1]", "x dloss dx", row_loss, .backward = row_gradient, .faults = faults,
     .most = 8}};

const grader_assignment grader_this = {.name = "5-softmax", .functions = functions, .count = 3};
