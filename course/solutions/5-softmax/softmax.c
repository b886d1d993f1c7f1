/* softmax.c - backwards of softmax and cross entropy, and cases that show a fault. */
#include <math.h>

#include "course.h"

void softmax_backward(int64_t rows, int64_t columns, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < rows; i++, y += columns, dy += columns, dx += columns) {
        double dot = 0;
        for (int64_t j = 0; j < columns; j++) dot += (double)y[j] * dy[j];
        for (int64_t j = 0; j < columns; j++) dx[j] += (real)(y[j] * (dy[j] - dot));
    }
}

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

/* All elements are those of element 0, or all are far below 0. */
void revealing_case(int64_t fault, int64_t *n, real *x)
{
    *n = 3;
    for (int64_t i = 0; i < *n; i++) x[i] = fault ? -1000 : 0;
}
