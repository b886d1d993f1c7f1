/* test_long_sorts.h - gd_sort of long lines, on the CPU and on a GPU. */
#ifndef GRADUS_LONG_SORTS_H
#define GRADUS_LONG_SORTS_H

#include "op_test.h"

/* Both ends of each way in which a GPU sorts a line. */
static const int64_t sorted_lengths[] = {1, 2, 33, 256, 257, 1024, 1025, 4096, 4097, 30000, 0};

/* Whether a comes before b in a sort; a NaN counts as the largest. */
static inline bool sorts_before(double a, double b, bool descending)
{
    if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : !isnan(a) && isnan(b);
    return descending ? a > b : a < b;
}

/* gd_topk gives the first of what gd_sort has at `at`. */
static inline void check_first(gd_tensor *x, int64_t k, bool descending, const double *at)
{
    gd_tensor *first;
    ck_assert(gd_topk(x, k, 1, descending, &first) != NULL);
    double *got = values_of(first);
    for (int64_t i = 0; i < 6 * k; i++)
        ck_assert(got[i] == at[i + i / (3 * k) * 3 * (gd_tensor_dim(x, 1) - k)]);
    free(got);
}

/* Stable, also where many are equal, and long; 0 and -0 are equal. x is [2, n, 3] and sorted along
 * its middle, which is ties, numbers and what is not finite. */
static inline void check_long_sort(gd_context *ctx, gd_dtype dtype, int64_t n, uint64_t *seed)
{
    const int64_t count = 2 * n * 3;
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(2, n, 3)), *index;
    double *xv = zeros(count);
    for (int64_t i = 0; i < count; i++)
        xv[i] = i % 3 == 0 ? floor(random_in(seed, -40, 40)) / 8 * (i % 2 ? 1 : -1)
                : i % 3 == 1
                    ? random_in(seed, -1, 1)
                    : (double[]){0, -0., INFINITY, -INFINITY, NAN, 1}[random_below(seed, 5)];
    gd_tensor_write_f64(x, xv, count);
    gd_tensor_read_f64(x, xv, count); /* rounded */
    for (int descending = 0; descending < 2; descending++) {
        gd_tensor *y = gd_sort(x, 1, descending, &index);
        ck_assert_msg(y != NULL, "%s", gd_error(ctx));
        double *v = values_of(y), *at = values_of(index);
        bool *seen = calloc((size_t)count, sizeof *seen);
        for (int64_t i = 0; i < count; i++) {
            const int64_t line = i / (3 * n) * 3 * n + i % 3, from = line + 3 * (int64_t)at[i];
            ck_assert(at[i] >= 0 && at[i] < (double)n && !seen[from]);
            seen[from] = true;
            ck_assert(v[i] == xv[from] || (isnan(v[i]) && isnan(xv[from])));
            if (i % (3 * n) < 3) continue;
            ck_assert(!sorts_before(v[i], v[i - 3], descending));
            if (!sorts_before(v[i - 3], v[i], descending)) ck_assert(at[i] > at[i - 3]);
        }
        for (int64_t k = 1; k <= n && k <= 33; k += 16) check_first(x, k, descending, at);
        free(v), free(at), free(seen);
    }
    free(xv);
    gd_tensor_free(x);
    gd_step_end(ctx);
}

static inline void check_long_sorts(gd_context *ctx, gd_dtype dtype, uint64_t *seed)
{
    for (int k = 0; sorted_lengths[k]; k++) check_long_sort(ctx, dtype, sorted_lengths[k], seed);
}

#endif
