/* loops.h - the loops of CPU kernels: an op's file says which of them it takes, and with what formula.
 *
 *     map        each element by itself, of operands that may be broadcast (gd_map)
 *     rows       sums along a row, then a map (GD_SUM, GD_EACH)
 *     columns    sums over rows, such as dw and db (GD_COLUMNS_TASK)
 *     channels   sums over the channels of [B, C, S], then a map (GD_CHANNEL_SUM, GD_CHANNEL_EACH)
 *     lines      independent lines, such as those along an axis, with memory for each thread (gd_each_range)
 *     windows    those of an axis that meet some of its elements (gd_windows_within)
 *     steps      a recurrence over [B, T, n] (gd_before_step)
 *     update     an optimizer's rule for each weight and its states (GD_UPDATE)
 *
 * Each divides its work by the sizes alone, so that all bits are the same for any number of threads
 * (kernel.h says how). */
#ifndef GRADUS_LOOPS_H
#define GRADUS_LOOPS_H

#include "rows.h"

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

/* dx of input i for a loop that adds to it, term by term: zeros at first, unless it is added to. It must
 * not be dy. */
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

/* the same for each i of a block (GD_BLOCK) of n elements */
#define GD_EACH_OF_BLOCK(i, block, n) \
    GD_PRAGMA(omp simd)               \
    for (int64_t i = (block)*GD_BLOCK; i < gd_min64((n), ((block) + 1) * GD_BLOCK); i++)

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

/* What normalisations read and write: x, weight and bias are inputs 0, 1 and 2. */
typedef struct gd_norm_rows {
    const REAL *x, *weight, *bias, *dy;
    REAL *y, *dx;
    double *mean, *rstd; /* of each row; NULL in a forward without a backward */
    int64_t rows, n;     /* n: elements of a row */
    double eps;
    bool add; /* into dx */
} gd_norm_rows;

static inline gd_norm_rows gd_norm_rows_of(const gd_call *call, int64_t rows, int64_t n, double eps)
{
    const bool saves = call->op->saves > 0;
    return (gd_norm_rows){.x = gd_data(call->input[0]),
                          .weight = gd_data(call->input[1]),
                          .bias = gd_data(call->input[2]),
                          .dy = gd_dy(call, 0),
                          .y = gd_data(call->output[0]),
                          .dx = gd_dx(call, 0),
                          .mean = saves ? gd_data(call->save[0]) : NULL,
                          .rstd = saves ? gd_data(call->save[1]) : NULL,
                          .rows = rows,
                          .n = n,
                          .eps = eps,
                          .add = gd_adds(call, 0)};
}

/* The mean of row r and 1 / sqrt(variance + eps), which are saved. The variance is taken around the mean in
 * a second pass over the row, which is in cache: mean(x^2) - mean(x)^2 would lose all digits where x is far
 * from zero. */
static inline __attribute__((always_inline)) void
gd_row_statistics(const gd_norm_rows *v, int64_t r, double *mean, double *rstd)
{
    const REAL *x = v->x + r * v->n;
    const int64_t n = v->n;
    GD_SUM(sum, i, n, (double)x[i]);
    const double m = sum / (double)n;
    GD_SUM(squares, i, n, ((double)x[i] - m) * ((double)x[i] - m));
    *mean = m;
    *rstd = 1 / sqrt(squares / (double)n + v->eps);
    GD_STEP("v", squares / (double)n);
    if (v->mean) v->mean[r] = *mean, v->rstd[r] = *rstd;
}

/* ---- Columns -------------------------------------------------------------------------------- */

/* to [n] (+)= the sums of the pieces [pieces, n], added in their order into the first, and rounded once;
 * to NULL: nothing */
static inline void gd_columns_store(REAL *to, double *sums, int64_t pieces, int64_t n, bool add)
{
    if (!to) return;
    for (int64_t p = 1; p < pieces; p++) GD_EACH(i, n) sums[i] += sums[p * n + i];
    GD_EACH(i, n) gd_store(to, i, sums[i], add);
}

/* Two sums over rows, dw and db [n] of inputs 1 and 2. The rows are divided into pieces, whose number
 * depends on that of the rows alone; each piece sums in a row of its own, and these are added in order. */
typedef struct gd_columns {
    const void *work;
    int64_t rows, n, pieces;
    double *dw, *db; /* [pieces, n], zeros at first; or NULL */
} gd_columns;

/* Defines the task `name` of a piece: row(work, r, dw, db) adds the terms of row r to dw and db, NULL where
 * they are not wanted. */
#define GD_COLUMNS_TASK(name, row)                                                           \
    static void name(const void *columns, int64_t piece)                                     \
    {                                                                                        \
        const gd_columns *c = columns;                                                       \
        double *dw = c->dw ? c->dw + piece * c->n : NULL;                                    \
        double *db = c->db ? c->db + piece * c->n : NULL;                                    \
        const int64_t end = c->rows * (piece + 1) / c->pieces;                               \
        for (int64_t r = c->rows * piece / c->pieces; r < end; r++) row(c->work, r, dw, db); \
    }

static inline gd_status gd_each_row(const gd_call *call, int64_t elements, int64_t rows, int64_t n,
                                    gd_task *task, const void *work)
{
    enum { PIECES = 16 };
    REAL *dw = gd_dx(call, 1), *db = gd_dx(call, 2);
    gd_columns c = {work, rows, dw || db ? n : 0, gd_max64(gd_min64(rows, PIECES), 1), NULL, NULL};
    const size_t bytes = 2 * (size_t)(c.pieces * c.n) * sizeof(double);
    double *sums = gd_call_scratch(call, bytes);
    if (!sums) return gd_error_status(call->context);
    memset(sums, 0, bytes);
    c.dw = dw ? sums : NULL;
    c.db = db ? sums + c.pieces * c.n : NULL;
    if (elements) gd_each_piece(call, elements, c.pieces, task, &c);
    gd_columns_store(dw, c.dw, c.pieces, n, gd_adds(call, 1));
    gd_columns_store(db, c.db, c.pieces, n, gd_adds(call, 2));
    return GD_OK;
}

/* ---- Channels ------------------------------------------------------------------------------- */

/* x [B, C, S] is divided into strips of channels: one, or, where a channel has a single place in an
 * example, 32, so that memory is read in lines. The inner loop goes along memory: over the places of a
 * channel, or over the channels of the strip. */
enum { GD_STRIP = 32 };

/* `count` channels from `first` on. */
typedef struct gd_strip {
    int64_t first, count;
} gd_strip;

static inline int64_t gd_strip_width(int64_t S)
{
    return S == 1 ? GD_STRIP : 1;
}

static inline gd_strip gd_strip_from(int64_t C, int64_t S, int64_t first)
{
    return (gd_strip){first, gd_min64(gd_strip_width(S), C - first)};
}

/* For each strip of C channels; and for each example: `at` is where the strip begins. */
#define GD_EACH_STRIP(strip, C, S)                                 \
    for (gd_strip strip = gd_strip_from(C, S, 0); strip.count > 0; \
         strip = gd_strip_from(C, S, strip.first + strip.count))
#define GD_EACH_EXAMPLE(at, s, strip) \
    for (int64_t at = (strip).first * (s).S; at < (s).B * (s).C * (s).S; at += (s).C * (s).S)

/* The statement for each of the strip's places i in an example, and its channel c, counted in the strip. */
#define GD_CHANNEL_EACH(S, strip, ...) \
    do {                               \
        if ((S) == 1) {                \
            GD_EACH(c, (strip).count)  \
            {                          \
                const int64_t i = c;   \
                __VA_ARGS__;           \
            }                          \
        } else {                       \
            const int64_t c = 0;       \
            GD_EACH(i, S)              \
            {                          \
                __VA_ARGS__;           \
            }                          \
        }                              \
    } while (0)

/* sum[c] += the term of each; two sums in one pass, or one. */
#define GD_CHANNEL_SUMS(sum1, sum2, S, strip, term1, term2)                         \
    do {                                                                            \
        if ((S) == 1) {                                                             \
            GD_CHANNEL_EACH(1, strip, (sum1)[c] += (term1), (sum2)[c] += (term2));  \
        } else {                                                                    \
            const int64_t c = 0;                                                    \
            double total1 = 0, total2 = 0;                                          \
            GD_PRAGMA(omp simd reduction(+ : total1, total2))                       \
            for (int64_t i = 0; i < (S); i++) total1 += (term1), total2 += (term2); \
            (sum1)[c] += total1, (sum2)[c] += total2;                               \
        }                                                                           \
    } while (0)

#define GD_CHANNEL_SUM(sum, S, strip, term) \
    GD_CHANNEL_SUMS(sum, ((double[GD_STRIP]){0}), S, strip, term, 0)

/* ---- Steps ---------------------------------------------------------------------------------- */

/* What row b of a recurrence had before step t: x is [B, kept, n], where steps are saved or only the last,
 * and `first` what it begins from [B, n]. NULL: zeros. */
static inline const REAL *gd_before_step(const REAL *x, const REAL *first, int64_t kept, int64_t t,
                                         int64_t b, int64_t n)
{
    if (t > 0) return x + (b * kept + (t - 1) % kept) * n;
    return first ? first + b * n : NULL;
}

/* ---- Map ------------------------------------------------------------------------------------ */

enum { GD_MAP_OPERANDS = 4 };

/* out[i] (+)= a function of the elements i of the operands, which are packed and of n elements. */
typedef struct gd_map gd_map;
/* n elements of `out` from those of the operands; as arguments, these are in registers. The last may be
 * a condition of int32. */
typedef void gd_map_row(void *to, const REAL *in0, const REAL *in1, const REAL *in2,
                        const void *in3, const gd_map *m, int64_t n);
struct gd_map {
    void *out;                       /* of REAL, or of int32_t */
    size_t size;                     /* bytes of its elements, where the operands have strides */
    const REAL *in[GD_MAP_OPERANDS]; /* those there are */
    const int32_t *chosen;           /* a condition, in the place of the last, or NULL */
    REAL p, q;                       /* numbers */
    bool add;                        /* to what is there */
    int64_t n;
    const void *more; /* for the row */
    gd_map_row *row;
};

/* Defines a row: out[i] = value, an expression in its operands a, b, c, d, in p and q; d is of the type
 * `condition`, REAL if it is none. */
#define GD_ROW(type, condition, name, a, b, c, d, value)                                           \
    static void name(void *to, const REAL *in0, const REAL *in1, const REAL *in2, const void *in3, \
                     const gd_map *m, int64_t n)                                                   \
    {                                                                                              \
        type *const out = to;                                                                      \
        const condition *const last = in3;                                                         \
        const REAL p = m->p, q = m->q;                                                             \
        const bool add = m->add;                                                                   \
        (void)p, (void)q, (void)add;                                                               \
        GD_EACH(i, n)                                                                              \
        {                                                                                          \
            const REAL a = in0[i], b = in1[i], c = in2[i];                                         \
            const condition d = last[i];                                                           \
            (void)a, (void)b, (void)c, (void)d;                                                    \
            out[i] = value;                                                                        \
        }                                                                                          \
    }
#define GD_MAP_ROW(name, a, b, c, d, value) GD_ROW(REAL, REAL, name, a, b, c, d, value)
#define GD_GRADIENT_ROW(name, a, b, c, d, gradient) \
    GD_ROW(REAL, REAL, name, a, b, c, d, (add ? out[i] : 0) + (gradient))
/* Of two operands and a condition. */
#define GD_CHOICE_ROW(name, a, b, chosen, value) \
    GD_ROW(REAL, int32_t, name, a, b, unused, chosen, value)
#define GD_CHOICE_GRADIENT_ROW(name, a, b, chosen, gradient) \
    GD_ROW(REAL, int32_t, name, a, b, unused, chosen, (add ? out[i] : 0) + (gradient))

static inline void gd_map_block(const void *work, int64_t block)
{
    const gd_map *m = work;
    const int64_t first = block * GD_BLOCK;
    const REAL *in1 = m->in[1] + first;
    m->row((REAL *)m->out + first, m->in[0] + first, in1, in1, in1, m,
           gd_min64(GD_BLOCK, m->n - first));
}

/* Two packed operands, which may be the same: in blocks, whose ends do not move (kernel.h says why). */
static inline gd_status gd_map_elements(const gd_call *call, const gd_map *m)
{
    return gd_each_piece(call, m->n, gd_divide_up(m->n, GD_BLOCK), gd_map_block, m);
}

/* ---- Functions of one packed input ---------------------------------------------------------- */

/* Number i of the arguments, if these are numbers; 0 where there is none. */
static inline REAL gd_map_number(const gd_call *call, int i)
{
    return call->args ? (REAL)gd_option_of_dtype(call->dtype, ((const double *)call->args)[i]) : 0;
}

/* to (+)= the row of dy and of `read`, which is x or y. */
static inline __attribute__((always_inline)) gd_status gd_map_one(const gd_call *call,
                                                                  const gd_tensor *to, bool add,
                                                                  const REAL *dy, const REAL *read,
                                                                  gd_map_row *row)
{
    return gd_map_elements(call, &(gd_map){.out = gd_data(to),
                                           .in = {dy, read},
                                           .p = gd_map_number(call, 0),
                                           .q = gd_map_number(call, 1),
                                           .add = add,
                                           .n = gd_tensor_count(to),
                                           .row = row});
}

static inline gd_status gd_map_forward(const gd_call *call, gd_map_row *row)
{
    const REAL *x = gd_data(call->input[0]);
    return gd_map_one(call, call->output[0], false, x, x, row);
}

/* The record says what the backward reads; if it reads only dy, dy is passed for it. */
static inline gd_status gd_map_backward(const gd_call *call, gd_map_row *row)
{
    if (!call->dinput[0]) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]), *read = dy;
    if (call->op->backward_reads_inputs) read = gd_data(call->input[0]);
    if (call->op->backward_reads_outputs) read = gd_data(call->output[0]);
    return gd_map_one(call, call->dinput[0], call->accumulate[0], dy, read, row);
}

/* Both kernels of an op: y = value, an expression in x, and dx = gradient, in dy and x, or y, as the
 * record says; p and q are its arguments. map.cuh has the same for a GPU. */
#define GD_MAP_OP(name, value, gradient)                                \
    GD_MAP_ROW(name##_row, x, x1, x2, x3, value)                        \
    GD_GRADIENT_ROW(name##_gradient_row, dy, x, y, y1, gradient)        \
    GD_KERNEL_OF_REAL(name##_forward, gd_map_forward(call, name##_row)) \
    GD_KERNEL_OF_REAL(name##_backward, gd_map_backward(call, name##_gradient_row))

/* ---- Operands with strides -------------------------------------------------------------------- */

/* By pieces of rows (rows.h). Operand 0 of the walk is `out`, packed; then come
 * in[0] and so on, and the last is `chosen`. */
typedef struct gd_strided_map {
    const gd_map *map;
    gd_rows rows;
} gd_strided_map;

/* gd_row_load for a condition. */
static inline const int32_t *gd_condition_load(int32_t *buffer, const int32_t *x, int64_t stride,
                                               int64_t n)
{
    if (stride == 1) return x;
    for (int64_t i = 0; i < n; i++) buffer[i] = x[i * stride];
    return buffer;
}

static inline void gd_map_piece(const void *work, int64_t i)
{
    const gd_strided_map *w = work;
    const gd_map *m = w->map;
    REAL buffer0[GD_PIECE], buffer1[GD_PIECE];
    union {
        REAL real[GD_PIECE];
        int32_t condition[GD_PIECE]; /* of two operands at most */
    } buffer2;
    const int last = w->rows.walk.operands - 1;
    for (gd_piece p = gd_piece_begin(&w->rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
        const REAL *in0 = gd_piece_load(&p, 1, m->in[0], buffer0);
        const REAL *in1 = m->in[1] ? gd_piece_load(&p, 2, m->in[1], buffer1) : in0;
        const REAL *in2 = m->in[2] ? gd_piece_load(&p, 3, m->in[2], buffer2.real) : in0;
        const void *in3 = in0;
        if (m->chosen)
            in3 = gd_condition_load(buffer2.condition, m->chosen + gd_piece_offset(&p, last),
                                    w->rows.step[last], p.n);
        m->row((char *)m->out + gd_piece_offset(&p, 0) * (int64_t)m->size, in0, in1, in2, in3, m,
               p.n);
    }
}

static inline gd_status gd_map_walk(const gd_call *call, gd_walk walk, const gd_map *m)
{
    const gd_strided_map w = {m, gd_rows_of(walk)};
    return gd_each_piece(call, gd_walk_count(&walk), w.rows.pieces, gd_map_piece, &w);
}

/* Of tensors that broadcast to the shape of `like`, which m.out has. `chosen`: int32, or NULL. */
static inline gd_status gd_map_tensors(const gd_call *call, const gd_tensor *like, int inputs,
                                       gd_tensor *const *in, const gd_tensor *chosen, gd_map *m)
{
    gd_walk walk = gd_walk_like(like);
    gd_walk_add_tensor(&walk, like);
    for (int k = 0; k < inputs; k++) {
        m->in[k] = gd_data(in[k]);
        gd_walk_add_tensor(&walk, in[k]);
    }
    m->chosen = gd_data(chosen);
    if (chosen) gd_walk_add_tensor(&walk, chosen);
    return gd_map_walk(call, walk, m);
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* Independent lines, or other pieces, of a work that needs memory: each thread has a range of them, and
 * memory of its own. */
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

/* ---- Update --------------------------------------------------------------------------------- */

/* for each i: the statements, in g, w and the first `states` of m and v, which are then stored; not where
 * `stays` holds of them */
#define GD_UPDATE_EACH(states, stays, ...)                           \
    GD_EACH(i, n)                                                    \
    {                                                                \
        REAL g = gradient[i], w = weight[i];                         \
        REAL m = states > 0 ? ms[i] : 0, v = states > 1 ? vs[i] : 0; \
        __VA_ARGS__                                                  \
        const bool old = stays;                                      \
        weight[i] = old ? weight[i] : w;                             \
        if (states > 0) ms[i] = old ? ms[i] : m;                     \
        if (states > 1) vs[i] = old ? vs[i] : v;                     \
    }

/* Defines the rule of an optimizer: how weight w and its states change by gradient g, with numbers of a
 * type, f. If f.lazy, elements stay as they are whose gradient is 0. */
#define GD_UPDATE(name, states, type, ...)                                                     \
    static void name(REAL *restrict weight, REAL *const *state, const REAL *restrict gradient, \
                     int64_t n, const type *given)                                             \
    {                                                                                          \
        REAL *restrict ms = state[0], *restrict vs = state[1];                                 \
        const type f = *given;                                                                 \
        (void)ms, (void)vs;                                                                    \
        if (f.lazy)                                                                            \
            GD_UPDATE_EACH(states, g == 0, __VA_ARGS__)                                        \
        else                                                                                   \
            GD_UPDATE_EACH(states, false, __VA_ARGS__)                                         \
    }

#endif
