/* kernel.h - what CPU kernels share.
 *
 * An op is a folder (docs/architecture.md). Its CPU kernels are in NAME_cpu.c, written once on
 * REAL and compiled twice, for float and for double: every function that another file calls is
 * defined as GD_REAL_NAME(name), which becomes name_f32 and name_f64. NAME.c ties them to the
 * record with GD_KERNEL_PAIR, and its CUDA kernels are in NAME.cu (cuda.cuh):
 *
 *     GD_KERNEL_PAIR(swiglu)        // declares swiglu_forward_f32 and _f64, and defines
 *                                   // swiglu_forward_cpu, which picks one by call->dtype;
 *                                   // declares swiglu_forward_cuda; likewise swiglu_backward
 *     const gd_op gd_op_swiglu = { ..., GD_KERNELS(swiglu), ... };
 *
 * Threads and bits. The result must not depend on the number of threads, bit for bit. So divide
 * work into pieces whose size depends only on the problem, never on the number of threads; let one
 * thread do a whole piece; combine the pieces' results in order. A loop over independent rows needs
 * nothing. A loop over a flat array goes by blocks of GD_BLOCK elements (a vectorised loop and its
 * scalar tail may round differently, so the ends of the blocks must not move).
 *
 * Sums are in double for every REAL, except those of matrix products (and attention), which are in
 * REAL; their order must depend only on the sizes; `#pragma omp simd reduction` is such an order.
 */
#ifndef GRADUS_KERNEL_H
#define GRADUS_KERNEL_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "gradus/autograd.h"
#include "core/services.h"
#include "option.h"

#ifndef __CUDACC__ /* there they are parameters of templates (formulas.h) */
#ifdef GD_REAL_DOUBLE
#define REAL double
#define GD_REAL_NAME(name) name##_f64
/* The math function of REAL's type: GD_MATH(exp) is expf or exp. */
#define GD_MATH(function) function
#else
#define REAL float
#define GD_REAL_NAME(name) name##_f32
#define GD_MATH(function) function##f
#endif

/* The maximum of x [n] from what `omp simd reduction(max)` gives, which clang starts at the lowest
 * finite number: that, if it is not among x, stands for -inf. */
static inline REAL gd_reduced_max(REAL max, const REAL *x, int64_t n)
{
    if ((double)max > -(double)FLT_MAX) return max;
    for (int64_t i = 0; i < n; i++)
        if (x[i] == max) return max;
    return -(REAL)INFINITY;
}
#endif

/* A value of a step of the derivation, under the step's name, for the study's pages: their module,
 * and nothing else, is compiled with GD_STUDY. */
#ifdef GD_STUDY
void gd_step(const char *name, double value);
#define GD_STEP(name, value) gd_step(name, (double)(value))
#else
#define GD_STEP(name, value) (void)0
#endif

#define GD_KERNEL(name)                                                         \
    gd_status name##_cuda(const gd_call *call);                                 \
    gd_status name##_f32(const gd_call *call);                                  \
    gd_status name##_f64(const gd_call *call);                                  \
    static gd_status name##_cpu(const gd_call *call)                            \
    {                                                                           \
        return call->dtype == GD_FLOAT64 ? name##_f64(call) : name##_f32(call); \
    }

#define GD_KERNEL_PAIR(name)  \
    GD_KERNEL(name##_forward) \
    GD_KERNEL(name##_backward)

/* What every record of the library promises: of its gradients, and to be constant. */
#define GD_BUILT_IN .same_bits = true, .constant = true

/* The kernel's entry for each device of this build. */
#ifdef GD_HAVE_CUDA
#define GD_ON_DEVICES(name)                            \
    {                                                  \
        [GD_CPU] = name##_cpu, [GD_CUDA] = name##_cuda \
    }
#else
#define GD_ON_DEVICES(name)   \
    {                         \
        [GD_CPU] = name##_cpu \
    }
#endif

/* In a record: its name, its kernels NAME_forward and NAME_backward, and what it promises; plain
 * arguments of this type. */
#define GD_KERNELS(op_name)                                        \
    .name = #op_name, .forward = GD_ON_DEVICES(op_name##_forward), \
    .backward = GD_ON_DEVICES(op_name##_backward), GD_BUILT_IN
#define GD_ARGS(type) .args_size = sizeof(type), .plain_args = true

/* In a record: the ranges of its arguments. */
#define GD_RANGES(...) .ranges = ((const gd_option_range[]){__VA_ARGS__, {0}})

/* gd_option (context.h) for whole numbers of any size. */
static inline int64_t gd_whole_option(int64_t field, int64_t unset)
{
    return field == 0 ? unset : field == GD_ZERO ? 0 : field;
}

/* An axis counted from the start; one that x does not have is left as it is, for the message. */
static inline int gd_axis_from_start(const gd_tensor *x, int axis)
{
    const int ndim = gd_tensor_ndim(x);
    return axis < 0 && axis + ndim >= 0 ? axis + ndim : axis;
}

/* In place of the body of a function that does no more than apply the op gd_op_NAME: the address of
 * its arguments or NULL, and its inputs. */
#define GD_APPLIES(name, args, ...)                                                            \
    {                                                                                          \
        gd_tensor *const inputs[] = {__VA_ARGS__};                                             \
        return gd_apply(&gd_op_##name, inputs, (int)(sizeof inputs / sizeof *inputs), (args)); \
    }

/* Elements per piece of an elementwise loop. */
#define GD_BLOCK 4096

/* Work (in elements) below which starting threads costs more than it gains. */
#define GD_PARALLEL_FROM 16384

/* The number of threads for `work` elements. */
static inline int gd_threads_for(int threads, int64_t work)
{
    return work < GD_PARALLEL_FROM ? 1 : threads;
}

typedef void gd_task(const void *work, int64_t i);
void gd_for_each_parallel(int threads, int64_t count, gd_task *task, const void *work);

/* Calls task(work, i) for i = 0 ... count - 1 on `threads` threads, each of which takes a range of
 * i. For one thread there is no OpenMP: to enter and leave a region of one thread takes 0.3 us in
 * GCC's library, longer than an op on a few numbers. */
static inline void gd_for_each(int threads, int64_t count, gd_task *task, const void *work)
{
    if (threads > 1 && count > 1)
        gd_for_each_parallel(threads, count, task, work);
    else
        for (int64_t i = 0; i < count; i++) task(work, i);
}

static inline int64_t gd_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t gd_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* n / unit, rounded up. */
static inline int64_t gd_divide_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* The least multiple of `unit` that is not below n. */
static inline int64_t gd_round_up(int64_t n, int64_t unit)
{
    return gd_divide_up(n, unit) * unit;
}

/* The data of a tensor that may be absent: NULL for NULL. Without elements it is an address that
 * nobody reads, but not NULL, of which C has no offset. */
static inline void *gd_data(const gd_tensor *t)
{
    return !t ? NULL : gd_tensor_count(t) > 0 ? gd_tensor_data(t) : (void *)t;
}

/* The last dimension of t, 1 for a tensor without dimensions. */
static inline int64_t gd_last_dim(const gd_tensor *t)
{
    return gd_tensor_ndim(t) ? gd_tensor_dim(t, -1) : 1;
}

/* The product of all dimensions but the last. */
static inline int64_t gd_row_count(const gd_tensor *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < gd_tensor_ndim(t); i++) rows *= gd_tensor_shape(t)[i];
    return rows;
}

/* A packed copy in temporary memory, in `dtype`, for kernels that need packed rows or columns;
 * `strides` [ndim] gets its strides. NULL, with the error set, if there is no memory. */
static inline void *gd_packed_copy(const gd_call *call, gd_layout from, gd_dtype dtype,
                                   int64_t *strides)
{
    int64_t count = 1;
    for (int d = from.ndim - 1; d >= 0; d--) {
        strides[d] = count;
        count *= from.shape[d];
    }
    gd_layout to = from;
    to.data = gd_call_scratch(call, (size_t)count * gd_dtype_size(dtype));
    to.dtype = dtype;
    to.strides = strides;
    const gd_services *services = gd_services_of[gd_context_device(call->context)];
    if (to.data) services->copy(to, from, call->context);
    return to.data;
}

#endif
