/* long_sorts.h - gd_sort of long lines, on the CPU and on a GPU. */
#ifndef GRADUS_LONG_SORTS_H
#define GRADUS_LONG_SORTS_H

#include "op_test.h"

/* Stable, also where many are equal, and long; 0 and -0 are equal. */
static inline void check_long_sorts(gd_context *ctx, gd_dtype dtype, uint64_t *seed)
{
    enum { N = 30000 };
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(2, N)), *index;
    double *xv = zeros(2 * N);
    for (int i = 0; i < 2 * N; i++)
        xv[i] =
            i < N ? floor(random_in(seed, -40, 40)) / 8 * (i % 2 ? 1 : -1) : random_in(seed, -1, 1);
    gd_tensor_write_f64(x, xv, 2 * N);
    gd_tensor_read_f64(x, xv, 2 * N); /* rounded */
    for (int descending = 0; descending < 2; descending++) {
        gd_tensor *y = gd_sort(x, 1, descending, &index);
        double *v = values_of(y), *at = values_of(index);
        for (int i = 0; i < 2 * N; i++) {
            ck_assert_double_eq(v[i], xv[i / N * N + (int)at[i]]);
            if (i % N == 0) continue;
            ck_assert(descending ? v[i] <= v[i - 1] : v[i] >= v[i - 1]);
            if (v[i] == v[i - 1]) ck_assert(at[i] > at[i - 1]);
        }
        free(v), free(at);
    }
    free(xv);
}

#endif
