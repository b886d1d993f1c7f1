/* test_cuda_huge.c - tensors of more than 2^31 elements on the GPU.
 *
 * The results of an op for the last rows of a huge tensor must have the same bits as for these rows
 * alone (matmul: nearly, since cuBLAS splits sums depending on the number of rows). Needs about 40
 * GB of GPU memory, so it runs only with GRADUS_TEST_HUGE in the environment. */
#include <math.h>

#include "gpu.h"

enum { COLS = 8, TAIL = 5 };

static const int64_t rows = ((int64_t)1 << 28) + 1; /* times COLS: 2^31 + 8 */

/* An op on x [M, COLS] whose rows do not depend on each other; w and b are [COLS]. */
typedef struct row_op {
    const char *name;
    gd_tensor *(*apply)(gd_tensor *x, gd_tensor *w, gd_tensor *b);
} row_op;

#define ROW_OP(name, expression)                                             \
    static gd_tensor *apply_##name(gd_tensor *x, gd_tensor *w, gd_tensor *b) \
    {                                                                        \
        (void)w, (void)b;                                                    \
        return expression;                                                   \
    }

static const int last_axis = 1;

ROW_OP(relu, gd_relu(x))
ROW_OP(silu, gd_silu(x))
ROW_OP(mul, gd_mul(x, x))
ROW_OP(add_row, gd_add(x, b))
ROW_OP(swiglu, gd_swiglu(x, x))
ROW_OP(softmax, gd_softmax(x, -1))
ROW_OP(log_softmax, gd_log_softmax(x, -1))
ROW_OP(rms_norm, gd_rms_norm(x, w, 1e-5))
ROW_OP(layer_norm, gd_layer_norm(x, w, b, 1e-5))
ROW_OP(sum, gd_sum(x, &last_axis, 1, false))
ROW_OP(max, gd_max(x, &last_axis, 1, true))
ROW_OP(turned, gd_contiguous(gd_transpose(x, 0, 1)))
ROW_OP(concat, gd_concat((gd_tensor *[]){x, x}, 2, 1))
ROW_OP(cast, gd_cast(x, GD_FLOAT16))
ROW_OP(matmul, gd_matmul(x, gd_expand(w, GD_SHAPE(COLS, COLS))))

#define ROW(name)           \
    {                       \
#name, apply_##name \
    }
static const row_op ops[] = {ROW(relu),       ROW(silu),    ROW(mul),         ROW(add_row),
                             ROW(swiglu),     ROW(softmax), ROW(log_softmax), ROW(rms_norm),
                             ROW(layer_norm), ROW(sum),     ROW(max),         ROW(turned),
                             ROW(concat),     ROW(cast),    ROW(matmul)};

enum { OPS = sizeof ops / sizeof *ops, MOST = TAIL * COLS * 2 };

/* The last TAIL rows of y (columns, if it is transposed), as numbers. */
static int64_t read_tail(gd_tensor *y, double *value)
{
    int axis = gd_tensor_dim(y, 0) == COLS && gd_tensor_ndim(y) == 2 ? 1 : 0;
    int64_t size = gd_tensor_dim(y, axis);
    gd_tensor *tail = gd_slice(gd_detach(y), axis, size - TAIL, size);
    gd_tensor_read_f64(tail, value, gd_tensor_count(tail));
    return tail ? gd_tensor_count(tail) : 0;
}

/* The tails of y and of dx, for dy = 1. */
static int64_t run(const row_op *op, gd_tensor *x, gd_tensor *w, gd_tensor *b, double *y,
                   double *dx)
{
    gd_tensor *out = gd_keep(op->apply(x, w, b));
    gd_backward_from(&out, 1, NULL);
    int64_t count = read_tail(out, y);
    read_tail(gd_grad(x), dx);
    gd_context *ctx = gd_tensor_context(x);
    gd_step_end(ctx);
    gd_grad_clear(x);
    ck_assert_no_error(ctx);
    return count;
}

static bool same(const row_op *op, double got, double want)
{
    bool nearly = op->apply == apply_matmul;
    return got == want || (nearly && fabs(got - want) <= 0.01 * (fabs(want) + 1));
}

LOOP_TEST(the_last_rows_are_as_they_are_alone, OPS)
{
    if (!getenv("GRADUS_TEST_HUGE")) {
        printf("%s: skipped without GRADUS_TEST_HUGE\n", ops[_i].name);
        return;
    }
    gd_context *ctx = gd_context_create(&(gd_context_options){.device = GD_CUDA, .seed = 2});
    gd_tensor *x = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(rows, COLS));
    gd_tensor *few = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(TAIL, COLS));
    gd_tensor *w = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(COLS));
    gd_tensor *b = gd_tensor_create(ctx, GD_BFLOAT16, GD_SHAPE(COLS));
    gd_random_normal(x, 0, 1);
    gd_random_normal(w, 1, 0.5);
    gd_random_normal(b, 0, 1);
    gd_tensor_copy(few, gd_slice(x, 0, rows - TAIL, rows));
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(few, true);
    ck_assert_no_error(ctx);

    double y[2][MOST], dx[2][MOST];
    int64_t count = run(&ops[_i], x, w, b, y[0], dx[0]);
    ck_assert_int_eq(run(&ops[_i], few, w, b, y[1], dx[1]), count);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(same(&ops[_i], y[0][i], y[1][i]), "%s: y[%lld] is %g, wanted %g",
                      ops[_i].name, (long long)i, y[0][i], y[1][i]);
    for (int64_t i = 0; i < TAIL * COLS; i++)
        ck_assert_msg(same(&ops[_i], dx[0][i], dx[1][i]), "%s: dx[%lld] is %g, wanted %g",
                      ops[_i].name, (long long)i, dx[0][i], dx[1][i]);
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "more than 2^31 elements", NULL, NULL)
