/* softmax.h - the solution as most write it, of which a wrong one defines one part otherwise before
 * it includes this file. */
#include <math.h>

#include "course.h"

#ifndef SOFTMAX
#define SOFTMAX dx[j] += (real)(y[j] * (dy[j] - dot))
#endif
#ifndef DOT
#define DOT dot += (double)y[j] * dy[j]
#endif
#ifndef COUNTS
#define COUNTS target[i] >= 0
#endif
#ifndef SHIFT
#define SHIFT most = fmax(most, x[j])
#endif
#ifndef TARGET
#define TARGET (j == target[i])
#endif
#ifndef EACH
#define EACH *dloss / (double)count
#endif
#ifndef IGNORED
#define IGNORED target[i] < 0
#endif
#ifndef CASES
#define CASES x[i] = fault ? -1000 : 0
#endif

void softmax_backward(int64_t rows, int64_t columns, const real *y, const real *dy, real *dx)
{
    for (int64_t i = 0; i < rows; i++, y += columns, dy += columns, dx += columns) {
        double dot = 0;
        for (int64_t j = 0; j < columns; j++) DOT;
        for (int64_t j = 0; j < columns; j++) SOFTMAX;
    }
}

void cross_entropy_backward(int64_t rows, int64_t columns, const real *x, const int32_t *target,
                            const real *dloss, real *dx)
{
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) count += COUNTS;
    for (int64_t i = 0; i < rows; i++, x += columns, dx += columns) {
        double most = -INFINITY, sum = 0;
        if (IGNORED) continue;
        for (int64_t j = 0; j < columns; j++) SHIFT;
        for (int64_t j = 0; j < columns; j++) sum += exp(x[j] - most);
        for (int64_t j = 0; j < columns; j++)
            dx[j] += (real)((exp(x[j] - most) / sum - TARGET) * (EACH));
    }
}

void revealing_case(int64_t fault, int64_t *n, real *x)
{
    *n = 3;
    for (int64_t i = 0; i < *n; i++) CASES;
}
