/* test.c - assignment 5: softmax, cross entropy, and cases that show a fault. */
#include "grader.h"

#ifdef COURSE_STUDENT

#define CALLS(CALL)                                                  \
    CALL(softmax_backward, n[1], n[2], a[0], a[1], a[2])             \
    CALL(cross_entropy_backward, n[1], n[2], a[0], a[1], a[2], a[3]) \
    CALL(revealing_case, n[0], a[0], a[1])
CHILD_FUNCTIONS(CALLS)

#else

/* The sum of exp(x[k] - x[j]): for any logits it is finite, or an infinity that is divided by. */
static double exponentials(const double *x, int64_t columns, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < columns; k++) sum += exp(x[k] - x[j]);
    return sum;
}

static void softmax(const int64_t *n, double *const *a)
{
    for (int64_t i = 0; i < n[0]; i++)
        a[1][i] = 1 / exponentials(a[0] + i / n[2] * n[2], n[2], i % n[2]);
}

/* log(sum of exp(x)) - x[at] */
static double loss_of_row(const double *x, int64_t columns, int64_t at)
{
    int64_t largest = 0;
    for (int64_t j = 0; j < columns; j++) largest = x[j] > x[largest] ? j : largest;
    return log(exponentials(x, columns, largest)) + x[largest] - x[at];
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

static const gd_case softmax_cases[] = {
    {.name = "4x6", GD_INPUTS({GD_DIMS(4, 6)})},
    {.name = "one row", GD_INPUTS({GD_DIMS(1, 33)})},
    {.name = "two columns", GD_INPUTS({GD_DIMS(7, 2)})},
    {.name = "ties", GD_INPUTS({GD_CONSTANT(2), GD_DIMS(3, 5)})},
    {.name = "no rows", GD_INPUTS({GD_DIMS(0, 5)}), .may_be_empty = true}};

#define TARGETS(low, high) .fill = GD_FILL_INDEX, .a = (low), .b = (high), .fixed = true
static const gd_case cross_entropy_cases[] = {
    {.name = "4x6", GD_INPUTS({GD_DIMS(4, 6)}, {TARGETS(0, 6), GD_DIMS(4)})},
    {.name = "logits of 1000",
     GD_INPUTS({GD_NORMAL(1000, 1), GD_DIMS(4, 5)}, {TARGETS(0, 5), GD_DIMS(4)})},
    {.name = "one row", GD_INPUTS({GD_DIMS(1, 33)}, {TARGETS(0, 33), GD_DIMS(1)})},
    {.name = "rows ignored", GD_INPUTS({GD_DIMS(12, 3)}, {TARGETS(-2, 3), GD_DIMS(12)})},
    {.name = "ties", GD_INPUTS({GD_CONSTANT(-1), GD_DIMS(3, 4)}, {TARGETS(0, 4), GD_DIMS(3)})},
    {.name = "logits of -1000",
     GD_INPUTS({GD_NORMAL(-1000, 1), GD_DIMS(4, 5)}, {TARGETS(0, 5), GD_DIMS(4)})},
    {.name = "no rows",
     GD_INPUTS({GD_DIMS(0, 5)}, {TARGETS(0, 5), GD_DIMS(0)}),
     .may_be_empty = true}};

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
     "x[M, N] -> y[M, N]", "y dy dx", softmax, GD_CASES(softmax_cases)},
    {"cross_entropy_backward", 40, "the slope of log(sum of exp(x)) by x[j] is softmax(x)[j]",
     "x[M, N] target:int32[M] -> loss[1]", "x target dloss dx", cross_entropy,
     GD_CASES(cross_entropy_cases)},
    {"revealing_case", 10, "when is another element taken for element 0? And when is p 0 / 0?",
     "x[N] -> loss[1]", "x dloss dx", row_loss, .backward = row_gradient, .faults = faults,
     .most = 8}};

const grader_assignment grader_this = {.name = "5-softmax", .functions = functions, .count = 3};

#endif
