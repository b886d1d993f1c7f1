/* rms_norm_no_cuda.c - the functions of gradus/kernels.h in a library built without CUDA, so that
 * callers link everywhere and get an error. */
#include "gradus/kernels.h"

#ifndef GD_HAVE_CUDA

gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *problem,
                                   const gd_rms_norm_values *values, void *stream)
{
    (void)problem, (void)values, (void)stream;
    return GD_ERROR_UNSUPPORTED;
}

gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *problem,
                                    const gd_rms_norm_gradients *gradients, void *stream)
{
    (void)problem, (void)gradients, (void)stream;
    return GD_ERROR_UNSUPPORTED;
}

size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *problem)
{
    (void)problem;
    return 0;
}

#endif
