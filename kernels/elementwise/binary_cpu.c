/* binary_cpu.c - the CPU kernels of the functions of two variables (binary.def), with broadcast. */
#include "reduce/reduction.h"
#include "rows.h"

/* NaN if either is. */
static inline REAL larger(REAL a, REAL b)
{
    return a > b || a != a ? a : b;
}

/* The part of the gradient of max(a, b) that goes to a. NaN, which is neither larger nor smaller,
 * gets all of it. */
static inline REAL share(REAL a, REAL b)
{
    return a < b ? 0 : a == b ? (REAL)0.5 : 1;
}

/* ---- Rows, by table ----------------------------------------------------------------------- */

#define GRADIENT_ROW(row_name, gradient)                                             \
    static void row_name(REAL *out, bool add, const REAL *dy_row, const REAL *a_row, \
                         const REAL *b_row, int64_t n)                               \
    {                                                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                          \
        {                                                                            \
            const REAL dy = dy_row[i], a = a_row[i], b = b_row[i];                   \
            (void)a, (void)b;                                                        \
            out[i] = (add ? out[i] : 0) + (gradient);                                \
        }                                                                            \
    }

#define BINARY(name, formula, value, da, db, ...)                                        \
    static void name##_row(REAL *y_row, const REAL *a_row, const REAL *b_row, int64_t n) \
    {                                                                                    \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                              \
        {                                                                                \
            const REAL a = a_row[i], b = b_row[i];                                       \
            y_row[i] = value;                                                            \
        }                                                                                \
    }                                                                                    \
    GRADIENT_ROW(name##_da_row, da)                                                      \
    GRADIENT_ROW(name##_db_row, db)
#include "elementwise/binary.def"
#undef BINARY

typedef void value_row(REAL *y, const REAL *a, const REAL *b, int64_t n);

/* ---- Forward ------------------------------------------------------------------------------ */

static gd_status forward(const gd_call *call, value_row *row)
{
    enum { Y, A, B };
    REAL *y = gd_data(call->output[0]);
    const REAL *a = gd_data(call->input[0]), *b = gd_data(call->input[1]);
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    gd_walk_add_tensor(&walk, call->input[0]);
    gd_walk_add_tensor(&walk, call->input[1]);
    const gd_rows rows = gd_rows_of(walk);
    const int threads = gd_threads_for(call->threads, gd_tensor_count(call->output[0]));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows.pieces; i++) {
        REAL a_buffer[GD_BLOCK], b_buffer[GD_BLOCK];
        for (gd_piece p = gd_piece_begin(&rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
            const REAL *a_row = gd_piece_load(&p, A, a, a_buffer);
            const REAL *b_row = gd_piece_load(&p, B, b, b_buffer);
            row(y + gd_piece_offset(&p, Y), a_row, b_row, p.n);
        }
    }
    return GD_OK;
}

/* ---- Backward ----------------------------------------------------------------------------- */

enum { DX, DY, A, B };

/* dx of an operand that has y's size: each element by itself. */
static void direct(const gd_call *call, const gd_reduction *r, REAL *dx, bool add)
{
    const gd_rows rows = gd_rows_of(r->walk);
    const int threads = gd_threads_for(call->threads, gd_walk_count(&r->walk));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows.pieces; i++) {
        REAL a_buffer[GD_BLOCK], b_buffer[GD_BLOCK];
        for (gd_piece p = gd_piece_begin(&rows, i); gd_piece_valid(&p); gd_piece_next(&p)) {
            const REAL *dy = r->data[DY] + gd_piece_offset(&p, DY);
            const REAL *a = gd_piece_load(&p, A, r->data[A], a_buffer);
            const REAL *b = gd_piece_load(&p, B, r->data[B], b_buffer);
            r->term(dx + gd_piece_offset(&p, DX), add, dy, a, b, p.n);
        }
    }
}

/* dx of one operand. Where it was broadcast, every copy sends its part, and dx is their sum. */
static gd_status operand_backward(const gd_call *call, int k, gd_row_function *row)
{
    const gd_tensor *dy = call->doutput[0], *dx = call->dinput[k];
    if (!dx) return GD_OK;
    /* What the backward does not read may be gone: dy stands in, and the row ignores it. */
    const bool reads = call->op->backward_reads_inputs != 0;
    const gd_tensor *operand[] = {dx, dy, reads ? call->input[0] : dy, reads ? call->input[1] : dy};
    gd_reduction r = {.walk = gd_walk_like(dy), .term = row};
    for (int i = 0; i < 4; i++) {
        gd_walk_add_tensor(&r.walk, operand[i]);
        r.data[i] = gd_data(operand[i]);
    }
    const bool add = call->accumulate[k];
    if (gd_tensor_count(dx) == gd_tensor_count(dy)) {
        direct(call, &r, gd_data(dx), add);
        return GD_OK;
    }
    const double *sum = GD_REAL_NAME(gd_reduce)(call, &r);
    if (!sum) return gd_error_status(call->context);
    gd_reduction_store(gd_data(dx), add, sum, gd_tensor_count(dx));
    return GD_OK;
}

/* One of the two may have been given dy's memory to write to; the other one goes first. */
static gd_status backward(const gd_call *call, gd_row_function *da_row, gd_row_function *db_row)
{
    const bool b_first = gd_data(call->dinput[0]) == gd_data(call->doutput[0]);
    gd_row_function *const row[] = {da_row, db_row};
    for (int i = 0; i < 2; i++) {
        int k = b_first ? 1 - i : i;
        gd_status status = operand_backward(call, k, row[k]);
        if (status) return status;
    }
    return GD_OK;
}

/* ---- The kernels -------------------------------------------------------------------------- */

#define BINARY(name, ...)                                        \
    gd_status GD_REAL_NAME(name##_forward)(const gd_call *call)  \
    {                                                            \
        return forward(call, name##_row);                        \
    }                                                            \
    gd_status GD_REAL_NAME(name##_backward)(const gd_call *call) \
    {                                                            \
        return backward(call, name##_da_row, name##_db_row);     \
    }
#include "elementwise/binary.def"
