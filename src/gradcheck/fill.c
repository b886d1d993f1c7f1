/* fill.c - random inputs and cotangents, on the host, from Philox: they depend only on a seed and a
 * stream number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"

/* Two uniform numbers in (0, 1) for index i of a stream. */
static void uniform_pair(double u[2], uint64_t seed, uint64_t stream, int64_t i)
{
    uint32_t word[4];
    gd_philox(seed, stream, (uint64_t)i * 4, 4, word);
    for (int k = 0; k < 2; k++) {
        uint64_t bits = (uint64_t)word[2 * k] << 32 | word[2 * k + 1];
        u[k] = ((double)(bits >> 11) + 0.5) * 0x1p-53;
    }
}

static double uniform(uint64_t seed, uint64_t stream, int64_t i)
{
    double u[2];
    uniform_pair(u, seed, stream, i);
    return u[0];
}

void gd_check_normal(double *value, int64_t count, uint64_t seed, uint64_t stream)
{
    const double two_pi = 6.283185307179586;
    for (int64_t i = 0; i < count; i++) { /* Box-Muller; the second number is not used */
        double u[2];
        uniform_pair(u, seed, stream, i);
        value[i] = sqrt(-2 * log(u[0])) * cos(two_pi * u[1]);
    }
}

void gd_check_signs(double *value, int64_t count, uint64_t seed, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++) value[i] = uniform(seed, stream, i) < 0.5 ? -1 : 1;
}

int64_t gd_check_below(int64_t limit, uint64_t seed, uint64_t stream, int64_t at)
{
    int64_t k = (int64_t)(uniform(seed, stream, at) * (double)limit);
    return k < limit ? k : limit - 1;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void gd_check_sort(double *x, int64_t count)
{
    qsort(x, (size_t)count, sizeof *x, compare_numbers);
}

/* Sorts normal numbers, pushes neighbours apart until no two are closer than `gap`, moves them
 * back so that their mean stays, and shuffles. `scratch` [count]. */
static void distinct(double *value, int64_t count, double gap, uint64_t seed, uint64_t stream,
                     double *scratch)
{
    double before = 0, after = 0, least = -INFINITY;
    memcpy(scratch, value, (size_t)count * sizeof *scratch);
    gd_check_sort(scratch, count);
    for (int64_t i = 0; i < count; i++) {
        before += scratch[i];
        scratch[i] = fmax(scratch[i], least);
        least = scratch[i] + gap;
        after += scratch[i];
    }
    for (int64_t i = 0; i < count; i++) value[i] = scratch[i] + (before - after) / (double)count;
    for (int64_t i = count - 1; i > 0; i--) { /* Fisher-Yates; words after those used above */
        int64_t j = gd_check_below(i + 1, seed, stream, count + i);
        double v = value[i];
        value[i] = value[j];
        value[j] = v;
    }
}

void gd_check_fill(double *value, int64_t count, const gd_case_input *how, double gap,
                   uint64_t seed, uint64_t stream, double *scratch)
{
    double width = how->b == 0 ? 1 : how->b;
    switch (how->fill) {
    case GD_FILL_NORMAL:
    case GD_FILL_DISTINCT:
        gd_check_normal(value, count, seed, stream);
        for (int64_t i = 0; i < count; i++) value[i] = how->a + width * value[i];
        if (how->fill == GD_FILL_DISTINCT) distinct(value, count, gap, seed, stream, scratch);
        return;
    case GD_FILL_UNIFORM:
        for (int64_t i = 0; i < count; i++)
            value[i] = how->a + (how->b - how->a) * uniform(seed, stream, i);
        return;
    case GD_FILL_CONSTANT:
        for (int64_t i = 0; i < count; i++) value[i] = how->a;
        return;
    case GD_FILL_INDEX:
        for (int64_t i = 0; i < count; i++)
            value[i] = how->a + (double)gd_check_below((int64_t)(how->b - how->a), seed, stream, i);
        return;
    }
}
