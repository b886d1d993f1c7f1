/* gpu.h - the end of a test program that needs a GPU: without one it is skipped with a message. */
#ifndef GRADUS_TEST_GPU_H
#define GRADUS_TEST_GPU_H

#include <stdio.h>

#include "check_main.h"
#include "watched.h"

static inline gd_context *gpu_context(void)
{
    return watched_context((gd_context_options){.device = GD_CUDA, .seed = 1});
}

/* Whether the GPU has no products of a dtype, as 7.5 has none of bfloat16; then it says so. */
static inline bool gpu_refuses(gd_dtype dtype)
{
    if (dtype != GD_BFLOAT16) return false;
    gd_context *ctx = gpu_context();
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(16, 16));
    gd_tensor_fill(x, 1);
    gd_matmul(x, x);
    const bool refused = gd_error_status(ctx) == GD_ERROR_UNSUPPORTED;
    if (refused) printf("skipped in %s: %s\n", gd_dtype_name(dtype), gd_error(ctx));
    gd_tensor_free(x);
    gd_context_free(ctx);
    return refused;
}

/* The tests run in this process: CUDA does not outlive a fork. */
static inline int check_main_gpu(Suite *suite)
{
    enum { SKIPPED = 77 };
    gd_context *ctx = gpu_context();
    bool missing = gd_error(ctx) != NULL;
    if (missing) printf("skipped: %s\n", gd_error(ctx));
    gd_context_free(ctx);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    if (!missing) srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return missing ? SKIPPED : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define CHECK_MAIN_GPU(missing, name_, before, after)                                            \
    int main(void)                                                                               \
    {                                                                                            \
        return (missing) ? 77                                                                    \
                         : check_main_gpu(file_suite(                                            \
                               (file_line){.name = name_, .setup = before, .teardown = after})); \
    }

#endif
