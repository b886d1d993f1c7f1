// gemm.cuh - the matrix product on a GPU, by cuBLASLt:
//
//     c_i [M, N] = alpha a_i [M, K] b_i [K, N] (+ bias [N]) (+ c_i),    i = 0 ... batch - 1
//
// Matrices are windows with two strides, as in gemm.h: a transposed one is the same memory with its
// strides exchanged. float64 is summed in float64, everything else in float32.
#ifndef GD_GEMM_CUH
#define GD_GEMM_CUH

#include "cuda.cuh"

// Element (i, j) at data[i * row + j * column], in elements.
struct gd_cuda_matrix {
    void *data;
    int64_t row, column;
};

struct gd_gemm {
    gd_dtype dtype;         // of a and b
    gd_dtype c_dtype;       // of c and bias: the same, or float32
    int64_t M, N, K;        // any may be 0
    gd_cuda_matrix c, a, b; // c with packed rows (column 1), a and b as gd_gemm_takes them
    int64_t batch, c_step, a_step, b_step; // steps from one i to the next; 0: the same a or b
    double alpha;
    bool accumulate;  // add into c; otherwise its content is garbage
    const void *bias; // or NULL; not with accumulate or a batch
    // Or NULL: on the device, in the type of the sums, alpha and the factor of c, 1 to add into it
    // and 0 to overwrite it. They are used instead of the two above, which must agree if the host
    // knows them; not with a bias.
    const void *scalars;
};

// One product c = a b of matrices of type `dtype`.
static inline gd_gemm gd_gemm_of(gd_dtype dtype, int64_t M, int64_t N, int64_t K, gd_cuda_matrix c,
                                 gd_cuda_matrix a, gd_cuda_matrix b, bool accumulate)
{
    return {dtype, dtype, M, N, K, c, a, b, 1, 0, 0, 0, 1, accumulate, nullptr, nullptr};
}

static inline gd_cuda_matrix gd_transposed(gd_cuda_matrix x)
{
    return {x.data, x.column, x.row};
}

// Whether x [rows, columns] can be an operand in place: the elements of its rows, or of its
// columns, are adjacent. Any other must be copied first.
bool gd_gemm_takes(gd_cuda_matrix x, int64_t rows, int64_t columns);

// cuBLASLt's workspace for all products of one call, which run one after the other.
struct gd_gemm_workspace {
    void *data;
    size_t bytes;
};

// Makes the workspace at least so large.
static inline gd_status gd_gemm_reserve(const gd_call *call, size_t bytes,
                                        gd_gemm_workspace *workspace)
{
    if (bytes <= workspace->bytes) return GD_OK;
    workspace->data = gd_call_scratch(call, bytes);
    workspace->bytes = workspace->data ? bytes : 0;
    return gd_error_status(call->context);
}

// Queues the product. `workspace` is {} before the first of a call.
gd_status gd_gemm_cuda(const gd_call *call, const gd_gemm &product, gd_gemm_workspace *workspace);

#endif
