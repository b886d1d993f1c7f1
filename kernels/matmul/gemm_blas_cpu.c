/* gemm_blas_cpu.c - the same product by CBLAS: c = a b + beta c, beta = 1 to add into c.
 *
 * If a BLAS divided a product among its threads, the rounding would depend on them. So it runs on
 * one thread, and c is divided into tiles of a fixed size for our threads. With OpenBLAS that takes
 * openblas_set_num_threads(1), which holds for the whole process.
 */
#include "gemm.h"

#include "platform/memory.h"

#ifdef GD_HAVE_BLAS

#include <cblas.h>
#include <limits.h>
#include <stdatomic.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* How c [M, N] is divided: into tiles [rows, columns]. */
typedef struct blas_tiles {
    int64_t rows, columns, down, across;
} blas_tiles;

/* Every tile is a call that packs its own part of a and b, so few large ones cost least; but there
 * should be at least two, and two more for each PAIR_WORK multiply-adds, or threads would be idle.
 * Rows are divided first, to not less than ROWS_LEAST. Only M, N and K count. */
static blas_tiles cut_tiles(int64_t M, int64_t N, int64_t K)
{
    const int64_t PAIR_WORK = 1 << 27, PARALLEL_WORK = 1 << 19, ROWS_LEAST = 48,
                  COLUMNS_LEAST = 128, UNIT = 16;
    double work = (double)M * (double)N * (double)K;
    int64_t wanted = work < (double)PARALLEL_WORK ? 1 : 2 + 2 * (int64_t)(work / (double)PAIR_WORK);
    int64_t down = gd_max64(1, gd_min64(wanted, M / ROWS_LEAST));
    int64_t across = gd_max64(1, gd_min64(gd_divide_up(wanted, down), N / COLUMNS_LEAST));
    blas_tiles t = {.rows = gd_round_up(gd_divide_up(M, down), UNIT),
                    .columns = gd_round_up(gd_divide_up(N, across), UNIT)};
    t.down = gd_divide_up(M, t.rows);
    t.across = gd_divide_up(N, t.columns);
    return t;
}

static void blas_on_one_thread(void)
{
#ifdef GD_HAVE_OPENBLAS
    gd_os_yield_address_space(); /* that the context kept for its buffers */
    static atomic_bool done;
    /* In the OpenMP variant that call would change the caller's OpenMP instead; see below. */
    if (openblas_get_parallel() != OPENBLAS_OPENMP && !atomic_exchange(&done, true)) {
        openblas_set_num_threads(1);
    }
#endif
}

/* A matrix for BLAS: the elements of a row, or of a column, are adjacent. */
typedef struct blas_matrix {
    const REAL *data;
    CBLAS_TRANSPOSE transpose;
    int64_t stride;
} blas_matrix;

static bool has_rows(gemm_matrix x, int64_t columns)
{
    return x.column == 1 && x.row >= columns && x.row <= INT_MAX;
}

/* Elements of the copy of x [rows, columns] that BLAS needs; 0 if it takes x itself. */
static int64_t copied_elements(gemm_matrix x, int64_t rows, int64_t columns)
{
    return has_rows(x, columns) || has_rows(gemm_transposed(x), rows) ? 0 : rows * columns;
}

/* x [rows, columns] in place, or else copied to *copy, which is advanced. */
static blas_matrix blas_operand(gemm_matrix x, int64_t rows, int64_t columns, REAL **copy)
{
    if (has_rows(x, columns)) return (blas_matrix){x.data, CblasNoTrans, x.row};
    if (has_rows(gemm_transposed(x), rows)) return (blas_matrix){x.data, CblasTrans, x.column};
    REAL *to = *copy;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            to[i * columns + j] = x.data[i * x.row + j * x.column];
        }
    }
    *copy += rows * columns;
    return (blas_matrix){to, CblasNoTrans, columns};
}

/* x from row i and column j on. */
static const REAL *blas_part(const blas_matrix *x, int64_t i, int64_t j)
{
    return x->transpose == CblasTrans ? x->data + i + j * x->stride : x->data + i * x->stride + j;
}

size_t GD_REAL_NAME(gd_gemm_blas_scratch)(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N,
                                          int64_t K)
{
    return (size_t)(copied_elements(a, M, K) + copied_elements(b, K, N)) * sizeof(REAL);
}

void GD_REAL_NAME(gd_gemm_blas)(REAL *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M,
                                int64_t N, int64_t K, bool accumulate, void *scratch, int threads)
{
    if (M == 0 || N == 0) return;
    (void)threads; /* one, without OpenMP */
    REAL *copy = scratch, beta = accumulate;
    blas_matrix x = blas_operand(a, M, K, &copy), y = blas_operand(b, K, N, &copy);
    blas_tiles tiles = cut_tiles(M, N, K);
    blas_on_one_thread();
#pragma omp parallel num_threads(threads)
    {
#ifdef _OPENMP
        /* For each thread of this region only: a BLAS that uses OpenMP must not start more. */
        omp_set_num_threads(1);
#endif
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tiles.down * tiles.across; t++) {
            int64_t i = t / tiles.across * tiles.rows, j = t % tiles.across * tiles.columns;
            int m = (int)gd_min64(tiles.rows, M - i), n = (int)gd_min64(tiles.columns, N - j);
#ifdef GD_REAL_DOUBLE
            cblas_dgemm(
#else
            cblas_sgemm(
#endif
                CblasRowMajor, x.transpose, y.transpose, m, n, (int)K, 1, blas_part(&x, i, 0),
                (int)gd_max64(1, x.stride), blas_part(&y, 0, j), (int)gd_max64(1, y.stride), beta,
                c + i * c_row + j, (int)gd_max64(1, c_row));
        }
    }
}

#endif
