/* gpu_outcome.h - what a function of a context leaves, compared between the GPU and the CPU. */
#ifndef GRADUS_TEST_GPU_OUTCOME_H
#define GRADUS_TEST_GPU_OUTCOME_H

#include <math.h>
#include <string.h>

#include "gpu.h"

enum { OUTCOME_PARTS = 6 };

typedef struct outcome {
    int parts;
    const char *name[OUTCOME_PARTS];
    double *value[OUTCOME_PARTS];
    int64_t count[OUTCOME_PARTS];
} outcome;

static inline void add_part(outcome *out, const char *name, const gd_tensor *t)
{
    const int i = out->parts++;
    ck_assert_int_le(out->parts, OUTCOME_PARTS);
    ck_assert_msg(t != NULL, "there is no %s", name);
    out->name[i] = name;
    out->count[i] = gd_tensor_count(t);
    out->value[i] = malloc(((size_t)out->count[i] + 1) * sizeof *out->value[i]);
    gd_tensor_read_f64(t, out->value[i], out->count[i]);
}

static inline void free_outcome(outcome *out)
{
    for (int i = 0; i < out->parts; i++) free(out->value[i]);
}

/* Each part of run(ctx, dtype, problem) on the GPU is that on the CPU, up to `tolerance` of its
 * largest element, and is the same in a second run. */
static inline void compare_with_cpu(outcome (*run)(gd_context *, gd_dtype, const void *),
                                    gd_dtype dtype, const void *problem, double tolerance)
{
    gd_context *cpu = gd_context_create(NULL), *gpu = gpu_context();
    outcome want = run(cpu, dtype, problem), got = run(gpu, dtype, problem),
            again = run(gpu, dtype, problem);
    for (int i = 0; i < want.parts; i++) {
        double largest = 0, worst = 0;
        ck_assert_int_eq(got.count[i], want.count[i]);
        for (int64_t k = 0; k < want.count[i]; k++) {
            largest = fmax(largest, fabs(want.value[i][k]));
            const double off = fabs(got.value[i][k] - want.value[i][k]);
            if (!(off <= worst)) worst = off;
        }
        ck_assert_msg(worst <= tolerance * largest, "%s differs by %.3g of %.3g", want.name[i],
                      worst, largest);
        ck_assert_msg(!memcmp(got.value[i], again.value[i], (size_t)got.count[i] * sizeof(double)),
                      "%s differs from run to run", want.name[i]);
    }
    free_outcome(&want), free_outcome(&got), free_outcome(&again);
    gd_context_free(cpu);
    gd_context_free(gpu);
}

#endif
