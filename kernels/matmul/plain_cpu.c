/* plain_cpu.c - matmul as README.md derives it: three loops over each pair of matrices. It has the
 * interface of matmul_cpu.c's kernels, which tests compare with it. */
#include "kernel_cpu.h"
#include "matmul/matmul.h"

typedef struct matrix {
    REAL *data;
    int64_t row, column;
} matrix;

static REAL *at(matrix x, int64_t i, int64_t j)
{
    return x.data + i * x.row + j * x.column;
}

/* op(t) in product `index` of those that make y: t is repeated along dimensions that it lacks or
 * that are 1. */
static matrix matrix_of(const gd_tensor *t, bool transpose, const gd_tensor *y, int64_t index)
{
    if (!t) return (matrix){0};
    const int lacks = gd_tensor_ndim(y) - gd_tensor_ndim(t);
    const int64_t *strides = gd_tensor_strides(t) + gd_tensor_ndim(t);
    matrix m = {gd_data(t), strides[transpose ? -1 : -2], strides[transpose ? -2 : -1]};
    for (int d = gd_tensor_ndim(y) - 3; d >= 0; index /= gd_tensor_shape(y)[d--]) {
        if (d < lacks || gd_tensor_shape(t)[d - lacks] == 1) continue;
        m.data += index % gd_tensor_shape(y)[d] * gd_tensor_strides(t)[d - lacks];
    }
    return m;
}

/* c = a b; or, where there is a dc, da += dc b^T and db += a^T dc. */
static gd_status plain(const gd_call *call)
{
    const matmul_args *args = call->args;
    const bool ta = args->transpose_a, tb = args->transpose_b, backward = gd_dy(call, 0);
    const gd_tensor *const *in = (const gd_tensor *const *)call->input, *y = call->output[0];
    const int64_t M = gd_tensor_dim(y, -2), N = gd_tensor_dim(y, -1);
    const int64_t K = gd_tensor_dim(in[0], ta ? -2 : -1);
    const int64_t products = M > 0 && N > 0 ? gd_tensor_count(y) / (M * N) : 0;
    const bool wants_a = gd_dx_sum(call, 0), wants_b = gd_dx_sum(call, 1);
    for (int64_t index = 0; index < products; index++) {
        const matrix a = matrix_of(in[0], ta, y, index), b = matrix_of(in[1], tb, y, index);
        const matrix c = matrix_of(backward ? call->doutput[0] : y, false, y, index), dc = c;
        const matrix da = matrix_of(wants_a ? call->dinput[0] : NULL, ta, y, index);
        const matrix db = matrix_of(wants_b ? call->dinput[1] : NULL, tb, y, index);
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++) {
                if (!backward) *at(c, m, n) = 0;
                for (int64_t k = 0; k < K; k++) {
                    if (!backward) *at(c, m, n) += *at(a, m, k) * *at(b, k, n);
                    if (da.data) *at(da, m, k) += *at(dc, m, n) * *at(b, k, n); /* [da] */
                    if (db.data) *at(db, k, n) += *at(a, m, k) * *at(dc, m, n); /* [db] */
                }
            }
    }
    return GD_OK;
}

GD_KERNELS_OF_REAL(matmul_plain, plain(call), plain(call))
