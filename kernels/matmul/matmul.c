/* matmul.c - c = op(a) op(b) over the last two dimensions, the others broadcast. README.md derives
 * the gradients. */
#include "arguments.h"
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

static gd_status matmul_shape(const gd_call *call, gd_spec *output, gd_spec *save, uint64_t *words)
{
    (void)save, (void)words;
    static const char *const names[] = {"a", "b"};
    const matmul_args *args = call->args;
    const gd_tensor *a = call->input[0], *b = call->input[1];
    if (gd_check_one_dtype(call, names)) return GD_ERROR_ARGUMENT;
    for (int i = 0; i < 2; i++) {
        if (gd_tensor_ndim(call->input[i]) >= 2) continue;
        return gd_call_fail(call, GD_ERROR_ARGUMENT,
                            "%s has shape %s, wanted at least 2 dimensions", names[i],
                            gd_shape_text(call->input[i]).text);
    }
    int64_t K = op_columns(a, args->transpose_a), b_rows = op_rows(b, args->transpose_b);
    if (K != b_rows) {
        return gd_call_fail(
            call, GD_ERROR_ARGUMENT, "a %s%s has %lld columns, but b %s%s has %lld rows",
            gd_shape_text(a).text, args->transpose_a ? " transposed" : "", (long long)K,
            gd_shape_text(b).text, args->transpose_b ? " transposed" : "", (long long)b_rows);
    }
    int na = gd_tensor_ndim(a), nb = gd_tensor_ndim(b), n = na > nb ? na : nb;
    output[0] = (gd_spec){.dtype = gd_tensor_dtype(a), .ndim = n};
    for (int i = 3; i <= n; i++) { /* counted from the end */
        int64_t da = i <= na ? gd_tensor_dim(a, -i) : 1, db = i <= nb ? gd_tensor_dim(b, -i) : 1;
        if (da != db && da != 1 && db != 1) {
            return gd_call_fail(call, GD_ERROR_ARGUMENT,
                                "the leading dimensions of a %s and b %s do not broadcast",
                                gd_shape_text(a).text, gd_shape_text(b).text);
        }
        output[0].shape[n - i] = da == 1 ? db : da;
    }
    output[0].shape[n - 2] = op_rows(a, args->transpose_a);
    output[0].shape[n - 1] = op_columns(b, args->transpose_b);
    return GD_OK;
}

GD_KERNEL(matmul_forward)
GD_KERNEL(matmul_backward)

/* ---- Cases -------------------------------------------------------------------------------- */

static const matmul_args plain = {false, false}, ta = {true, false}, tb = {false, true},
                         tab = {true, true};

#define A(...)                            \
    {                                     \
        .name = "a", GD_DIMS(__VA_ARGS__) \
    }
#define B(...)                            \
    {                                     \
        .name = "b", GD_DIMS(__VA_ARGS__) \
    }

static const gd_case cases[] = {
    {.name = "rows3_inner5_cols7", .args = &plain, .inputs = 2, .input = {A(3, 5), B(5, 7)}},
    {.name = "transposed_a", .args = &ta, .inputs = 2, .input = {A(5, 3), B(5, 7)}},
    {.name = "transposed_b", .args = &tb, .inputs = 2, .input = {A(3, 5), B(7, 5)}},
    {.name = "transposed_both", .args = &tab, .inputs = 2, .input = {A(5, 3), B(7, 5)}},
    {.name = "batch", .args = &plain, .inputs = 2, .input = {A(2, 3, 4, 5), B(2, 3, 5, 6)}},
    {.name = "batch_transposed_both", .args = &tab, .inputs = 2, .input = {A(3, 5, 4), B(3, 6, 5)}},
    {.name = "one_b_for_all", .args = &plain, .inputs = 2, .input = {A(2, 3, 4, 5), B(5, 6)}},
    {.name = "one_b_for_all_transposed", .args = &tab, .inputs = 2, .input = {A(3, 5, 4), B(6, 5)}},
    {.name = "one_a_for_all", .args = &plain, .inputs = 2, .input = {A(4, 5), B(2, 3, 5, 6)}},
    {.name = "broadcast_both", .args = &tb, .inputs = 2, .input = {A(3, 1, 2, 5), B(1, 4, 3, 5)}},
    {.name = "inner1", .args = &plain, .inputs = 2, .input = {A(9, 1), B(1, 10)}},
    {.name = "one_row", .args = &plain, .inputs = 2, .input = {A(1, 17), B(17, 5)}},
    {.name = "one_column", .args = &plain, .inputs = 2, .input = {A(6, 13), B(13, 1)}},
    {.name = "larger", .args = &plain, .inputs = 2, .input = {A(37, 70), B(70, 53)}},
    {.name = "larger_transposed_a", .args = &ta, .inputs = 2, .input = {A(70, 37), B(70, 53)}},
    {.name = "no_rows",
     .args = &plain,
     .inputs = 2,
     .input = {A(0, 5), B(5, 3)},
     .may_be_empty = true},
    {.name = "no_inner",
     .args = &plain,
     .inputs = 2,
     .input = {A(4, 0), B(0, 3)},
     .may_be_empty = true},
    {.name = "no_batch",
     .args = &plain,
     .inputs = 2,
     .input = {A(0, 2, 5), B(5, 3)},
     .may_be_empty = true},
};

const gd_op gd_op_matmul = {
    .name = "matmul",
    .formula = "c = op(a) op(b), op(x) = x or its transpose",
    .inputs = 2,
    .outputs = 1,
    .args_size = sizeof(matmul_args),
    .backward_reads_inputs = 1u << 0 | 1u << 1,
    .dinput_float32 = 1u << 0 | 1u << 1,
    .strided = true,
    .shape = matmul_shape,
    .forward = GD_ON_DEVICES(matmul_forward),
    .backward = GD_ON_DEVICES(matmul_backward),
    .cases = cases,
    .case_count = sizeof cases / sizeof *cases,
};

gd_tensor *gd_matmul_with(gd_tensor *a, gd_tensor *b, bool transpose_a, bool transpose_b)
{
    matmul_args args = {transpose_a, transpose_b};
    return gd_apply(&gd_op_matmul, (gd_tensor *[]){a, b}, 2, &args);
}

gd_tensor *gd_matmul(gd_tensor *a, gd_tensor *b)
{
    return gd_matmul_with(a, b, false, false);
}
