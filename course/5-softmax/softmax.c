/* softmax.c - backwards of softmax and cross entropy, and cases that show a fault. */
#include "course.h"

/* y[i][j] = exp(x[i][j]) / sum over k of exp(x[i][k]), of which y is given; y, dy, dx
 * [rows, columns] */
void softmax_backward(int64_t rows, int64_t columns, const real *y, const real *dy, real *dx) {}

/* loss = the mean of -log softmax(x[i])[target[i]] over the rows whose target is not negative; 0 if
 * there is none. x, dx [rows, columns], target [rows], dloss [1] */
void cross_entropy_backward(int64_t rows, int64_t columns, const real *x, const int32_t *target,
                            const real *dloss, real *dx)
{
}

/* Sets *n, 1 to 8, and x [n], so that loss = log(sum of exp(x)) - x[0] shows a fault of
 * README.md. */
void revealing_case(int64_t fault, int64_t *n, real *x) {}
