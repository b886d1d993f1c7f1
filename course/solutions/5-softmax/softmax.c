/* softmax.c - backwards of softmax and cross entropy, and cases that show a fault. */
#include "course.h"

#include <math.h>

/* y[i][j] = exp(x[i][j]) / sum over k of exp(x[i][k]), of which y is given; y, dy, dx
 * [rows, columns] */
void softmax_backward(int64_t rows, int64_t columns, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < rows; i++, y += columns, dy += columns, dx += columns) {
        double dot = 0;
        for (int64_t j = 0; j < columns; j++) dot += (double)y[j] * dy[j];
        for (int64_t j = 0; j < columns; j++) dx[j] += (real)(y[j] * (dy[j] - dot));
    }
}

/* loss = the mean of -log softmax(x[i])[target[i]] over the rows whose target is not negative; 0 if
 * there is none. x, dx [rows, columns], target [rows], dloss [1] */
void cross_entropy_backward(int64_t rows, int64_t columns, const real *x, const int32_t *target,
                            const real *dloss, real *dx)
{
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) count += target[i] >= 0;
    for (int64_t i = 0; i < rows; i++, x += columns, dx += columns) {
        double most = -INFINITY, sum = 0;
        if (target[i] < 0) continue;
        for (int64_t j = 0; j < columns; j++) most = fmax(most, x[j]);
        for (int64_t j = 0; j < columns; j++) sum += exp(x[j] - most);
        for (int64_t j = 0; j < columns; j++)
            dx[j] += (real)((exp(x[j] - most) / sum - (j == target[i])) * *dloss / (double)count);
    }
}

/* Sets *n, 1 to 8, and x [n], so that loss = log(sum of exp(x)) - x[0] shows a fault of
 * README.md. */
void revealing_case(int64_t fault, int64_t *n, real *x)
{
    *n = 3; /* all are as element 0, or all are far below 0 */
    for (int64_t i = 0; i < *n; i++) x[i] = fault ? -1000 : 0;
}
