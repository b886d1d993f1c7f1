/* kernel_cpu.h - how CPU kernels are written for REAL: how they are defined, what they are given,
 * and the loops that need no more than that.
 *
 *     rows       sums along a row, then a map (GD_SUM, GD_EACH)
 *     lines      independent lines, such as those along an axis, each thread with memory of its own
 *                (gd_each_range)
 *     windows    those of an axis that meet some of its elements (gd_windows_within)
 *
 * loops.h has maps, norms.h the loops of normalisations. Each divides its work by the sizes alone,
 * so that all bits are the same for any number of threads (kernel.h says how). */
#ifndef GRADUS_KERNEL_CPU_H
#define GRADUS_KERNEL_CPU_H

#include "kernel.h"

/* ---- Kernels and what they are given -------------------------------------------------------- */

/* The kernel `name` for REAL, whose status is an expression in `call`. */
#define GD_KERNEL_OF_REAL(name, status)               \
    gd_status GD_REAL_NAME(name)(const gd_call *call) \
    {                                                 \
        return status;                                \
    }

/* Both kernels of an op. */
#define GD_KERNELS_OF_REAL(name, forward, backward) \
    GD_KERNEL_OF_REAL(name##_forward, forward)      \
    GD_KERNEL_OF_REAL(name##_backward, backward)

/* x[i], or `otherwise` without x. */
static inline double gd_or(const REAL *x, int64_t i, double otherwise)
{
    return x ? (double)x[i] : otherwise;
}

/* The data of gradients, of which a forward has none; NULL: absent, or not wanted. */
static inline const REAL *gd_dy(const gd_call *call, int i)
{
    return call->doutput ? gd_data(call->doutput[i]) : NULL;
}

static inline REAL *gd_dx(const gd_call *call, int i)
{
    return call->dinput ? gd_data(call->dinput[i]) : NULL;
}

/* Whether dx of input i is added to. */
static inline bool gd_adds(const gd_call *call, int i)
{
    return call->accumulate && call->accumulate[i];
}

/* dx of input i for a loop that adds to it, term by term: zeros at first, unless it is added to. It
 * must not be dy. */
static inline REAL *gd_dx_sum(const gd_call *call, int i)
{
    REAL *dx = gd_dx(call, i);
    const int64_t n = dx && !gd_adds(call, i) ? gd_tensor_count(call->dinput[i]) : 0;
    if (n > 0) memset(dx, 0, (size_t)n * sizeof *dx);
    return dx;
}

/* The task for `count` independent pieces of a work of so many elements. */
static inline gd_status gd_each_piece(const gd_call *call, int64_t elements, int64_t count,
                                      gd_task *task, const void *work)
{
    gd_for_each(gd_threads_for(call->threads, elements), count, task, work);
    return GD_OK;
}

/* ---- Rows ----------------------------------------------------------------------------------- */

#define GD_PRAGMA(text) _Pragma(#text)

/* for each i below n, several at once */
#define GD_EACH(i, n) GD_PRAGMA(omp simd) for (int64_t i = 0; i < (n); i++)

/* double sum = the sum of `term` over all i below n, in an order that depends on n alone */
#define GD_SUM(sum, i, n, term) \
    double sum = 0;             \
    GD_PRAGMA(omp simd reduction(+ : sum)) for (int64_t i = 0; i < (n); i++) sum += (term)

/* to[i] (+)= value, rounded once */
static inline void gd_store(REAL *to, int64_t i, double value, bool add)
{
    to[i] = (REAL)(add ? (double)to[i] + value : value);
}

/* to (+)= from [n]; to NULL: nothing */
static inline void gd_put(REAL *to, const REAL *from, int64_t n, bool add)
{
    if (to && !add) memcpy(to, from, (size_t)n * sizeof *to);
    if (!to || !add) return;
    GD_EACH(i, n) to[i] += from[i];
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* Independent lines, or other pieces, of a work that needs memory: each thread has a range of them,
 * and memory of its own. */
typedef void gd_range_task(const void *work, int64_t first, int64_t end, void *memory);

typedef struct gd_ranges {
    gd_range_task *task;
    const void *work;
    int64_t count, threads;
    size_t bytes; /* of memory for a thread */
    char *memory;
} gd_ranges;

static inline void gd_range_of_thread(const void *work, int64_t thread)
{
    const gd_ranges *r = work;
    r->task(r->work, r->count * thread / r->threads, r->count * (thread + 1) / r->threads,
            r->memory + r->bytes * (size_t)thread);
}

/* The task for `count` lines of so many elements in all, with `bytes` bytes for a thread. */
static inline gd_status gd_each_range(const gd_call *call, int64_t elements, int64_t count,
                                      size_t bytes, gd_range_task *task, const void *work)
{
    const int threads = gd_threads_for(call->threads, elements);
    gd_ranges r = {task, work, count, threads, (bytes + 63) / 64 * 64, NULL};
    r.memory = gd_call_scratch(call, r.bytes * (size_t)threads);
    if (!r.memory) return gd_error_status(call->context);
    gd_for_each(threads, threads, gd_range_of_thread, &r);
    return GD_OK;
}

/* ---- Windows -------------------------------------------------------------------------------- */

/* How many of `windows` windows, which begin `stride` apart along an axis, begin within its first n
 * elements; n may be negative, or more than there are. */
static inline int64_t gd_windows_within(int64_t windows, int64_t stride, int64_t n)
{
    return n <= 0 ? 0 : gd_min64(windows, stride == 1 ? n : gd_divide_up(n, stride));
}

#endif
