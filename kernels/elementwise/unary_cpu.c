/* unary_cpu.c - the CPU kernels of the functions of one variable (unary.def). */
#include "elementwise/functions.h"

/* ---- Rows, by table ----------------------------------------------------------------------- */

typedef void value_row(REAL *y, const REAL *x, REAL p, REAL q, int64_t n);
/* `read` is x or y, as the table says. */
typedef void gradient_row(REAL *dx, bool add, const REAL *dy, const REAL *read, REAL p, REAL q,
                          int64_t n);

#define UNARY(name, formula, value, gradient, ...)                                    \
    static void name##_row(REAL *y_row, const REAL *x_row, REAL p, REAL q, int64_t n) \
    {                                                                                 \
        (void)p, (void)q;                                                             \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                           \
        {                                                                             \
            const REAL x = x_row[i];                                                  \
            y_row[i] = value;                                                         \
        }                                                                             \
    }                                                                                 \
    static void name##_gradient_row(REAL *dx_row, bool add, const REAL *dy_row,       \
                                    const REAL *read_row, REAL p, REAL q, int64_t n)  \
    {                                                                                 \
        (void)p, (void)q;                                                             \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                           \
        {                                                                             \
            const REAL dy = dy_row[i], x = read_row[i], y = x;                        \
            (void)dy, (void)x, (void)y;                                               \
            dx_row[i] = (add ? dx_row[i] : 0) + (gradient);                           \
        }                                                                             \
    }
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
#undef UNARY
#undef SCALAR
#undef RANGE

/* ---- The loop over blocks ----------------------------------------------------------------- */

/* p and q of the row; 0 where it has none. */
static REAL parameter(const gd_call *call, int i)
{
    return call->args ? (REAL)gd_option_of_dtype(call->dtype, ((const double *)call->args)[i]) : 0;
}

typedef struct blocks {
    REAL *out;
    const REAL *dy, *read;
    REAL p, q;
    int64_t n;
    bool add;
    value_row *value;
    gradient_row *gradient;
} blocks;

static void value_block(const void *work, int64_t block)
{
    const blocks *b = work;
    const int64_t i = block * GD_BLOCK, n = gd_min64(GD_BLOCK, b->n - i);
    b->value(b->out + i, b->read + i, b->p, b->q, n);
}

static void gradient_block(const void *work, int64_t block)
{
    const blocks *b = work;
    const int64_t i = block * GD_BLOCK, n = gd_min64(GD_BLOCK, b->n - i);
    b->gradient(b->out + i, b->add, b->dy + i, b->read + i, b->p, b->q, n);
}

static void run_blocks(const gd_call *call, const blocks *b)
{
    gd_for_each(gd_threads_for(call->threads, b->n), gd_divide_up(b->n, GD_BLOCK),
                b->value ? value_block : gradient_block, b);
}

static gd_status unary_forward(const gd_call *call, value_row *row)
{
    run_blocks(call, &(blocks){.out = gd_data(call->output[0]),
                               .read = gd_data(call->input[0]),
                               .p = parameter(call, 0),
                               .q = parameter(call, 1),
                               .n = gd_tensor_count(call->output[0]),
                               .value = row});
    return GD_OK;
}

/* The record says what the backward reads; if it reads only dy, dy is passed for it. */
static gd_status unary_backward(const gd_call *call, gradient_row *row)
{
    if (!call->dinput[0]) return GD_OK;
    const REAL *dy = gd_data(call->doutput[0]), *read = dy;
    if (call->op->backward_reads_inputs) read = gd_data(call->input[0]);
    if (call->op->backward_reads_outputs) read = gd_data(call->output[0]);
    run_blocks(call, &(blocks){.out = gd_data(call->dinput[0]),
                               .dy = dy,
                               .read = read,
                               .p = parameter(call, 0),
                               .q = parameter(call, 1),
                               .n = gd_tensor_count(call->dinput[0]),
                               .add = call->accumulate[0],
                               .gradient = row});
    return GD_OK;
}

/* ---- The kernels -------------------------------------------------------------------------- */

#define UNARY(name, ...)                                         \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)  \
    {                                                            \
        return unary_forward(call, name##_row);                  \
    }                                                            \
    gd_status GD_REAL_NAME(name##_backward)(const gd_call *call) \
    {                                                            \
        return unary_backward(call, name##_gradient_row);        \
    }
#define SCALAR UNARY
#define RANGE UNARY
#include "elementwise/unary.def"
