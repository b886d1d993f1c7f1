/* bits.c - RMSNorm in float32 on numbers that any machine makes alike; prints the bits of what came
 * out, so that two builds can be compared. */
#include <stdio.h>
#include <string.h>

#include "gradus/gradus.h"

static uint32_t state = 1;

/* In [-2, 2), in steps of 2^-22: exact in a float. */
static float next(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 4194304.0f - 2.0f;
}

static gd_tensor *make(gd_context *ctx, int64_t M, int64_t N)
{
    const int64_t shape[] = {M, N};
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, M ? 2 : 1, M ? shape : shape + 1);
    float *values = gd_tensor_data(t);
    for (int64_t i = 0; i < gd_tensor_count(t); i++) values[i] = next();
    gd_tensor_set_requires_grad(t, true);
    return t;
}

static void print_bits(const char *name, const gd_tensor *t)
{
    const float *values = gd_tensor_data(t);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    printf("  %s %016llx", name, (unsigned long long)hash);
}

int main(void)
{
    static const int64_t sizes[][2] = {{3, 8}, {5, 33}, {64, 256}, {7, 1000}, {300, 70}};
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        gd_tensor *x = make(ctx, sizes[k][0], sizes[k][1]), *weight = make(ctx, 0, sizes[k][1]);
        gd_tensor *y = gd_keep(gd_rms_norm(x, weight, 1e-5));
        gd_backward_from(&y, 1, NULL);
        printf("%lld x %lld", (long long)sizes[k][0], (long long)sizes[k][1]);
        print_bits("y", y);
        print_bits("dweight", gd_grad(weight));
        printf("\n");
        gd_step_end(ctx);
    }
    if (gd_error(ctx)) puts(gd_error(ctx));
    const bool failed = gd_error(ctx) != NULL;
    gd_context_free(ctx);
    return failed;
}
