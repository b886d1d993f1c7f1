/* binary_cpu.c - the CPU kernels of the functions of two variables (binary.def), with broadcast. */
#include "elementwise/functions.h"
#include "loops.h"
#include "reduce/reduction.h"

/* ---- Rows, by table ----------------------------------------------------------------------- */

#define BINARY(name, formula, value, da, db, ...)         \
    GD_MAP_ROW(name##_row, a, b, c, d, p, q, value)       \
    GD_GRADIENT_ROW(name##_da_row, dy, a, b, c, p, q, da) \
    GD_GRADIENT_ROW(name##_db_row, dy, a, b, c, p, q, db)
#include "elementwise/binary.def"
#undef BINARY

/* ---- Operands ----------------------------------------------------------------------------- */

typedef struct operand {
    const REAL *data;
    int64_t strides[GD_MAX_DIMS];
} operand;

/* Whether the elements along the last dimension (of those larger than 1) are not adjacent. */
static bool lies_across(const gd_tensor *t)
{
    int d = gd_tensor_ndim(t) - 1;
    while (d >= 0 && gd_tensor_shape(t)[d] == 1) d--;
    return d >= 0 && gd_tensor_strides(t)[d] > 1;
}

/* t as an operand. A transposed view would be gathered element by element, each from another cache
 * line; it is packed first, by tiles. False, with the error set, if there is no memory. */
static bool load_operand(const gd_call *call, const gd_tensor *t, operand *o)
{
    for (int d = 0; d < gd_tensor_ndim(t); d++) o->strides[d] = gd_tensor_strides(t)[d];
    o->data = gd_data(t);
    if (!lies_across(t)) return true;
    o->data = gd_packed_copy(call, gd_layout_of(t), gd_tensor_dtype(t), o->strides);
    return o->data != NULL;
}

static void add_operand(gd_walk *walk, const gd_tensor *t, const operand *o)
{
    gd_walk_add(walk, gd_tensor_ndim(t), gd_tensor_shape(t), o->strides);
}

/* ---- Forward ------------------------------------------------------------------------------ */

static gd_status binary_forward(const gd_call *call, gd_row_function *row)
{
    operand a, b;
    if (!load_operand(call, call->input[0], &a) || !load_operand(call, call->input[1], &b))
        return gd_error_status(call->context);
    gd_walk walk = gd_walk_like(call->output[0]);
    gd_walk_add_tensor(&walk, call->output[0]);
    add_operand(&walk, call->input[0], &a);
    add_operand(&walk, call->input[1], &b);
    return gd_map_walk(call, walk,
                       &(gd_map){.out = gd_data(call->output[0]),
                                 .size = sizeof(REAL),
                                 .in = {a.data, b.data},
                                 .row = {.function = row}});
}

/* ---- Backward ----------------------------------------------------------------------------- */

enum { DX, DY, A, B };

/* dx of input k, by a row of terms from dy, a and b [2]. If the input was broadcast, dx is the sum
 * over its copies. */
static gd_status input_backward(const gd_call *call, int k, const operand *inputs,
                                gd_row_function *row)
{
    const gd_tensor *dy = call->doutput[0], *dx = call->dinput[k];
    gd_reduction r = {.walk = gd_walk_like(dy), .term = {.function = row}};
    gd_walk_add_tensor(&r.walk, dx);
    gd_walk_add_tensor(&r.walk, dy);
    r.data[DY] = gd_data(dy);
    for (int i = 0; i < 2; i++) {
        /* Values that the backward does not read may have been freed: dy is passed instead, and the
         * row ignores it. */
        if (inputs)
            add_operand(&r.walk, call->input[i], &inputs[i]);
        else
            gd_walk_add_tensor(&r.walk, dy);
        r.data[A + i] = inputs ? inputs[i].data : r.data[DY];
    }
    const bool add = call->accumulate[k];
    if (gd_tensor_count(dx) == gd_tensor_count(dy))
        return gd_map_walk(call, r.walk,
                           &(gd_map){.out = gd_data(dx),
                                     .size = sizeof(REAL),
                                     .in = {r.data[DY], r.data[A], r.data[B]},
                                     .row = {.function = row, .add = add}});
    return gd_reduce_into(dx, add, call, &r); /* [broadcast] */
}

static gd_status binary_backward(const gd_call *call, gd_row_function *da_row,
                                 gd_row_function *db_row)
{
    operand inputs[2];
    const bool reads = call->op->backward_reads_inputs != 0;
    for (int i = 0; reads && i < 2; i++)
        if (!load_operand(call, call->input[i], &inputs[i])) return gd_error_status(call->context);
    /* One of the two may be written over dy; the other one is computed first. */
    const bool b_first = gd_data(call->dinput[0]) == gd_data(call->doutput[0]);
    gd_row_function *const row[] = {da_row, db_row};
    for (int i = 0; i < 2; i++) {
        int k = b_first ? 1 - i : i;
        if (!call->dinput[k]) continue;
        gd_status status = input_backward(call, k, reads ? inputs : NULL, row[k]);
        if (status) return status;
    }
    return GD_OK;
}

/* ---- The kernels -------------------------------------------------------------------------- */

#define BINARY(name, ...)                                               \
    GD_KERNEL_OF_REAL(name##_forward, binary_forward(call, name##_row)) \
    GD_KERNEL_OF_REAL(name##_backward, binary_backward(call, name##_da_row, name##_db_row))
#include "elementwise/binary.def"
