/* ladder.h - the rungs of ladder.cu, by number, for the benchmark that times them. */
#ifndef GD_RMS_NORM_LADDER_H
#define GD_RMS_NORM_LADDER_H

#include <cuda_runtime.h>
#include <stdint.h>

extern const int gd_ladder_forward_rungs, gd_ladder_backward_rungs;
const char *gd_ladder_forward_name(int rung);
const char *gd_ladder_backward_name(int rung);

/* float32, packed rows, N a multiple of 4 and at most 8192. */
cudaError_t gd_ladder_forward(int rung, float *y, float *rstd, const float *x, const float *weight,
                              int64_t rows, int64_t cols, float eps, cudaStream_t stream);

/* scratch: M x N floats */
cudaError_t gd_ladder_backward(int rung, float *dx, float *dw, float *scratch, const float *dy,
                               const float *x, const float *rstd, const float *weight, int64_t rows,
                               int64_t cols, cudaStream_t stream);

#endif
