// matmul.cu - forward and backward of matmul as families of products (gemm.cuh), as on the CPU.
#include "matmul/matmul.h"

#include "matmul/gemm.cuh"

// The matrix in the last two dimensions of a tensor, and the steps from one such matrix to the next
// along each dimension of the output before its last two: 0 where it is broadcast.
struct stack {
    gd_cuda_matrix matrix;
    int64_t step[GD_MAX_DIMS];
};

// Over an index i:  c_i (+)= a_i b_i.  Along a dimension with c_step = 0 the products are summed.
struct family {
    gd_gemm product;
    matmul_batch over;
};

// ---- Operands -----------------------------------------------------------------------------------

static stack stack_over(const gd_tensor *output, int ndim, void *data, const int64_t *shape,
                        const int64_t *strides)
{
    stack s = {{data, strides[ndim - 2], strides[ndim - 1]}, {}};
    for (int d = 0; d < ndim - 2; d++) {
        s.step[gd_tensor_ndim(output) - ndim + d] = shape[d] == 1 ? 0 : strides[d];
    }
    return s;
}

static void pack_strides(int ndim, const int64_t *shape, int64_t *strides)
{
    int64_t next = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = next;
        next *= shape[d];
    }
}

// A gradient, which is packed.
static stack packed_stack(const gd_tensor *t, const gd_tensor *output)
{
    const int ndim = gd_tensor_ndim(t);
    int64_t strides[GD_MAX_DIMS] = {};
    pack_strides(ndim, gd_tensor_shape(t), strides);
    return stack_over(output, ndim, gd_tensor_data(t), gd_tensor_shape(t), strides);
}

// A copy of x's matrices in scratch, each once: a dimension that repeats them stays as it is.
static gd_status copy_stack(const gd_call *call, const gd_tensor *x, const gd_tensor *output,
                            stack *s)
{
    const int ndim = gd_tensor_ndim(x);
    int64_t shape[GD_MAX_DIMS], strides[GD_MAX_DIMS], count = 1;
    for (int d = 0; d < ndim; d++) {
        const bool repeats = d < ndim - 2 && gd_tensor_strides(x)[d] == 0;
        shape[d] = repeats ? 1 : gd_tensor_shape(x)[d];
        count *= shape[d];
    }
    pack_strides(ndim, shape, strides);
    void *data = gd_call_scratch(call, (size_t)count * gd_dtype_size(gd_tensor_dtype(x)));
    if (!data) return gd_error_status(call->context);
    const gd_layout to = {data, gd_tensor_dtype(x), ndim, shape, strides};
    const gd_layout from = {gd_tensor_data(x), gd_tensor_dtype(x), ndim, shape,
                            gd_tensor_strides(x)};
    if (count > 0) gd_copy_cuda(to, from, call->context);
    *s = stack_over(output, ndim, data, shape, strides);
    return gd_error_status(call->context);
}

// op(x), where it lies if cuBLASLt can read it there.
static gd_status input_stack(const gd_call *call, const gd_tensor *x, bool transpose,
                             const gd_tensor *output, stack *s)
{
    const int ndim = gd_tensor_ndim(x);
    const int64_t *shape = gd_tensor_shape(x);
    *s = stack_over(output, ndim, gd_tensor_data(x), shape, gd_tensor_strides(x));
    if (!gd_gemm_takes(s->matrix, shape[ndim - 2], shape[ndim - 1])) {
        if (copy_stack(call, x, output, s)) return gd_error_status(call->context);
    }
    if (transpose) s->matrix = gd_transposed(s->matrix);
    return GD_OK;
}

static stack transposed(stack s)
{
    s.matrix = gd_transposed(s.matrix);
    return s;
}

// ---- Fewer and larger products ------------------------------------------------------------------

// Summed products whose terms follow each other are one product with a longer sum.
static bool extends_sum(const family *f, int d)
{
    const gd_gemm &p = f->product;
    return f->over.c_step[d] == 0 && f->over.a_step[d] == p.K * p.a.column &&
           f->over.b_step[d] == p.K * p.b.row && gd_gemm_takes(p.a, p.M, p.K * f->over.size[d]) &&
           gd_gemm_takes(p.b, p.K * f->over.size[d], p.N);
}

// Products that share one b, with rows of a and c that follow each other, are one of more rows.
static bool extends_rows(const family *f, int d)
{
    const gd_gemm &p = f->product;
    return f->over.c_step[d] != 0 && f->over.b_step[d] == 0 && f->over.c_step[d] == p.M * p.c.row &&
           f->over.a_step[d] == p.M * p.a.row && gd_gemm_takes(p.a, p.M * f->over.size[d], p.K);
}

// Two dimensions that are walked in even steps are one.
static bool extends_dimension(const family *f, int d)
{
    return d + 1 < f->over.dims &&
           f->over.c_step[d] == f->over.c_step[d + 1] * f->over.size[d + 1] &&
           f->over.a_step[d] == f->over.a_step[d + 1] * f->over.size[d + 1] &&
           f->over.b_step[d] == f->over.b_step[d + 1] * f->over.size[d + 1];
}

static void merge_dimensions(family *f)
{
    for (int d = f->over.dims - 1; d >= 0; d--) {
        if (f->over.size[d] == 1) {
            matmul_drop_dimension(&f->over, d);
        } else if (extends_sum(f, d)) {
            f->product.K *= f->over.size[d];
            matmul_drop_dimension(&f->over, d);
        } else if (extends_rows(f, d)) {
            f->product.M *= f->over.size[d];
            matmul_drop_dimension(&f->over, d);
        } else if (extends_dimension(f, d)) {
            f->over.size[d + 1] *= f->over.size[d];
            matmul_drop_dimension(&f->over, d);
        }
    }
}

// ---- Running a family ---------------------------------------------------------------------------

// The longest dimension that is not summed becomes the batch of one call.
static void take_batch(family *f)
{
    int longest = -1;
    for (int d = 0; d < f->over.dims; d++) {
        if (f->over.c_step[d] == 0) continue;
        if (longest < 0 || f->over.size[d] > f->over.size[longest]) longest = d;
    }
    if (longest < 0) return;
    f->product.batch = f->over.size[longest];
    f->product.c_step = f->over.c_step[longest];
    f->product.a_step = f->over.a_step[longest];
    f->product.b_step = f->over.b_step[longest];
    matmul_drop_dimension(&f->over, longest);
}

// Calls for all places of the remaining dimensions in order, so that the products that are summed
// into one c come in order, too: the first overwrites it, the others add.
static gd_status run_products(const gd_call *call, const family *f)
{
    const int64_t size = (int64_t)gd_dtype_size(f->product.dtype);
    const int64_t c_size = (int64_t)gd_dtype_size(f->product.c_dtype);
    gd_gemm_workspace workspace = {};
    int64_t places = 1;
    for (int d = 0; d < f->over.dims; d++) places *= f->over.size[d];
    for (int64_t place = 0; place < places; place++) {
        gd_gemm product = f->product;
        int64_t rest = place, c = 0, a = 0, b = 0;
        for (int d = f->over.dims - 1; d >= 0; d--) {
            const int64_t index = rest % f->over.size[d];
            rest /= f->over.size[d];
            c += index * f->over.c_step[d], a += index * f->over.a_step[d],
                b += index * f->over.b_step[d];
            if (f->over.c_step[d] == 0 && index > 0) product.accumulate = true;
        }
        product.c.data = (char *)product.c.data + c * c_size;
        product.a.data = (char *)product.a.data + a * size;
        product.b.data = (char *)product.b.data + b * size;
        const gd_status status = gd_gemm_cuda(call, product, &workspace);
        if (status) return status;
    }
    return GD_OK;
}

// A sum of products in 16 bits would be rounded after each. So c [count] is summed in float32, and
// rounded once.
static gd_status run_in_float32(const gd_call *call, family *f, int64_t count)
{
    const gd_dtype dtype = f->product.c_dtype;
    const bool add = f->product.accumulate;
    void *c = f->product.c.data, *sums = gd_call_scratch(call, (size_t)count * sizeof(float));
    if (!sums) return gd_error_status(call->context);
    f->product.c.data = sums;
    f->product.c_dtype = GD_FLOAT32;
    f->product.accumulate = false;
    if (run_products(call, f)) return gd_error_status(call->context);
    if (add) {
        gd_accumulate_cuda(c, dtype, sums, GD_FLOAT32, count, call->context);
    } else {
        const int64_t one = 1;
        const gd_layout to = {c, dtype, 1, &count, &one},
                        from = {sums, GD_FLOAT32, 1, &count, &one};
        gd_copy_cuda(to, from, call->context);
    }
    return gd_error_status(call->context);
}

// target (+)= a b over the dimensions of `output` before its last two; target is packed.
static gd_status multiply_stacks(const gd_call *call, const gd_tensor *output,
                                 const gd_tensor *target, stack a, stack b, int64_t K, bool add)
{
    const stack c = packed_stack(target, output);
    if (gd_tensor_count(target) == 0) return GD_OK;
    family f = {};
    f.product = gd_gemm_of(call->kernel_dtype, gd_tensor_dim(target, -2), gd_tensor_dim(target, -1),
                           K, c.matrix, a.matrix, b.matrix, add);
    f.product.c_dtype = gd_tensor_dtype(target);
    f.over.dims = gd_tensor_ndim(output) - 2;
    bool sums = false;
    for (int d = 0; d < f.over.dims; d++) {
        f.over.size[d] = gd_tensor_shape(output)[d];
        f.over.c_step[d] = c.step[d], f.over.a_step[d] = a.step[d], f.over.b_step[d] = b.step[d];
        if (f.over.size[d] > 0) continue;
        f.over.size[d] = 1; // no products at all: a sum of no terms
        f.product.K = 0;
    }
    merge_dimensions(&f);
    take_batch(&f);
    for (int d = 0; d < f.over.dims; d++) sums = sums || f.over.c_step[d] == 0;
    if (sums && gd_dtype_size(f.product.c_dtype) < sizeof(float)) {
        return run_in_float32(call, &f, gd_tensor_count(target));
    }
    return run_products(call, &f);
}

// ---- The op -------------------------------------------------------------------------------------

extern "C" gd_status matmul_forward_cuda(const gd_call *call)
{
    const matmul_args *args = (const matmul_args *)call->args;
    const gd_tensor *y = call->output[0], *x0 = call->input[0], *x1 = call->input[1];
    if (gd_tensor_count(y) == 0) return GD_OK;
    stack a, b;
    gd_status status = input_stack(call, x0, args->transpose_a, y, &a);
    if (!status) status = input_stack(call, x1, args->transpose_b, y, &b);
    const int64_t K = gd_tensor_dim(x0, args->transpose_a ? -2 : -1);
    return status ? status : multiply_stacks(call, y, y, a, b, K, false);
}

// With a and b standing for op(a) and op(b):  da = dc b^T,  db = a^T dc.  Where an input was given
// transposed its gradient is transposed too:  da^T = b dc^T,  db^T = dc^T a.
extern "C" gd_status matmul_backward_cuda(const gd_call *call)
{
    const matmul_args *args = (const matmul_args *)call->args;
    const gd_tensor *y = call->output[0], *x0 = call->input[0], *x1 = call->input[1];
    const gd_tensor *da = call->dinput[0], *db = call->dinput[1];
    const int64_t M = gd_tensor_dim(y, -2), N = gd_tensor_dim(y, -1);
    const stack dc = packed_stack(call->doutput[0], y);
    gd_status status = GD_OK;
    if (da) {
        stack b;
        status = input_stack(call, x1, args->transpose_b, y, &b);
        if (status) return status;
        const bool add = call->accumulate[0];
        /* da = dc b^T ([da] in plain_cpu.c) */
        status = args->transpose_a ? multiply_stacks(call, y, da, b, transposed(dc), N, add)
                                   : multiply_stacks(call, y, da, dc, transposed(b), N, add);
    }
    if (db && !status) {
        stack a;
        status = input_stack(call, x0, args->transpose_a, y, &a);
        if (status) return status;
        const bool add = call->accumulate[1];
        /* db = a^T dc ([db] in plain_cpu.c) */
        status = args->transpose_b ? multiply_stacks(call, y, db, transposed(dc), a, M, add)
                                   : multiply_stacks(call, y, db, transposed(a), dc, M, add);
    }
    return status;
}
