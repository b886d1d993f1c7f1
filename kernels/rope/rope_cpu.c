/* rope_cpu.c - the CPU kernel of rope and rope_qkv: one rotation, by the angle or by its
 * negative. */
#include "kernel_cpu.h"
#include "rope/formula.h"
#include "rope/rope.h"

typedef struct tables {
    REAL *cosine, *sine; /* [T, D/2] */
    double *rate;        /* [D/2] */
    const rope_pass *pass;
} tables;

static void fill_row(const void *work, int64_t row)
{
    const tables *t = work;
    const int64_t pairs = t->pass->pairs;
    const REAL way = t->pass->backward ? -1 : 1;
    const double position = (double)(t->pass->angles.position + row), *rate = t->rate;
    REAL *cosine = t->cosine + row * pairs, *sine = t->sine + row * pairs;
    /* Two loops: in one the compiler would merge the pair to sincos, which has no
     * vector version. */
    GD_EACH(i, pairs) cosine[i] = (REAL)cos(position * rate[i]);
    GD_EACH(i, pairs) sine[i] = way * (REAL)sin(position * rate[i]); /* [rope] */
    GD_STEP("cos", cosine[0]);
    GD_STEP("sin", way * sine[0]);
}

/* Every angle, computed in double: in float one of thousands of radians would lose its fraction. */
static bool fill_tables(const gd_call *call, const rope_pass *pass, tables *t)
{
    const int64_t rows = pass->positions, pairs = pass->pairs;
    t->pass = pass;
    t->rate =
        gd_call_scratch(call, (size_t)pairs * (sizeof *t->rate + 2 * (size_t)rows * sizeof(REAL)));
    if (!t->rate) return false;
    t->cosine = (REAL *)(t->rate + pairs);
    t->sine = t->cosine + rows * pairs;
    for (int64_t i = 0; i < pairs; i++)
        t->rate[i] = pow(pass->angles.base, -(double)i / (double)pairs);
    gd_for_each(gd_threads_for(call->threads, rows * pairs), rows, fill_row, t);
    return true;
}

/* One head: to (+)= the pairs of `from`, elements `step` apart, turned: (i, i + pairs), or (2i, 2i
 * + 1) if they are interleaved. to may be from. */
static inline __attribute__((always_inline)) void turn(REAL *to, const REAL *from, int64_t step,
                                                       const REAL *cosine, const REAL *sine,
                                                       int64_t pairs, bool interleaved, bool add)
{
    GD_EACH(i, pairs)
    {
        const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + pairs;
        REAL a = from[first * step], b = from[second * step], c = cosine[i], s = sine[i];
        REAL turned_a = rope_first(a, b, c, s), turned_b = rope_second(a, b, c, s);
        GD_STEP("rotated", turned_a);
        GD_STEP("rotated", turned_b);
        to[first] = add ? to[first] + turned_a : turned_a;
        to[second] = add ? to[second] + turned_b : turned_b;
    }
}

/* A head that is not rotated; from NULL: zeros. */
static void pass_on(REAL *to, const REAL *from, int64_t step, int64_t width, bool add)
{
    for (int64_t i = 0; i < width; i++) {
        REAL value = from ? from[i * step] : 0; /* [rope_qkv] */
        to[i] = add ? to[i] + value : value;
    }
}

static void move_heads(const rope_pass *pass, const rope_heads *h, const tables *t, int64_t b,
                       int64_t row)
{
    const REAL *cosine = t->cosine + row * pass->pairs, *sine = t->sine + row * pass->pairs;
    const int64_t step = h->from_stride[3];
    const bool interleaved = pass->angles.interleaved;
    for (int64_t i = 0; i < h->heads; i++) {
        REAL *to =
            (REAL *)h->to + b * h->to_stride[0] + row * h->to_stride[1] + i * h->to_stride[2];
        const REAL *from = h->from ? (const REAL *)h->from + b * h->from_stride[0] +
                                         row * h->from_stride[1] + i * h->from_stride[2]
                                   : NULL;
        if (!from || !h->turned)
            pass_on(to, from, step, 2 * pass->pairs, h->add);
        else if (!interleaved && step == 1)
            turn(to, from, 1, cosine, sine, pass->pairs, false, h->add);
        else
            turn(to, from, step, cosine, sine, pass->pairs, interleaved, h->add);
    }
}

static void move_row(const void *work, int64_t i)
{
    const tables *t = work;
    const rope_pass *pass = t->pass;
    const int64_t b = i / pass->positions, row = i - b * pass->positions;
    for (int p = 0; p < pass->parts; p++) move_heads(pass, &pass->part[p], t, b, row);
}

static gd_status rotate(const gd_call *call, bool backward)
{
    if (gd_tensor_count(call->input[0]) == 0) return GD_OK;
    const rope_pass pass = rope_pass_of(call, backward);
    tables t;
    if (!fill_tables(call, &pass, &t)) return GD_ERROR_MEMORY;
    gd_for_each(gd_threads_for(call->threads, gd_tensor_count(call->input[0])),
                pass.batches * pass.positions, move_row, &t);
    return GD_OK;
}

/* The transpose of a rotation is the inverse rotation. */
GD_KERNELS_OF_REAL(rope, rotate(call, false), call->dinput[0] ? rotate(call, true) : GD_OK)
