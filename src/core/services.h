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
#include "gradus/optim.h"
#include "gradus/random.h"
#ifndef __cplusplus
#include "core/tensor.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What gd_context_options.notice is told, each once. */
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
    GD_NOTICE_INDEX
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

/* The state of an optimizer on its device, which its kernels read and write: the host is several
 * steps ahead, and the arguments in a replayed graph cannot change. */
typedef struct gd_update_state {
    /* Between updates. */
    int64_t decided; /* updates submitted and decided: the number of the next one */
    int64_t made;    /* of these, made */
    gd_loss_scale scale;
    bool halted; /* one was not finite: none is made until the host resumes */
    /* The current step's: */
    double loss;    /* the sum of fraction * loss so far */
    double squares; /* sum of squares of all gradients */
    /* What was decided, for the kernels that update. */
    bool apply;
    double factor; /* of each gradient: clipping, and one over the loss scale */
    double rate;   /* the learning rate */
} gd_update_state;

/* The updates of parameters that were always updated together, on the device: those that were frozen
 * for a while have had fewer than others. */
typedef struct gd_update_count {
    int64_t made;                        /* of them, with the one that was decided: AdamW's t */
    double rate_by_bias1, root_by_bias2; /* AdamW: rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} gd_update_count;

enum { GD_UPDATE_COUNTS = 64 }; /* of one call of gd_decide_service */

/* The host's input to an update, and the device's report. Update n uses slot n mod GD_UPDATE_SLOTS
 * of memory that both see, and the host does not ask for it before the last update of that slot is
 * done. */
typedef struct gd_update_slot {
    double rate;             /* the host's */
    gd_update_report report; /* the device's */
} gd_update_slot;

enum { GD_UPDATE_SLOTS = 8 };

/* What the host decides of an update. */
typedef struct gd_update_rule {
    bool measured;   /* state->squares is measured, for clipping and for refusing an update */
    double max_norm; /* <= 0: not clipped */
    double beta1, beta2;
    gd_update_count *counts; /* on the device */
    uint64_t trained;        /* bit i: counts[i] is of parameters that it updates */
} gd_update_rule;

typedef enum gd_rule_kind {
    GD_RULE_SGD,     /* state: v, or NULL without momentum */
    GD_RULE_ADAMW,   /* m, v */
    GD_RULE_ADAM,    /* m, v */
    GD_RULE_RMSPROP, /* v; the velocity, or NULL without momentum; the mean, or NULL: not centered */
    GD_RULE_ADAGRAD, /* v */
    GD_RULE_LION,    /* m */
    GD_RULE_AVERAGE, /* w is a moving average of g, with beta1; g is not clipped */
    GD_RULE_KINDS
} gd_rule_kind;

/* How an update changes parameters; optim.h has the formulas. A rule does not use all of it. */
typedef struct gd_rule {
    gd_rule_kind kind;
    bool lazy;   /* elements whose gradient is 0 stay as they are */
    double rate; /* multiplies the learning rate */
    double weight_decay, momentum, dampening, beta1, beta2, eps;
    double rate_decay; /* Adagrad */
    bool nesterov;
} gd_rule;

/* The matrices that Muon updates. */
typedef struct gd_muon_rule {
    double rate; /* multiplies the learning rate */
    double weight_decay, momentum;
    bool nesterov, match_adamw;
} gd_muon_rule;

/* Parameters in 16 bits, GD_BFLOAT16 or GD_FLOAT16; NULL: there are none. An update sets them to
 * their rounded masters. Before it, a master that does not round to its parameter takes the
 * parameter's value, which has been written by others. */
typedef struct gd_rounded {
    void *data;
    gd_dtype dtype;
} gd_rounded;

enum { GD_RULE_STATES = 3 };

/* Of an array, elements [begin, end) are rows of `columns` numbers each, and perhaps some zeros after
 * them. Row r is 0 unless bit r % 32 of touched[r / 32] is set, which is on the device. `begin` and `end`
 * are at multiples of 64 bytes from the array, but for the last end. */
typedef struct gd_touched {
    uint32_t *touched;
    int64_t begin, end, columns;
} gd_touched;

/* Such parts of an array, in ascending order. */
enum { GD_SPARSE_TABLES = 8 };
typedef struct gd_sparse {
    int count;
    gd_touched table[GD_SPARSE_TABLES];
} gd_sparse;

/* n parameters w with their gradients g and states; all are of one dtype, float32 or float64. Where
 * ops read the parameters in 16 bits, w is their master in float32. */
typedef struct gd_update_arrays {
    void *w, *state[GD_RULE_STATES];
    const void *g;
    const gd_update_count *count; /* of the average: NULL */
    gd_dtype dtype;
    gd_rounded rounded;
    int64_t n;
    /* The rows of g, for a rule that does nothing where g is 0; NULL: all numbers are updated. */
    const gd_touched *rows;
} gd_update_arrays;

/* dst = src, converting; the shapes are equal. Between real dtypes rounds to nearest even (at
 * once, never by way of another dtype); real to GD_INT32 truncates and saturates. */
typedef void gd_copy_service(gd_layout dst, gd_layout src, gd_context *ctx);

/* dst[i] += src[i], both packed and real; the sum is taken in the wider of float32 and the two
 * dtypes, and rounded once. */
typedef void gd_accumulate_service(void *dst, gd_dtype dst_dtype, const void *src,
                                   gd_dtype src_dtype, int64_t n, gd_context *ctx);

typedef void gd_fill_service(void *dst, gd_dtype dtype, double value, int64_t n, gd_context *ctx);

/* *sum = the sum of squares of a packed array, in double, in an order that depends only on n.
 * `sum` is device memory. Zeros that `sparse` knows of are not read, which changes no bit; NULL: none. */
typedef void gd_sum_squares_service(double *sum, const void *x, gd_dtype dtype, int64_t n,
                                    const gd_sparse *sparse, gd_context *ctx);

/* x[i] *= factor, but for zeros that `sparse` knows of */
typedef void gd_scale_service(void *x, gd_dtype dtype, double factor, int64_t n,
                              const gd_sparse *sparse, gd_context *ctx);

/* Makes the touched rows of x zeros; after that no row is touched. */
typedef void gd_clear_rows_service(void *x, gd_dtype dtype, const gd_touched *rows,
                                   gd_context *ctx);

/* The first and the last number of a real dtype in [low, high); if there is none, both are low, rounded. On
 * the host. */
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

/* state->loss += fraction * *loss; *dloss, of the same real dtype, = fraction * scale. */
typedef void gd_add_loss_service(gd_update_state *state, void *dloss, const void *loss,
                                 gd_dtype dtype, double fraction, gd_context *ctx);

/* Decides whether the next update is made (optim.h has the conditions) and reports to its slot;
 * without slots it was decided by an earlier call. If so, it is counted. */
typedef void gd_decide_service(gd_update_state *state, gd_update_slot *slots,
                               const gd_update_rule *rule, gd_context *ctx);

/* Applies the decision to these parameters. */
typedef void gd_optimize_service(const gd_update_arrays *arrays, const gd_rule *rule,
                                 const gd_update_state *state, gd_context *ctx);

/* The same by Muon, for one matrix w [rows, columns]; state[0] is its momentum. Called within a
 * frame, which gives it temporary memory. */
typedef void gd_muon_service(const gd_update_arrays *arrays, int64_t rows, int64_t columns,
                             const gd_muon_rule *rule, const gd_update_state *state,
                             gd_context *ctx);

/* Makes `committed` what is in `current`, if the update is made, and otherwise `current` what is in
 * `committed`; both have `bytes`, a multiple of 64. */
typedef void gd_settle_service(void *current, void *committed, int64_t bytes,
                               const gd_update_state *state, gd_context *ctx);

/* state->offset += words; `state` is device memory. NULL on devices without graphs. */
typedef void gd_advance_service(gd_random_state *state, uint64_t words, gd_context *ctx);

typedef struct gd_services {
    gd_copy_service *copy;
    gd_accumulate_service *accumulate;
    gd_fill_service *fill;
    gd_sum_squares_service *sum_squares;
    gd_scale_service *scale;
    gd_clear_rows_service *clear_rows;
    gd_uniform_service *uniform;
    gd_numbers_within_service *numbers_within;
    gd_normal_service *normal;
    gd_integers_service *integers;
    gd_permutation_service *permutation;
    gd_add_loss_service *add_loss;
    gd_decide_service *decide;
    gd_optimize_service *optimize;
    gd_muon_service *muon;
    gd_settle_service *settle;
    gd_advance_service *advance;
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

/* The functions in the tables (kernels/copy, kernels/random, kernels/optim). */
gd_copy_service gd_copy_cpu, gd_copy_cuda;
gd_accumulate_service gd_accumulate_cpu, gd_accumulate_cuda;
gd_fill_service gd_fill_cpu, gd_fill_cuda;
gd_sum_squares_service gd_sum_squares_cpu, gd_sum_squares_cuda;
gd_scale_service gd_scale_cpu, gd_scale_cuda;
gd_clear_rows_service gd_clear_rows_cpu, gd_clear_rows_cuda;
gd_numbers_within_service gd_numbers_within;
gd_uniform_service gd_uniform_cpu, gd_uniform_cuda;
gd_normal_service gd_normal_cpu, gd_normal_cuda;
gd_integers_service gd_integers_cpu, gd_integers_cuda;
gd_permutation_service gd_permutation_cpu, gd_permutation_cuda;
gd_add_loss_service gd_add_loss_cpu, gd_add_loss_cuda;
gd_decide_service gd_decide_cpu, gd_decide_cuda;
gd_optimize_service gd_optimize_cpu, gd_optimize_cuda;
gd_muon_service gd_muon_cpu, gd_muon_cuda;
gd_settle_service gd_settle_cpu, gd_settle_cuda;
gd_advance_service gd_advance_cuda;

/* A packed tensor for this call only, as gd_call_scratch: for an op that calls the kernels of
 * others. Of no more elements than an input has. */
gd_tensor *gd_call_tensor(const gd_call *call, gd_spec spec);

/* For the backward of an op that adds to at most `rows` rows of dinput[i], [V, ...]. NULL: it writes as
 * for any gradient, or there is an error. Otherwise dinput[i] is there, of which the backward changes
 * those rows alone: it adds to them, whatever accumulate[i] says, and sets their bits (gd_touched). */
uint32_t *gd_touch_rows(const gd_call *call, int i, int64_t rows);

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
