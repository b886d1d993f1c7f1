/* matmul.c - c = op(a) op(b) over the last two dimensions, the others broadcast. README.md derives
 * the gradients. */
#include "arguments.h"
#include "derivation.h"
#include "gradus/ops.h"
#include "matmul/matmul.h"

/* Sizes of op(x) [rows, columns]. */
static int64_t op_rows(const gd_tensor *x, bool transpose)
{
    return gd_tensor_dim(x, transpose ? -1 : -2);
}

static int64_t op_columns(const gd_tensor *x, bool transpose)
{
    return gd_tensor_dim(x, transpose ? -2 : -1);
}

static gd_status matmul_shape(const gd_call *call, gd_shapes *out)
{
    const matmul_args *args = call->args;
    const gd_tensor *a = call->input[0], *b = call->input[1];
    int64_t K = op_columns(a, args->transpose_a), b_rows = op_rows(b, args->transpose_b);
    if (K != b_rows)
        return gd_refuse(call, "a %s%s has %lld columns, but b %s%s has %lld rows",
                         gd_shape_text(a).text, args->transpose_a ? " transposed" : "",
                         (long long)K, gd_shape_text(b).text,
                         args->transpose_b ? " transposed" : "", (long long)b_rows);
    gd_spec *c = &out->output[0];
    c->shape[c->ndim - 2] = op_rows(a, args->transpose_a);
    c->shape[c->ndim - 1] = op_columns(b, args->transpose_b);
    return GD_OK;
}

GD_KERNEL_PAIR(matmul)

/* ---- Derivative --------------------------------------------------------------------------- */

/* All leading dimensions as rows. */
static gd_tensor *as_rows(gd_tensor *x)
{
    return gd_reshape(x, GD_SHAPE(-1, gd_tensor_dim(x, -1)));
}

/* da = dc op(b)^T and db = op(a)^T dc, transposed where the input is, and summed where it was
 * repeated: for one matrix b in the product of all rows. README.md derives them. */
static void matmul_derivative(const gd_call *call)
{
    const matmul_args *args = call->args;
    const bool ta = args->transpose_a, tb = args->transpose_b;
    gd_tensor *a = call->input[0], *b = call->input[1], *dc = call->doutput[0];
    if (call->dinput[0]) {
        gd_tensor *da = ta ? gd_matmul_with(b, dc, tb, true) : gd_matmul_with(dc, b, false, !tb);
        call->dinput[0] = sum_to(da, a);
    }
    if (!call->dinput[1]) return;
    if (!ta && gd_tensor_ndim(b) == 2 && gd_tensor_ndim(a) > 2 && gd_tensor_count(dc)) {
        a = as_rows(a);
        dc = as_rows(dc);
    }
    gd_tensor *db = tb ? gd_matmul_with(dc, a, true, ta) : gd_matmul_with(a, dc, !ta, false);
    call->dinput[1] = sum_to(db, b);
}

/* ---- Cases -------------------------------------------------------------------------------- */

static const matmul_args plain = {false, false}, ta = {true, false}, tb = {false, true},
                         tab = {true, true};

static const gd_case cases[] = {
    {"rows3_inner5_cols7", &plain, GD_INPUTS({GD_DIMS(3, 5)}, {GD_DIMS(5, 7)})},
    {"transposed_a", &ta, GD_INPUTS({GD_DIMS(5, 3)}, {GD_DIMS(5, 7)})},
    {"transposed_b", &tb, GD_INPUTS({GD_DIMS(3, 5)}, {GD_DIMS(7, 5)})},
    {"transposed_both", &tab, GD_INPUTS({GD_DIMS(5, 3)}, {GD_DIMS(7, 5)})},
    {"batch", &plain, GD_INPUTS({GD_DIMS(2, 3, 4, 5)}, {GD_DIMS(2, 3, 5, 6)})},
    {"batch_transposed_both", &tab, GD_INPUTS({GD_DIMS(3, 5, 4)}, {GD_DIMS(3, 6, 5)})},
    {"one_b_for_all", &plain, GD_INPUTS({GD_DIMS(2, 3, 4, 5)}, {GD_DIMS(5, 6)})},
    {"one_b_for_all_transposed", &tab, GD_INPUTS({GD_DIMS(3, 5, 4)}, {GD_DIMS(6, 5)})},
    {"one_a_for_all", &plain, GD_INPUTS({GD_DIMS(4, 5)}, {GD_DIMS(2, 3, 5, 6)})},
    {"broadcast_both", &tb, GD_INPUTS({GD_DIMS(3, 1, 2, 5)}, {GD_DIMS(1, 4, 3, 5)})},
    {"inner1", &plain, GD_INPUTS({GD_DIMS(9, 1)}, {GD_DIMS(1, 10)})},
    {"one_row", &plain, GD_INPUTS({GD_DIMS(1, 17)}, {GD_DIMS(17, 5)})},
    {"one_column", &plain, GD_INPUTS({GD_DIMS(6, 13)}, {GD_DIMS(13, 1)})},
    {"larger", &plain, GD_INPUTS({GD_DIMS(37, 70)}, {GD_DIMS(70, 53)})},
    {"larger_transposed_a", &ta, GD_INPUTS({GD_DIMS(70, 37)}, {GD_DIMS(70, 53)})},
    {"no_rows", &plain, GD_INPUTS({GD_DIMS(0, 5)}, {GD_DIMS(5, 3)}), .may_be_empty = true},
    {"no_inner", &plain, GD_INPUTS({GD_DIMS(4, 0)}, {GD_DIMS(0, 3)}), .may_be_empty = true},
    {"no_batch", &plain, GD_INPUTS({GD_DIMS(0, 2, 5)}, {GD_DIMS(5, 3)}), .may_be_empty = true},
};

const gd_op gd_op_matmul = {
    .formula = "c = op(a) op(b), op(x) = x or its transpose",
    .signature = "a[*, M, K] b[*, L, N] -> c[*, M, N]",
    GD_ARGS(matmul_args),
    .backward_reads_inputs = GD_ALL_INPUTS,
    .dinput_float32 = GD_ALL_INPUTS,
    .strided = true,
    .shape = matmul_shape,
    GD_KERNELS(matmul),
    .derivative = matmul_derivative,
    GD_CASES(cases),
};

gd_tensor *gd_matmul_with(gd_tensor *a, gd_tensor *b, bool transpose_a, bool transpose_b)
    GD_APPLIES(matmul, (&(matmul_args){transpose_a, transpose_b}), a, b)

gd_tensor *gd_matmul(gd_tensor *a, gd_tensor *b)
{
    return gd_matmul_with(a, b, false, false);
}
