/* sum_exp.h - the first step of every softmax: the maximum of a row and the sum of its
 * exponentials.
 *
 *     log(sum_i exp(x_i)) = max + log(sum_i exp(x_i - max))
 *
 * On the right no exponential exceeds 1 and one of them is 1: neither overflow nor log(0). The two
 * parts are kept separate, since far from zero their rounded sum would lose the differences between
 * the elements of the row. */
#ifndef GRADUS_SUM_EXP_H
#define GRADUS_SUM_EXP_H

#include "kernel.h"
#include "vector_math.h"

/* The maximum of x [n], NaN aside. */
static inline REAL gd_row_max(const REAL *x, int64_t n)
{
    REAL max = -(REAL)INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    return gd_reduced_max(max, x, n);
}

/* Returns sum_i exp(x_i - *max), which lies between 1 and n. NaN is never the maximum, but makes
 * the sum NaN. */
static inline double gd_sum_exp(const REAL *x, int64_t n, REAL *max)
{
    const REAL largest = gd_row_max(x, n);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)GD_MATH(exp)(x[i] - largest);
    *max = largest;
    return sum;
}

#endif
