/* gemm.h - the general matrix product: c (+)= a b on REAL, in parallel.
 *
 * Matrices are windows with two strides, so that a transposed one is the same memory with its
 * strides exchanged, and no kernel has a flag for it.
 */
#ifndef GRADUS_GEMM_H
#define GRADUS_GEMM_H

#include "kernel.h"
#include "vector.h"

/* Element (i, j) at data[i * row + j * column]; any strides. */
typedef struct gemm_matrix {
    const REAL *data;
    int64_t row, column;
} gemm_matrix;

static inline gemm_matrix gemm_transposed(gemm_matrix x)
{
    return (gemm_matrix){x.data, x.column, x.row};
}

/* The number of threads for a product. Sixteen multiply-adds count as one element
 * (kernel.h); K is bounded so that nothing overflows. */
static inline int gemm_threads(int threads, int64_t M, int64_t N, int64_t K)
{
    return gd_threads_for(threads, M * N / 16 * gd_min64(K, 4096));
}

/* Bytes of temporary memory for the product a [M, K] b [K, N] with this many threads; of a and b
 * only the strides count. */
size_t GD_REAL_NAME(gd_gemm_scratch)(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N, int64_t K,
                                     int threads);

/* c [M, N] = a [M, K] b [K, N], or added into c. The rows of c are packed, c_row apart. The same
 * bits for any number of threads. */
void GD_REAL_NAME(gd_gemm)(REAL *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M,
                           int64_t N, int64_t K, bool accumulate, void *scratch, int threads);

/* ---- By way of CBLAS ---------------------------------------------------------------------- */

/* The products that gemm_cpu.c leaves to BLAS, if there is one (not with GRADUS_BLAS=OFF). */
#ifdef GD_HAVE_BLAS
size_t GD_REAL_NAME(gd_gemm_blas_scratch)(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N,
                                          int64_t K);
void GD_REAL_NAME(gd_gemm_blas)(REAL *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M,
                                int64_t N, int64_t K, bool accumulate, void *scratch, int threads);
#define gemm_blas GD_REAL_NAME(gd_gemm_blas)
#define gemm_blas_scratch GD_REAL_NAME(gd_gemm_blas_scratch)
#else
#define gemm_blas(...) (void)0
#define gemm_blas_scratch(...) 0
#endif

#define gemm GD_REAL_NAME(gd_gemm)
#define gemm_scratch GD_REAL_NAME(gd_gemm_scratch)

/* The temporary memory of the products of one call, which run one after the other; {0} at first. */
typedef struct gemm_memory {
    void *data;
    size_t bytes;
} gemm_memory;

/* gemm with packed rows of c, and this memory. */
static inline gd_status gemm_of_call(const gd_call *call, REAL *c, gemm_matrix a, gemm_matrix b,
                                     int64_t M, int64_t N, int64_t K, bool accumulate,
                                     gemm_memory *memory)
{
    const int threads = gemm_threads(call->threads, M, N, K);
    const size_t bytes = gemm_scratch(a, b, M, N, K, threads);
    if (!memory->data || bytes > memory->bytes)
        *memory = (gemm_memory){gd_call_scratch(call, bytes), bytes};
    if (!memory->data) return gd_error_status(call->context);
    gemm(c, N, a, b, M, N, K, accumulate, memory->data, threads);
    return GD_OK;
}

#endif
