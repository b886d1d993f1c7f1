/* services.h - what the core asks of the kernels.
 *
 * The core keeps books and moves pointers; whatever computes on tensor data lives in kernels/.
 * Ops reach the core as records (gd_op). The few computations that the core itself needs, copies
 * of strided views, fills, random numbers, optimizer updates, come through this table, one per
 * device. kernels/registry.c fills in both; no other arrow runs between the two rooms.
 *
 * Conventions: outputs first; n and all strides in elements; the context comes last, for the
 * threads (whose number never changes a bit of the result) or the stream to run on. Trouble on a
 * device becomes the context's error. On a GPU the work is queued, not waited for, but where a
 * number is returned.
 */
#ifndef GRADUS_SERVICES_H
#define GRADUS_SERVICES_H

/* NaN and infinity are told from numbers, and sums are added in the order that is written. */
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "gradus cannot be compiled with -ffast-math: it would not see NaN and infinity"
#endif

#include "gradus/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensor memory as a kernel sees it: element (i0, ...) at data + sum of i_k * strides[k]. */
typedef struct gd_layout {
    void *data;
    gd_dtype dtype;
    int ndim;
    const int64_t *shape;
    const int64_t *strides;
} gd_layout;

typedef struct gd_sgd_step {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, first; /* first: v holds nothing yet */
} gd_sgd_step;

typedef struct gd_adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
} gd_adamw_step;

/* Parameters in 16 bits, GD_BFLOAT16 or GD_FLOAT16; NULL: there are none. An update leaves in them
 * their masters, rounded. Before it, a master that does not round to its parameter takes the value
 * of that: somebody has written it. */
typedef struct gd_rounded {
    void *data;
    gd_dtype dtype;
} gd_rounded;

typedef struct gd_services {
    /* dst = src, converting; the shapes are equal. Between real dtypes rounds to nearest even (at
     * once, never by way of another dtype); real to GD_INT32 truncates and saturates. */
    void (*copy)(gd_layout dst, gd_layout src, gd_context *ctx);

    /* dst[i] += src[i], both packed and real; the sum is taken in the wider of float32 and the two
     * dtypes, and rounded once. */
    void (*accumulate)(void *dst, gd_dtype dst_dtype, const void *src, gd_dtype src_dtype,
                       int64_t n, gd_context *ctx);

    void (*fill)(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx);

    /* Sum of squares of a packed array, in double, in an order that n alone decides. */
    double (*sum_squares)(const void *x, gd_dtype dtype, int64_t n, gd_context *ctx);

    /* x[i] *= factor */
    void (*scale)(void *x, gd_dtype dtype, double factor, int64_t n, gd_context *ctx);

    /* Fills of packed arrays as random.h defines them, from word `offset` of stream (seed, 0). */
    void (*uniform)(void *dst, gd_dtype dtype, int64_t n, double low, double high, uint64_t seed,
                    uint64_t offset, gd_context *ctx);
    void (*normal)(void *dst, gd_dtype dtype, int64_t n, double mean, double stddev, uint64_t seed,
                   uint64_t offset, gd_context *ctx);
    void (*integers)(int32_t *dst, int64_t n, int64_t low, int64_t high, uint64_t seed,
                     uint64_t offset, gd_context *ctx);
    void (*permutation)(int32_t *dst, int64_t n, uint64_t seed, uint64_t offset, gd_context *ctx);

    /* Updates of n parameters w from gradients g; v and m are states of the same dtype, float32 or
     * float64. optim.h has the formulas. Where ops read the parameters in 16 bits, w is their
     * master in float32, and `rounded` what they read; see gd_rounded. */
    void (*sgd)(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded, int64_t n,
                const gd_sgd_step *step, gd_context *ctx);
    void (*adamw)(void *w, void *m, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,
                  int64_t n, const gd_adamw_step *step, gd_context *ctx);
} gd_services;

/* Filled in by kernels/registry.c. NULL for a device that is not built in. */
extern const gd_services *const gd_services_of[GD_DEVICE_COUNT];

/* The ops of the library, in the order of kernels/ops.def. */
extern const gd_op *const gd_builtin_ops[];
extern const int gd_builtin_op_count;

/* What the tables hold: gd_copy_cpu, gd_copy_cuda and so on (kernels/copy, kernels/random,
 * kernels/optim). */
#define GD_DECLARE_SERVICES(device)                                                              \
    void gd_copy_##device(gd_layout dst, gd_layout src, gd_context *ctx);                        \
    void gd_accumulate_##device(void *dst, gd_dtype dst_dtype, const void *src,                  \
                                gd_dtype src_dtype, int64_t n, gd_context *ctx);                 \
    void gd_fill_##device(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx);  \
    double gd_sum_squares_##device(const void *x, gd_dtype dtype, int64_t n, gd_context *ctx);   \
    void gd_scale_##device(void *x, gd_dtype dtype, double factor, int64_t n, gd_context *ctx);  \
    void gd_uniform_##device(void *dst, gd_dtype dtype, int64_t n, double low, double high,      \
                             uint64_t seed, uint64_t offset, gd_context *ctx);                   \
    void gd_normal_##device(void *dst, gd_dtype dtype, int64_t n, double mean, double stddev,    \
                            uint64_t seed, uint64_t offset, gd_context *ctx);                    \
    void gd_integers_##device(int32_t *dst, int64_t n, int64_t low, int64_t high, uint64_t seed, \
                              uint64_t offset, gd_context *ctx);                                 \
    void gd_permutation_##device(int32_t *dst, int64_t n, uint64_t seed, uint64_t offset,        \
                                 gd_context *ctx);                                               \
    void gd_sgd_##device(void *w, void *v, const void *g, gd_dtype dtype, gd_rounded rounded,    \
                         int64_t n, const gd_sgd_step *step, gd_context *ctx);                   \
    void gd_adamw_##device(void *w, void *m, void *v, const void *g, gd_dtype dtype,             \
                           gd_rounded rounded, int64_t n, const gd_adamw_step *step,             \
                           gd_context *ctx);

GD_DECLARE_SERVICES(cpu)
GD_DECLARE_SERVICES(cuda)

/* Philox words on the host, for gd_philox (kernels/random). */
void gd_philox_words(uint64_t seed, uint64_t subsequence, uint64_t offset, int64_t count,
                     uint32_t *words);

#ifdef __cplusplus
}
#endif
#endif
