// tf32x3.cuh - float32 products on Hopper's tensor cores, each as three products of TF32.
#ifndef GD_TF32X3_CUH
#define GD_TF32X3_CUH

#include "matmul/gemm.cuh"

// Queues a large single product of aligned operands on compute capability 9.0. False if it is none:
// that depends on sizes, strides and alignment alone. `workspace`: as for gd_gemm_cuda.
bool gd_tf32x3(const gd_call *call, const gd_gemm &product, gd_gemm_workspace *workspace,
               gd_status *status);

#endif
