/* kernels.h - the RMSNorm kernels on raw pointers: no tensor, no tape, no context.
 *
 * For programs with their own tensors. Everything is a number or a pointer: for gd_cuda_* to memory
 * of the current CUDA device, with `stream` a cudaStream_t as void *; for gd_cpu_* to the host's
 * memory, with a number of threads in its place. The CUDA calls queue kernels on the stream and
 * return: they allocate nothing, wait for nothing and can be captured in a CUDA graph. They may be
 * called from any thread. In a library built without CUDA they return GD_ERROR_UNSUPPORTED.
 *
 * With x [M, N], factor = offset + weight (1 without a weight) and, if a residual is given,
 * sum = x + residual in place of x:
 *
 *     rstd[i] = 1 / sqrt(mean(x[i, :]^2) + eps),   xhat = x * rstd
 *     y       = xhat * factor + bias
 *     dx      = rstd * (h - xhat * mean(h * xhat, over the row)) + dsum,   h = dy * factor
 *     dweight = sum over rows of dy * xhat,   dbias = sum over rows of dy
 *
 * (Zhang & Sennrich 2019, arXiv:1910.07467; kernels/rms_norm/README.md derives the backward.)
 *
 * Layout. Rows are packed, at any distance from each other: element (i, j) of x is
 * x[i * x_stride + j], with strides in elements. A stride may be 0 for tensors that are only read
 * (a dy that is the same in every row). With heads, x [T, H, N], M = T * H: the rows of one token
 * are adjacent, and the stride is that from token to token: element (t, h, j) is
 * x[t * x_stride + h * N + j].
 *
 * Numbers. Sums and rstd are float32, or float64 if dtype, y_dtype or weight_dtype is GD_FLOAT64.
 * The bits of the result depend on the sizes, dtypes, strides and alignment, on a GPU also on its
 * compute capability and limits (as of shared memory, or what memory delivers to a multiprocessor),
 * and on nothing else, such as scheduling or the number of threads; those of a row not on
 * what other rows hold. Sums of squares beyond the range of float32 (|x| > 1e19) make the
 * row 0 on a GPU.
 *
 * The fast kernels on a GPU need 16-bit tensors combined with each other or with float32 ones, and
 * weights in float32 or in y_dtype; anything else takes a slower path. They are fastest with
 * pointers and rows (stride times size) on 16-byte boundaries, and N a multiple of 16 bytes. Use:
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
    int64_t rows;         /* M, may be 0; with heads a multiple of them */
    int64_t cols;         /* N, may be 0 */
    int64_t heads;        /* H, the rows of a token; 0 or 1: one row per token */
    bool weight_per_head; /* weight and bias are [H, N], not [N] */
    /* of the normalised tensor and its gradients: x and dx, or with a residual: residual, sum,
     * dsum and dx */
    gd_dtype dtype;
    gd_dtype y_dtype;       /* of y and dy; with a residual also of x and dbranch */
    gd_dtype weight_dtype;  /* of weight and bias */
    gd_dtype dweight_dtype; /* of dweight and dbias */
    double eps;             /* at least 0 */
    double offset;          /* added to the weight, in float32 or float64: 1 for Gemma's */
    /* xhat is rounded to y_dtype before the product, as in Llama's code */
    bool round_before_weight;
} gd_rms_norm_problem;

/* The tensors of the forward. y may overwrite x, and the sum the residual. */
typedef struct gd_rms_norm_values {
    void *y; /* [M, N] */
    int64_t y_stride;
    void *rstd;    /* [M], which the backward needs; NULL if there will be none */
    const void *x; /* [M, N] */
    int64_t x_stride;
    const void *residual; /* [M, N], or NULL */
    int64_t residual_stride;
    /* [M, N], with a residual: x + residual rounded to `dtype`; y is the norm of the rounded sum */
    void *sum;
    int64_t sum_stride;
    const void *weight; /* [N] or [H, N], packed, or NULL */
    const void *bias;   /* likewise */
} gd_rms_norm_values;

/* The tensors of the backward. NULL for gradients that are not needed: they cost nothing. */
typedef struct gd_rms_norm_gradients {
    /* [M, N] of `dtype`: the gradient of the normalised tensor, and so, if that was a sum, of
     * the residual and (if of the same dtype) of x. May be dy or dsum itself, which is then
     * overwritten. */
    void *dx;
    int64_t dx_stride;
    bool accumulate_dx; /* add to dx */
    /* [M, N] of y_dtype: the same gradient, for an x that was added to a residual of another
     * dtype */
    void *dbranch;
    int64_t dbranch_stride;
    bool accumulate_dbranch;
    void *dweight;           /* [N] or [H, N] */
    void *dbias;             /* likewise; costs another read of dy */
    bool accumulate_dweight; /* add to dweight: summed in float32, rounded once */
    bool accumulate_dbias;

    const void *dy; /* [M, N] */
    int64_t dy_stride;
    const void *dsum; /* [M, N]: the gradient of the sum, added to dx; or NULL */
    int64_t dsum_stride;
    const void *x; /* [M, N]: the normalised tensor, x or the sum */
    int64_t x_stride;
    const void *rstd;   /* [M], from the forward */
    const void *weight; /* as in the forward */
    void *workspace;    /* of gd_..._rms_norm_workspace bytes, 16-byte aligned */
} gd_rms_norm_gradients;

/* Each returns GD_OK; GD_ERROR_ARGUMENT for a size below 0, a dtype that is not real, rows that
 * are not a multiple of the heads, or a missing pointer; GD_ERROR_DEVICE or GD_ERROR_MEMORY from
 * CUDA. */
GD_API gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *problem,
                                          const gd_rms_norm_values *values, void *stream);
GD_API gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *problem,
                                           const gd_rms_norm_gradients *gradients, void *stream);

/* The bytes of workspace for a backward of these sizes and dtypes: partial sums of dweight and
 * dbias; 0 for an invalid problem. The workspace needs no preparation, and may be reused after the
 * backward. */
GD_API size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *problem);

/* Writes for which GPUs this library has code, cut off at `size`: "7.5 (PTX), 8.0, 9.0" for these
 * compute capabilities, "none" without CUDA. Returns what of it runs on a GPU of compute capability
 * `capability`, 89 for 8.9: 0 nothing, 1 PTX, which the driver compiles when it is first used and
 * keeps, 2 machine code. */
GD_API int gd_cuda_code(int capability, char *text, size_t size);

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
