/* gpu.h - the end of a test program that needs a GPU: without one it is skipped with a message. */
#ifndef GRADUS_TEST_GPU_H
#define GRADUS_TEST_GPU_H

#include <stdio.h>

#include "check_main.h"
#include "gradus/gradus.h"

/* A context on the GPU whose fresh memory is NaN, unless GRADUS_TEST_NO_POISON is in the
 * environment. */
static inline gd_context *gpu_context(void)
{
    bool poison = !getenv("GRADUS_TEST_NO_POISON");
    gd_context_options options = {.device = GD_CUDA, .seed = 1, .poison = poison};
    return gd_context_create(&options);
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

#endif
