/* rms_norm.h - what the files of this folder share: the arguments of the ops, and the
 * CPU kernels. */
#ifndef GRADUS_RMS_NORM_H
#define GRADUS_RMS_NORM_H

#include "gradus/autograd.h"
#include "gradus/kernels.h"

/* The arguments of both records, rms_norm and add_rms_norm. */
typedef struct gd_rms_norm_args {
    double eps;
    double offset;               /* y = xhat * (offset + weight) + bias */
    int64_t round_before_weight; /* 0 or 1 */
} gd_rms_norm_args;

/* The kernels of both records, for any device (problem.c). */
gd_status rms_norm_forward(const gd_call *call);
gd_status rms_norm_backward(const gd_call *call);

/* The CPU kernels, computing in float or double: for problems that gd_cpu_rms_norm_* have checked,
 * with at least one row (the backward: 0 or more) of at least one number. `plain` is the formulas
 * as they are derived, for readers and tests. */
#define RMS_NORM_DECLARE(real)                                                                     \
    void rms_norm_plain_forward_##real(const gd_rms_norm_problem *, const gd_rms_norm_values *);   \
    void rms_norm_plain_backward_##real(const gd_rms_norm_problem *,                               \
                                        const gd_rms_norm_gradients *);                            \
    void rms_norm_fast_forward_##real(const gd_rms_norm_problem *, const gd_rms_norm_values *,     \
                                      int threads);                                                \
    void rms_norm_fast_backward_##real(const gd_rms_norm_problem *, const gd_rms_norm_gradients *, \
                                       int threads);
RMS_NORM_DECLARE(f32)
RMS_NORM_DECLARE(f64)

static inline int64_t rms_norm_heads(const gd_rms_norm_problem *p)
{
    return p->heads > 1 ? p->heads : 1;
}

/* Rows of weight and bias. */
static inline int64_t rms_norm_weight_rows(const gd_rms_norm_problem *p)
{
    return p->weight_per_head ? rms_norm_heads(p) : 1;
}

/* Whether all numbers of a problem can be right, for any device; and whether sums are in double. */
static inline bool rms_norm_valid(const gd_rms_norm_problem *p)
{
    return p && p->rows >= 0 && p->cols >= 0 && p->heads >= 0 && p->rows % rms_norm_heads(p) == 0 &&
           p->eps >= 0 && gd_dtype_is_real(p->dtype) && gd_dtype_is_real(p->y_dtype) &&
           gd_dtype_is_real(p->weight_dtype) && gd_dtype_is_real(p->dweight_dtype);
}

static inline bool rms_norm_in_double(const gd_rms_norm_problem *p)
{
    return p->dtype == GD_FLOAT64 || p->y_dtype == GD_FLOAT64 || p->weight_dtype == GD_FLOAT64;
}

/* dweight and dbias are summed up in at most 64 pieces of the rows, of at least 8 rows each. The
 * shapes alone decide which. A piece has all heads equally often. */
static inline int64_t rms_norm_piece_rows(const gd_rms_norm_problem *p)
{
    const int64_t heads = rms_norm_weight_rows(p), tokens = p->rows / heads;
    const int64_t rows = (tokens + 63) / 64;
    return heads * (rows > 8 ? rows : 8);
}

#endif
