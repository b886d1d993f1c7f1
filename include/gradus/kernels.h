/* kernels.h - the RMSNorm kernels on raw pointers: no tensor, no tape, no context.
 *
 * For those who have their own tensors and want the kernels alone. Everything is a number or a
 * pointer: for gd_cuda_* to memory of the CUDA device that is current, with `stream` a cudaStream_t
 * as void *; for gd_cpu_* to the host's memory, with a number of threads in its place. The CUDA
 * calls put kernels on the stream and return: they allocate nothing, wait for nothing and can be
 * captured in a CUDA graph. Any thread may make them. A library built without CUDA has them too,
 * and they answer GD_ERROR_UNSUPPORTED.
 *
 * With x [M, N], factor = offset + weight (1 where there is no weight) and, where a residual is
 * given, sum = x + residual in the place of x:
 *
 *     rstd[i] = 1 / sqrt(mean(x[i, :]^2) + eps),   xhat = x * rstd
 *     y       = xhat * factor + bias
 *     dx      = rstd * (h - xhat * mean(h * xhat, over the row)) + dsum,   h = dy * factor
 *     dweight = sum over rows of dy * xhat,   dbias = sum over rows of dy
 *
 * (Zhang & Sennrich 2019, arXiv:1910.07467; kernels/rms_norm/README.md derives the backward.)
 *
 * Layout. Rows are packed and may lie any distance apart: element (i, j) of x is
 * x[i * x_stride + j], strides counted in elements. A stride may be 0 for what is only read (a dy
 * that is the same in every row). With heads, x [T, H, N], M = T * H: the rows of one token lie
 * side by side, and the stride leads from token to token: element (t, h, j) is
 * x[t * x_stride + h * N + j].
 *
 * Numbers. Sums and rstd are float32, or float64 where dtype, y_dtype or weight_dtype is
 * GD_FLOAT64. The bits of the result depend on the sizes and dtypes, on no scheduling and no number
 * of threads, and those of a row on no other row. Sums of squares beyond the range of float32
 * (|x| > 1e19) make the row 0 on a GPU.
 *
 * Speed on a GPU wants pointers and rows (stride times size) on 16-byte boundaries, N a multiple of
 * 16 bytes, 16-bit tensors beside each other or beside float32 ones, and weights in float32 or in
 * y_dtype; whatever is not so goes another, slower way. Use:
 *
 *     gd_rms_norm_problem p = {.rows = M, .cols = N, .dtype = GD_BFLOAT16, .y_dtype = GD_BFLOAT16,
 *                              .weight_dtype = GD_BFLOAT16, .dweight_dtype = GD_FLOAT32,
 *                              .eps = 1e-6};
 *     gd_cuda_rms_norm_forward(&p, &(gd_rms_norm_values){
 *         .y = y, .y_stride = N, .rstd = rstd, .x = x, .x_stride = N, .weight = weight}, stream);
 *     ...
 *     cudaMalloc(&workspace, gd_cuda_rms_norm_workspace(&p));
 *     gd_cuda_rms_norm_backward(&p, &(gd_rms_norm_gradients){
 *         .dx = dx, .dx_stride = N, .dweight = dw, .dy = dy, .dy_stride = N, .x = x,
 *         .x_stride = N, .rstd = rstd, .weight = weight, .workspace = workspace}, stream);
 */
#ifndef GRADUS_KERNELS_H
#define GRADUS_KERNELS_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_rms_norm_problem {
    int64_t rows;           /* M, may be 0; with heads a multiple of them */
    int64_t cols;           /* N, may be 0 */
    int64_t heads;          /* H, the rows of a token; 0 or 1: every row is one */
    bool weight_per_head;   /* weight and bias are [H, N], not [N] */
    gd_dtype dtype;         /* of what is normalised and of its gradients: x and dx, or with a
                               * residual: residual, sum, dsum and dx */
    gd_dtype y_dtype;       /* of y and dy; with a residual also of x and dbranch */
    gd_dtype weight_dtype;  /* of weight and bias */
    gd_dtype dweight_dtype; /* of dweight and dbias */
    double eps;             /* at least 0 */
    double offset;          /* added to the weight, in float32 or float64: 1 for Gemma's */
    bool
        round_before_weight; /* xhat is rounded to y_dtype before the product, as in Llama's code */
} gd_rms_norm_problem;

/* What the forward reads and writes. y may take the place of x, and the sum that of the residual. */
typedef struct gd_rms_norm_values {
    void *y; /* [M, N] */
    int64_t y_stride;
    void *rstd;    /* [M], which the backward needs; NULL if none will come */
    const void *x; /* [M, N] */
    int64_t x_stride;
    const void *residual; /* [M, N], or NULL */
    int64_t residual_stride;
    void *sum; /* [M, N], where there is a residual: x + residual rounded to `dtype`; y is the norm
                * of what is stored */
    int64_t sum_stride;
    const void *weight; /* [N] or [H, N], packed, or NULL */
    const void *bias;   /* likewise */
} gd_rms_norm_values;

/* What the backward reads and writes. What is not wanted is NULL and costs nothing. */
typedef struct gd_rms_norm_gradients {
    void *dx; /* [M, N] of `dtype`: the gradient of what was normalised, and so, where that was a
               * sum, of the residual and (if of one dtype) of x. May be dy or dsum itself, whose
               * values are then gone. */
    int64_t dx_stride;
    bool accumulate_dx; /* add to what dx holds */
    void *dbranch; /* [M, N] of y_dtype: the same numbers, for an x that was added to a residual
                         * of another dtype */
    int64_t dbranch_stride;
    bool accumulate_dbranch;
    void *dweight;           /* [N] or [H, N] */
    void *dbias;             /* likewise; costs another read of dy */
    bool accumulate_dweight; /* add to what dweight holds: summed in float32, rounded once */
    bool accumulate_dbias;

    const void *dy; /* [M, N] */
    int64_t dy_stride;
    const void *dsum; /* [M, N]: the gradient that came to the sum, added to dx; or NULL */
    int64_t dsum_stride;
    const void *x; /* [M, N]: what was normalised, x or the sum */
    int64_t x_stride;
    const void *rstd;   /* [M], from the forward */
    const void *weight; /* as in the forward */
    void *workspace;    /* of gd_..._rms_norm_workspace bytes, 16-byte aligned */
} gd_rms_norm_gradients;

/* Each returns GD_OK; GD_ERROR_ARGUMENT for a size below 0, a dtype that is not real, rows that are
 * no multiple of the heads, or a pointer that is missing; GD_ERROR_DEVICE or GD_ERROR_MEMORY where
 * CUDA said so. */
GD_API gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *problem,
                                          const gd_rms_norm_values *values, void *stream);
GD_API gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *problem,
                                           const gd_rms_norm_gradients *gradients, void *stream);

/* The bytes of workspace that a backward of these sizes and dtypes takes: room for partial sums of
 * dweight and dbias; 0 for an invalid problem. The workspace needs no preparation, and is free
 * again when the backward has run. */
GD_API size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *problem);

/* The same on the CPU, by `threads` threads at most (at least 1). */
GD_API gd_status gd_cpu_rms_norm_forward(const gd_rms_norm_problem *problem,
                                         const gd_rms_norm_values *values, int threads);
GD_API gd_status gd_cpu_rms_norm_backward(const gd_rms_norm_problem *problem,
                                          const gd_rms_norm_gradients *gradients, int threads);
GD_API size_t gd_cpu_rms_norm_workspace(const gd_rms_norm_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
