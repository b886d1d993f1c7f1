/* kernels.h - the RMSNorm kernels on raw device pointers: no tensor, no tape, no context.
 *
 * For those who have their own tensors and want the kernels alone. Everything is a number or a
 * pointer to memory of the CUDA device that is current; `stream` is a cudaStream_t as void *. The
 * calls put kernels on the stream and return: they allocate nothing, wait for nothing and can be
 * captured in a CUDA graph. Any thread may make them. A library built without CUDA has them too,
 * and they answer GD_ERROR_UNSUPPORTED.
 *
 * A backward of several kernels is launched as a small graph, which the driver makes, and takes
 * memory for, the first time that a stream gets these kernels. The 64 used last are kept, and do
 * not outlive a cudaDeviceReset: call no backward after one.
 *
 * With x [M, N], xhat = x * rstd and factor = offset + weight (1 where there is no weight):
 *
 *     rstd[i] = 1 / sqrt(mean(x[i, :]^2) + eps)
 *     y       = xhat * factor + bias
 *     dx      = rstd * (h - xhat * mean(h * xhat, over the row)),   h = dy * factor
 *     dweight = sum over rows of dy * xhat,   dbias = sum over rows of dy
 *
 * Rows are packed and may lie any distance apart: element (i, j) of x is x[i * x_stride + j].
 * A stride may be 0 for what is only read (a dy that is the same in every row). A weight for each
 * of H heads of x [..., H, N] is H calls, on x + h * N with stride H * N.
 *
 * Sums are taken in float32 (float64 for GD_FLOAT64), rstd is float32 (float64) whatever x is. The
 * bits of the result depend on the sizes and dtypes, on no scheduling, and those of a row on no
 * other row. Sums of squares beyond the range of float32 (|x| > 1e19) make the row 0.
 *
 * Speed wants pointers and rows (stride times size) on 16-byte boundaries, and N * size a multiple
 * of 16; whatever is not so goes another, slower way. Use:
 *
 *     gd_rms_norm_problem p = {.rows = M, .cols = N, .dtype = GD_BFLOAT16, .eps = 1e-6,
 *                              .weight_dtype = GD_BFLOAT16, .dweight_dtype = GD_FLOAT32};
 *     gd_cuda_rms_norm_forward(&p, y, N, rstd, x, N, weight, NULL, stream);
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
    int64_t rows;             /* M, may be 0 */
    int64_t cols;             /* N, may be 0 */
    gd_dtype dtype;           /* of x, y, dy and dx: any real one */
    gd_dtype weight_dtype;    /* of weight and bias: any real one */
    gd_dtype dweight_dtype;   /* of dweight and dbias: any real one */
    double eps;               /* at least 0 */
    double offset;            /* added to the weight, in float32: 1 for Gemma's */
    bool round_before_weight; /* xhat is rounded to dtype before the product, as in Llama's code */
} gd_rms_norm_problem;

/* y = rms_norm(x). rstd [M] (float32, or float64 for GD_FLOAT64) is what the backward needs; NULL
 * if none will come. y may be x. weight and bias [N], or NULL. */
GD_API gd_status gd_cuda_rms_norm_forward(const gd_rms_norm_problem *problem, void *y,
                                          int64_t y_stride, void *rstd, const void *x,
                                          int64_t x_stride, const void *weight, const void *bias,
                                          void *stream);

/* What the backward reads and writes. What is not wanted is NULL and costs nothing. */
typedef struct gd_rms_norm_gradients {
    void *dx; /* [M, N]; may be dy itself, whose values are then gone */
    int64_t dx_stride;
    void *dweight;           /* [N] */
    void *dbias;             /* [N]; costs another read of dy */
    bool accumulate_dweight; /* add to what dweight holds: summed in float32, rounded once */
    bool accumulate_dbias;

    const void *dy; /* [M, N] */
    int64_t dy_stride;
    const void *x; /* [M, N] */
    int64_t x_stride;
    const void *rstd;   /* [M], from the forward */
    const void *weight; /* [N] or NULL */
    void *workspace;    /* of gd_cuda_rms_norm_workspace bytes, 16-byte aligned */

    /* Where the backward is two kernels: begin while what is on the stream ends, 1 to 4 us less of
     * a busy GPU for 3 us more of the host. The result is the same. When captured, it overlaps in
     * any case. */
    bool overlap;
} gd_rms_norm_gradients;

GD_API gd_status gd_cuda_rms_norm_backward(const gd_rms_norm_problem *problem,
                                           const gd_rms_norm_gradients *gradients, void *stream);

/* The bytes of workspace that a backward of these sizes and dtypes takes: room for partial sums of
 * dweight and dbias, below 8 MB; 0 for an invalid problem (a negative size, an int32 dtype).
 * The workspace needs no preparation, and is free again when the backward has run. */
GD_API size_t gd_cuda_rms_norm_workspace(const gd_rms_norm_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
