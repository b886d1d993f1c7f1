/* device_none.c - the replacement for device_cuda.c in a library built without CUDA. */
#include "core/core.h"

#ifndef GD_HAVE_CUDA

static gd_status none_open(gd_context *ctx)
{
    return gd_fail(ctx, GD_ERROR_DEVICE,
                   "no CUDA device: this build has no CUDA code; build it with -DGRADUS_CUDA=ON, "
                   "which needs nvcc");
}

const gd_device_table gd_device_cuda = {.device = GD_CUDA, .open = none_open};

#endif
