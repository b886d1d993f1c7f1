/* needs_jansson.h - whether the library was built with jansson: without it there are no safetensors, and
 * so no checkpoints. */
#ifndef GRADUS_TEST_NEEDS_JANSSON_H
#define GRADUS_TEST_NEEDS_JANSSON_H

#include <stdbool.h>
#include <stdio.h>

#include "gradus/gradus.h"

static inline bool jansson_missing(void)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_safetensors_close(gd_safetensors_wrap(ctx, "\2\0\0\0\0\0\0\0{}", 10));
    const bool missing = gd_error_status(ctx) == GD_ERROR_UNSUPPORTED;
    gd_context_free(ctx);
    if (missing) printf("the library was built without jansson: skipped\n");
    return missing;
}

#endif
