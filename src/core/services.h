/* services.h - the kernels that the core needs.
 *
 * The core manages memory and the tape; all code that computes on tensor data is in kernels/. Ops
 * reach the core as records (gd_op). The few computations that the core itself needs (copies of
 * strided views, fills, random numbers, optimizer updates) come through this table, one per device.
 * kernels/registry.c fills in both; there is no other connection.
 *
 * Conventions: outputs first; n and all strides in elements; the context comes last, for the
 * threads (whose number never changes a bit of the result) or the stream to run on. An error on a
 * device becomes the context's error. On a GPU the work is queued, and waited for only if a number
 * is returned.
 */
#ifndef GRADUS_SERVICES_H
#define GRADUS_SERVICES_H

/* The code tests for NaN and infinity, and relies on the order of its sums. */
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "gradus cannot be compiled with -ffast-math: tests for NaN and infinity would fail"
#endif

#include "gradus/autograd.h"
#include "gradus/random.h"
#ifndef __cplusplus
#include "core/tensor.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What gd_context_options.notice gets, each once. */
typedef enum gd_notice_kind {
    GD_NOTICE_GROWTH,
    GD_NOTICE_UPDATES,
    GD_NOTICE_RATE,
    GD_NOTICE_DECAY,
    GD_NOTICE_MUON,
    GD_NOTICE_SPENT,
    GD_NOTICE_NORM,
    GD_NOTICE_NAN,
    GD_NOTICE_NO_GRADIENT,
    GD_NOTICE_UNREAD,
    GD_NOTICE_INDEX,
    GD_NOTICE_STATISTICS,
    GD_NOTICE_TWO_OPTIMIZERS,
    GD_NOTICE_UNUSED,
    GD_NOTICE_METRICS
} gd_notice_kind;
void gd_notice(gd_context *ctx, gd_notice_kind kind, const char *format, ...) GD_PRINTF(3, 4);

/* Tensor memory as a kernel sees it: element (i0, ...) at data + sum of i_k * strides[k]. */
typedef struct gd_layout {
    void *data;
    gd_dtype dtype;
    int ndim;
    const int64_t *shape;
    const int64_t *strides;
} gd_layout;

gd_layout gd_layout_of(const gd_tensor *t);

/* An array of which few parts are other than 0 has a byte for each granule, on the device: 0 if
 * all of it is 0, otherwise 1 (core/rows.c). NULL: any of the array may be other than 0. */
enum { GD_GRANULE = 64 }; /* bytes */

/* dst = src, converting; the shapes are equal. Between real dtypes rounds to nearest even (at
 * once, never by way of another dtype); real to GD_INT32 truncates and saturates. */
typedef void gd_copy_service(gd_layout dst, gd_layout src, gd_context *ctx);

/* dst[i] += src[i], both packed and real; the sum is taken in the wider of float32 and the two
 * dtypes, and rounded once. */
typedef void gd_accumulate_service(void *dst, gd_dtype dst_dtype, const void *src,
                                   gd_dtype src_dtype, int64_t n, gd_context *ctx);

typedef void gd_fill_service(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx);

/* *sum = the sum of squares of a packed array, in double, in an order that depends only on n.
 * `sum` is device memory. Granules that are 0 are not read, which changes no bit. */
typedef void gd_sum_squares_service(double *sum, const void *x, gd_dtype dtype, int64_t n,
                                    const uint8_t *touched, gd_context *ctx);

/* x[i] *= factor, but for granules that are 0. */
typedef void gd_scale_service(void *x, gd_dtype dtype, double factor, int64_t n,
                              const uint8_t *touched, gd_context *ctx);

/* Sets the bytes of the rows of a table, of `row_bytes` each, that n ids name; others than
 * 0 ... rows - 1 name none. */
typedef void gd_touch_rows_service(uint8_t *touched, const int32_t *ids, int64_t n, int64_t rows,
                                   int64_t row_bytes, gd_context *ctx);

/* Makes x zeros, and then all of touched. */
typedef void gd_clear_touched_service(void *x, int64_t bytes, uint8_t *touched, gd_context *ctx);

/* The first and the last number of a real dtype in [low, high); if there is none, both are low,
 * rounded. On the host. */
typedef void gd_numbers_within_service(gd_dtype dtype, double low, double high, double *first,
                                       double *last);

/* Fills of packed arrays as random.h defines them, from word `offset` of stream (seed, 0). */
typedef void gd_uniform_service(void *dst, gd_dtype dtype, int64_t n, double low, double high,
                                uint64_t seed, uint64_t offset, gd_context *ctx);
typedef void gd_normal_service(void *dst, gd_dtype dtype, int64_t n, double mean, double stddev,
                               uint64_t seed, uint64_t offset, gd_context *ctx);
typedef void gd_integers_service(int32_t *dst, int64_t n, int64_t low, int64_t high, uint64_t seed,
                                 uint64_t offset, gd_context *ctx);
typedef void gd_permutation_service(int32_t *dst, int64_t n, uint64_t seed, uint64_t offset,
                                    gd_context *ctx);

/* state->offset += words; `state` is device memory. NULL on devices without graphs. */
typedef void gd_advance_service(gd_random_state *state, uint64_t words, gd_context *ctx);

/* The services that both devices have: NAME is of the type gd_NAME_service, and gd_NAME_cpu and
 * gd_NAME_cuda do it (kernels/copy, kernels/random). */
#define GD_SERVICES(X) \
    X(copy)            \
    X(accumulate)      \
    X(fill)            \
    X(sum_squares)     \
    X(scale) X(touch_rows) X(clear_touched) X(uniform) X(normal) X(integers) X(permutation)
#define GD_SERVICE_FIELD(name) gd_##name##_service *name;
#define GD_SERVICE_FUNCTIONS(name) gd_##name##_service gd_##name##_cpu, gd_##name##_cuda;

typedef struct gd_services {
    GD_SERVICES(GD_SERVICE_FIELD)
    gd_numbers_within_service *numbers_within;
    gd_advance_service *advance;
    const struct gd_update_services *update; /* optim/services.h */
} gd_services;

/* These tables are all that the core has of other rooms; kernels/registry.c fills them in.
 *
 * The services of each device; NULL for one that is not built in. */
extern const gd_services *const gd_services_of[GD_DEVICE_COUNT];

/* Each device (core.h). */
typedef struct gd_device_table gd_device_table;
extern const gd_device_table gd_device_cpu, gd_device_cuda;
extern const gd_device_table *const gd_devices[GD_DEVICE_COUNT];

/* The ops of the library, by folder. */
extern const gd_op *const gd_builtin_ops[];
extern const int gd_builtin_op_count;

/* The ops that join the derivatives of others. */
typedef struct gd_joining_ops {
    gd_tensor *(*add)(gd_tensor *a, gd_tensor *b);
    gd_tensor *(*cast)(gd_tensor *x, gd_dtype dtype);
    gd_tensor *(*contiguous)(gd_tensor *x);
} gd_joining_ops;
extern const gd_joining_ops gd_joining;

GD_SERVICES(GD_SERVICE_FUNCTIONS)
gd_numbers_within_service gd_numbers_within;
gd_advance_service gd_advance_cuda;

/* A packed tensor for this call only, as gd_call_scratch: for an op that calls the kernels of
 * others. It has no more elements than an input. */
gd_tensor *gd_call_tensor(const gd_call *call, gd_spec spec);

/* For functions of several ops, whose errors are to name the function and its arguments. Whether a
 * record, of which name, inputs and shape() are used, takes these inputs; shape() may fill two
 * outputs and four saves. */
bool gd_accepts(const gd_op *op, gd_tensor *const *inputs, int count, const void *args);

/* False, with the error set, if t is NULL or freed, or its memory was released. */
bool gd_tensor_usable(const gd_tensor *t, const char *who, const char *argument);

/* The random_base of a gd_call, for a service. */
const gd_random_state *gd_random_base(const gd_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
