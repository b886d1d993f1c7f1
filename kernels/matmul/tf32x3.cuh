// tf32x3.cuh - float32 products on Hopper's tensor cores, each as three products of TF32.
#ifndef GD_TF32X3_CUH
#define GD_TF32X3_CUH

#include "matmul/gemm.cuh"

// Whether gd_tf32x3 computes this product on compute capability 9.0: large single products of
// aligned operands, no batches. It depends on sizes, strides and alignment alone.
bool gd_tf32x3_takes(const gd_gemm &product);

// Queues it. `workspace`: as for gd_gemm_cuda.
gd_status gd_tf32x3(const gd_call *call, const gd_gemm &product, gd_gemm_workspace *workspace);

// Makes the workspace at least so large (gemm.cu).
gd_status gd_gemm_reserve(const gd_call *call, size_t bytes, gd_gemm_workspace *workspace);

#endif
