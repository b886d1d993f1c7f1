/* loops.h - maps: each element by itself, of operands that may be broadcast (gd_map). An op's file
 * says with what formula. */
#ifndef GRADUS_LOOPS_H
#define GRADUS_LOOPS_H

#include "kernel_cpu.h"
#include "rows.h"

enum { GD_MAP_OPERANDS = 4 };

/* out[i] (+)= a function of the elements i of the operands, which are packed and of n elements. */
typedef struct gd_map {
    void *out;                       /* of REAL, or of int32_t */
    size_t size;                     /* bytes of its elements, where the operands have strides */
    const REAL *in[GD_MAP_OPERANDS]; /* those there are */
    const int32_t *chosen;           /* a condition, in the place of the last, or NULL */
    int64_t n;
    gd_row row;
} gd_map;

/* Defines a row function: out[i] = value, an expression in `old`, which is out[i] if it is added to
 * and else 0; in the operands a, b, c, d; and in the numbers p and q. All of these names are the
 * caller's. */
#define GD_ROW(name, type, type_of_d, old, a, b, c, d, p, q, value)                   \
    static void name(void *to_, const REAL *in0_, const REAL *in1_, const REAL *in2_, \
                     const void *last_, const gd_row *row_, int64_t n_)               \
    {                                                                                 \
        type *const out_ = to_;                                                       \
        const type_of_d *const in3_ = last_;                                          \
        const REAL p = row_->p, q = row_->q;                                          \
        const bool add_ = row_->add;                                                  \
        (void)p, (void)q;                                                             \
        GD_EACH(i_, n_)                                                               \
        {                                                                             \
            const REAL a = in0_[i_], b = in1_[i_], c = in2_[i_];                      \
            const type_of_d d = in3_[i_];                                             \
            const type old = add_ ? out_[i_] : 0;                                     \
            (void)a, (void)b, (void)c, (void)d, (void)old;                            \
            out_[i_] = value;                                                         \
        }                                                                             \
    }
#define GD_MAP_ROW(name, a, b, c, d, p, q, value) \
    GD_ROW(name, REAL, REAL, old_, a, b, c, d, p, q, value)
#define GD_GRADIENT_ROW(name, a, b, c, d, p, q, gradient) \
    GD_ROW(name, REAL, REAL, old_, a, b, c, d, p, q, old_ + (gradient))

static inline void gd_map_block(const void *work, int64_t block)
{
    const gd_map *m = work;
    const int64_t first = block * GD_BLOCK;
    const REAL *in1 = m->in[1] + first;
    m->row.function((REAL *)m->out + first, m->in[0] + first, in1, in1, in1, &m->row,
                    gd_min64(GD_BLOCK, m->n - first));
}

/* Two packed operands, which may be the same: in blocks, whose ends do not move (kernel.h
 * says why). */
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
                                                                  gd_row_function *row)
{
    const gd_row with = {row, gd_map_number(call, 0), gd_map_number(call, 1), add};
    return gd_map_elements(
        call,
        &(gd_map){.out = gd_data(to), .in = {dy, read}, .n = gd_tensor_count(to), .row = with});
}

static inline gd_status gd_map_forward(const gd_call *call, gd_row_function *row)
{
    const REAL *x = gd_data(call->input[0]);
    return gd_map_one(call, call->output[0], false, x, x, row);
}

/* The record says what the backward reads; if it reads only dy, dy is passed for it. */
static inline gd_status gd_map_backward(const gd_call *call, gd_row_function *row)
{
    if (!call->dinput[0]) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]), *read = dy;
    if (call->op->backward_reads_inputs) read = gd_data(call->input[0]);
    if (call->op->backward_reads_outputs) read = gd_data(call->output[0]);
    return gd_map_one(call, call->dinput[0], call->accumulate[0], dy, read, row);
}

/* Both kernels of an op: y = value, an expression in x, and dx = gradient, in dy and x, or y, as
 * the record says; p and q are its arguments. map.cuh has the same for a GPU. */
#define GD_MAP_OP(name, value, gradient)                                \
    GD_MAP_ROW(name##_row, x, x1, x2, x3, p, q, value)                  \
    GD_GRADIENT_ROW(name##_gradient_row, dy, x, y, y1, p, q, gradient)  \
    GD_KERNEL_OF_REAL(name##_forward, gd_map_forward(call, name##_row)) \
    GD_KERNEL_OF_REAL(name##_backward, gd_map_backward(call, name##_gradient_row))

/* ---- Operands with strides ------------------------------------------------------------------- */

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
        m->row.function((char *)m->out + gd_piece_offset(&p, 0) * (int64_t)m->size, in0, in1, in2,
                        in3, &m->row, p.n);
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

#endif
