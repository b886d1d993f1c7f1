/* matmul_cpu.c - forward and backward of matmul as families of matrix products. */
#include "kernel_cpu.h"
#include "matmul/gemm.h"
#include "matmul/matmul.h"

/* The matrix in the last two dimensions of a tensor, and the steps from one such matrix to the
 * next along each dimension of the output before its last two: 0 where it is broadcast. */
typedef struct stack {
    REAL *data;
    gemm_matrix matrix;
    int64_t step[GD_MAX_DIMS];
} stack;

/* Over an index i:  c_i [M, N] (+)= a_i b_i.  Along a dimension with c_step = 0 the products are
 * summed. */
typedef struct family {
    REAL *c;
    int64_t c_row;
    gemm_matrix a, b;
    int64_t M, N, K;
    matmul_batch over;
    bool accumulate;
    int threads; /* of a product */
} family;

/* op(t), which is repeated along the dimensions of y that it lacks or that are 1. */
static stack stack_of(const gd_tensor *t, bool transpose, const gd_tensor *y)
{
    const int n = gd_tensor_ndim(t), lacks = gd_tensor_ndim(y) - n;
    const int64_t *shape = gd_tensor_shape(t), *strides = gd_tensor_strides(t);
    stack s = {.data = gd_data(t), .matrix = {gd_data(t), strides[n - 2], strides[n - 1]}};
    if (transpose) s.matrix = gemm_transposed(s.matrix);
    for (int i = 0; i < n - 2; i++) s.step[lacks + i] = shape[i] == 1 ? 0 : strides[i];
    return s;
}

static int64_t dot_position(int dims, const int64_t *index, const int64_t *step)
{
    int64_t at = 0;
    for (int i = 0; i < dims; i++) at += index[i] * step[i];
    return at;
}

/* Merges products into fewer and larger ones. If all share one b, and the rows of each c and a
 * follow those of the one before, they are one product with more rows; if they are summed and the
 * terms follow each other, one longer sum. */
static void merge_dimensions(family *f)
{
    for (int d = f->over.dims - 1; d >= 0; d--) {
        if (f->over.size[d] == 1) {
            matmul_drop_dimension(&f->over, d);
        } else if (f->over.c_step[d] == 0 && f->over.a_step[d] == f->K * f->a.column &&
                   f->over.b_step[d] == f->K * f->b.row) {
            f->K *= f->over.size[d];
            matmul_drop_dimension(&f->over, d);
        } else if (f->over.b_step[d] == 0 && f->over.c_step[d] == f->M * f->c_row &&
                   f->over.a_step[d] == f->M * f->a.row && f->over.c_step[d] != 0) {
            f->M *= f->over.size[d];
            matmul_drop_dimension(&f->over, d);
        }
    }
}

/* Product `number` of those along the dimensions that are summed, or along the others. */
static void index_of(const matmul_batch *over, bool summed, int64_t number, int64_t *index)
{
    for (int d = over->dims - 1; d >= 0; d--) {
        if ((over->c_step[d] == 0) != summed) continue;
        index[d] = number % over->size[d];
        number /= over->size[d];
    }
}

/* How many there are. */
static int64_t count_of(const matmul_batch *over, bool summed)
{
    int64_t count = 1;
    for (int d = 0; d < over->dims; d++)
        if ((over->c_step[d] == 0) == summed) count *= over->size[d];
    return count;
}

/* Each c: the sum of its products, in order. */
static void sum_products(const void *work, int64_t number, int64_t end, void *scratch)
{
    const family *f = work;
    const matmul_batch *over = &f->over;
    const int64_t summed = count_of(over, true);
    for (; number < end; number++) {
        int64_t i[GD_MAX_DIMS] = {0};
        index_of(over, false, number, i);
        REAL *c = f->c + dot_position(over->dims, i, over->c_step);
        if (summed == 0) gemm(c, f->c_row, f->a, f->b, f->M, f->N, 0, f->accumulate, scratch, 1);
        for (int64_t s = 0; s < summed; s++) {
            index_of(over, true, s, i);
            gemm_matrix a = f->a, b = f->b;
            a.data += dot_position(over->dims, i, over->a_step);
            b.data += dot_position(over->dims, i, over->b_step);
            gemm(c, f->c_row, a, b, f->M, f->N, f->K, f->accumulate || s > 0, scratch, f->threads);
        }
    }
}

/* Many small products: one thread for each. Few: all threads for each in turn. */
static gd_status run_family(const gd_call *call, family *f)
{
    merge_dimensions(f);
    const int64_t count = count_of(&f->over, false);
    if (count == 0) return GD_OK;
    f->threads = gemm_threads(call->threads, f->M, f->N, f->K);
    int64_t elements = 0; /* of the threads outside of a product */
    if (count >= 2 * call->threads || f->threads == 1) {
        elements = count * gd_max64(1, f->M * f->N * f->K / 16);
        f->threads = 1;
    }
    const size_t bytes = gemm_scratch(f->a, f->b, f->M, f->N, f->K, f->threads);
    return gd_each_range(call, elements, count, bytes, sum_products, f);
}

/* c (+)= a b over the dimensions of `output` before its last two. */
static gd_status multiply_stacks(const gd_call *call, const gd_tensor *output, stack c, stack a,
                                 stack b, int64_t M, int64_t N, int64_t K, bool accumulate)
{
    family f = {.c = c.data, .c_row = N, .a = a.matrix, .b = b.matrix, .M = M, .N = N, .K = K};
    f.accumulate = accumulate;
    f.over.dims = gd_tensor_ndim(output) - 2;
    for (int d = 0; d < f.over.dims; d++) {
        f.over.size[d] = gd_tensor_shape(output)[d];
        f.over.c_step[d] = c.step[d], f.over.a_step[d] = a.step[d], f.over.b_step[d] = b.step[d];
    }
    if (M == 0 || N == 0) return GD_OK;
    return run_family(call, &f);
}

static stack transposed(stack s)
{
    s.matrix = gemm_transposed(s.matrix);
    return s;
}

gd_status GD_REAL_NAME(matmul_forward)(const gd_call *call)
{
    const matmul_args *args = call->args;
    const gd_tensor *y = call->output[0], *x = call->input[0];
    const stack a = stack_of(x, args->transpose_a, y);
    const stack b = stack_of(call->input[1], args->transpose_b, y);
    const int64_t K = gd_tensor_dim(x, args->transpose_a ? -2 : -1);
    return multiply_stacks(call, y, stack_of(y, false, y), a, b, gd_tensor_dim(y, -2),
                           gd_tensor_dim(y, -1), K, false);
}

/* The gradient of input i [M, N] (+)= a b over K, or, where the input was given transposed, its
 * transpose: b^T a^T. */
static gd_status gradient(const gd_call *call, int i, bool transpose, stack a, stack b, int64_t M,
                          int64_t N, int64_t K)
{
    const gd_tensor *to = call->dinput[i], *y = call->output[0];
    const bool add = call->accumulate[i];
    if (!to) return GD_OK;
    const stack c = stack_of(to, false, y);
    return transpose ? multiply_stacks(call, y, c, transposed(b), transposed(a), N, M, K, add)
                     : multiply_stacks(call, y, c, a, b, M, N, K, add);
}

/* With a and b for op(a) and op(b):  da = dc b^T,  db = a^T dc ([da] and [db] in plain_cpu.c). */
gd_status GD_REAL_NAME(matmul_backward)(const gd_call *call)
{
    const matmul_args *args = call->args;
    const gd_tensor *y = call->output[0];
    const int64_t M = gd_tensor_dim(y, -2), N = gd_tensor_dim(y, -1);
    const int64_t K = gd_tensor_dim(call->input[0], args->transpose_a ? -2 : -1);
    const stack a = stack_of(call->input[0], args->transpose_a, y);
    const stack b = stack_of(call->input[1], args->transpose_b, y);
    const stack dc = stack_of(call->doutput[0], false, y);
    const gd_status status = gradient(call, 0, args->transpose_a, dc, transposed(b), M, K, N);
    return status ? status : gradient(call, 1, args->transpose_b, transposed(a), dc, K, N, M);
}
