/* test.c - matmul and linear against their plain twins, and the matrix product below them, against
 * sums in double, at every edge of its tiles. */
#include "each_context.h"
#include "twin.h"

#include "matmul/gemm.h"
#include "matmul/matmul.h"

TWIN(matmul)
TWIN(linear)

/* ---- The product itself ------------------------------------------------------------------- */

typedef void product(float *c, int64_t c_row, gemm_matrix a, gemm_matrix b, int64_t M, int64_t N,
                     int64_t K, bool accumulate, void *scratch, int threads);
typedef size_t scratch_size(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N, int64_t K,
                            int threads);

#ifdef GD_HAVE_BLAS
static size_t blas_scratch(gemm_matrix a, gemm_matrix b, int64_t M, int64_t N, int64_t K,
                           int threads)
{
    (void)threads;
    return gd_gemm_blas_scratch_f32(a, b, M, N, K);
}
#endif

/* A product of a [M, K] and b [K, N], laid out by strides as the bits of `layout` say. */
typedef struct product_case {
    product *multiply;
    scratch_size *bytes;
    int64_t M, N, K;
    int layout, threads;
    bool accumulate;
} product_case;

/* Its c, against a sum in double; to be freed. */
static float *run_product(product_case p)
{
    const int64_t M = p.M, N = p.N, K = p.K;
    const int layout = p.layout;
    uint64_t seed = (uint64_t)(M * 1000003 + N * 1009 + K);
    int64_t gap = layout & 4 ? 3 : 0; /* rows, or columns, further apart than they are long */
    int64_t a_size = (M + gap) * (K + gap) * 2, b_size = (K + gap) * (N + gap) * 2;
    float *a = malloc((size_t)(a_size + 1) * sizeof *a),
          *b = malloc((size_t)(b_size + 1) * sizeof *b);
    for (int64_t i = 0; i < a_size; i++) a[i] = (float)random_in(&seed, -1, 1);
    for (int64_t i = 0; i < b_size; i++) b[i] = (float)random_in(&seed, -1, 1);
    gemm_matrix x = {a, K + gap, 1}, y = {b, N + gap, 1};
    if (layout & 1) x = (gemm_matrix){a, 1, M + gap};
    if (layout & 2) y = (gemm_matrix){b, 1, K + gap};
    if (layout & 8) x = (gemm_matrix){a, 2 * K, 2}, y = (gemm_matrix){b, 2 * N, 2};
    int64_t c_row = N + gap;
    float *c = malloc((size_t)(M * c_row + 1) * sizeof *c);
    double *want = malloc((size_t)(M * c_row + 1) * sizeof *want);
    for (int64_t i = 0; i < M * c_row; i++)
        c[i] = p.accumulate ? (float)random_in(&seed, -1, 1) : NAN;
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < c_row; j++) {
            double sum = p.accumulate || j >= N ? (double)c[i * c_row + j] : 0;
            for (int64_t k = 0; j < N && k < K; k++) {
                sum += (double)x.data[i * x.row + k * x.column] *
                       (double)y.data[k * y.row + j * y.column];
            }
            want[i * c_row + j] = sum;
        }
    }
    void *scratch = malloc(p.bytes(x, y, M, N, K, p.threads) + 1);
    p.multiply(c, c_row, x, y, M, N, K, p.accumulate, scratch, p.threads);
    for (int64_t i = 0; i < M * c_row; i++) {
        double error = fabs((double)c[i] - want[i]);
        if ((isnan(c[i]) && isnan(want[i])) || error <= 1e-6 * sqrt((double)K + 1)) continue;
        /* Each assertion is a message to another process, which takes longer than an element. */
        ck_abort_msg("M %d N %d K %d layout %d: c[%d] is %g, wanted %g", (int)M, (int)N, (int)K,
                     layout, (int)i, (double)c[i], want[i]);
    }
    free(a), free(b), free(want), free(scratch);
    return c;
}

/* All sizes around those of a tile, all layouts, added or written. */
TEST(product_at_every_edge)
{
    const int64_t rows[] = {1, 2, 3, 5, 7, 8, 9, 16, 23},
                  columns[] = {1, 2, 15, 16, 17, 31, 33, 47, 48, 49, 65, 97};
    const int64_t inner[] = {0, 1, 2, 9, 64, 129};
    int layout = 0;
    for (size_t m = 0; m < sizeof rows / sizeof *rows; m++) {
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
            for (size_t k = 0; k < sizeof inner / sizeof *inner; k++) {
                layout = (layout + 1) % 12;
                int64_t M = rows[m], N = columns[n], K = inner[k];
                free(run_product((product_case){gd_gemm_f32, gd_gemm_scratch_f32, M, N, K, layout,
                                                1, (m + n + k) % 2 == 0}));
            }
        }
    }
}

/* Sizes that cross every block: rows, packed columns, terms. Those below 64 rows or columns are
 * computed by tiles on every machine. */
TEST(product_of_larger_sizes)
{
    const int64_t sizes[][3] = {{70, 100, 600},  {300, 65, 130},  {9, 700, 520},
                                {65, 128, 1100}, {130, 1030, 40}, {300, 63, 130},
                                {63, 530, 600},  {96, 64, 257},   {1030, 63, 1100}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t M = sizes[i][0], N = sizes[i][1], K = sizes[i][2];
        for (int layout = 0; layout < 12; layout += 1 + (int)i % 5) {
            free(run_product(
                (product_case){gd_gemm_f32, gd_gemm_scratch_f32, M, N, K, layout, 2, layout % 2}));
        }
    }
}

TEST(product_has_the_same_bits_for_any_number_of_threads)
{
    const int64_t sizes[][3] = {{1, 1, 1},      {5, 300, 70},   {65, 128, 768},
                                {200, 65, 129}, {33, 97, 1500}, {9, 40, 5000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t M = sizes[i][0], N = sizes[i][1], K = sizes[i][2];
        for (int layout = 0; layout < 4; layout++) {
            float *one = run_product(
                (product_case){gd_gemm_f32, gd_gemm_scratch_f32, M, N, K, layout, 1, true});
            for (int threads = 2; threads <= 7; threads += 1 + threads / 3) {
                float *many = run_product((product_case){gd_gemm_f32, gd_gemm_scratch_f32, M, N, K,
                                                         layout, threads, true});
                ck_assert_int_eq(memcmp(one, many, (size_t)(M * N) * sizeof *one), 0);
                free(many);
            }
            free(one);
        }
    }
}

#if !defined(GD_HAVE_BLAS) || defined(__AVX2__) /* where it is not BLAS's */
/* Of up to 128 terms, every element is one chain of multiply-adds in order: so two processors give
 * the same bits if both fuse a multiplication and an addition, however wide their vectors are.
 * Whether they do is the compiler's choice, but the same for all elements. */
TEST(product_is_a_chain_of_multiply_adds)
{
    enum { M = 23, N = 47, K = 128 };
    static float a[M * K], b[K * N], c[M * N];
    uint64_t seed = 1;
    int as_fused = 0, as_rounded = 0;
    for (int i = 0; i < M * K; i++) a[i] = (float)random_in(&seed, -1, 1);
    for (int i = 0; i < K * N; i++) b[i] = (float)random_in(&seed, -1, 1);
    for (int layout = 0; layout < 4; layout++) {
        gemm_matrix x = layout & 1 ? (gemm_matrix){a, 1, M} : (gemm_matrix){a, K, 1};
        gemm_matrix y = layout & 2 ? (gemm_matrix){b, 1, K} : (gemm_matrix){b, N, 1};
        void *scratch = malloc(gd_gemm_scratch_f32(x, y, M, N, K, 1) + 1);
        gd_gemm_f32(c, N, x, y, M, N, K, false, scratch, 1);
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < N; j++) {
                float fused = 0, rounded = 0;
                for (int k = 0; k < K; k++) {
                    const float p = x.data[i * x.row + k * x.column];
                    const float q = y.data[k * y.row + j * y.column];
                    const volatile float product = p * q;
                    fused = fmaf(p, q, fused);
                    rounded += product;
                }
                as_fused += memcmp(&c[i * N + j], &fused, sizeof fused) == 0;
                as_rounded += memcmp(&c[i * N + j], &rounded, sizeof rounded) == 0;
            }
        }
        free(scratch);
    }
    ck_assert_msg(
        as_fused == 4 * M * N || as_rounded == 4 * M * N,
        "of %d elements %d are fused chains and %d are chains of two roundings, wanted all "
        "of one kind",
        4 * M * N, as_fused, as_rounded);
}
#endif

/* Factors of very different sizes: the rms error in units of 2^-24 of the norm of the terms. */
TEST(product_has_the_accuracy_of_float32)
{
    enum { M = 96, N = 80, K = 256 };
    for (int layout = 0; layout < 4; layout++) {
        uint64_t seed = 12;
        float *a = malloc(M * K * sizeof *a), *b = malloc(K * N * sizeof *b);
        float *c = malloc(M * N * sizeof *c);
        for (int i = 0; i < M * K; i++)
            a[i] = (float)ldexp(random_in(&seed, -1, 1), (int)random_size(&seed, -30, 30));
        for (int i = 0; i < K * N; i++)
            b[i] = (float)ldexp(random_in(&seed, -1, 1), (int)random_size(&seed, -30, 30));
        gemm_matrix x = layout & 1 ? (gemm_matrix){a, 1, M} : (gemm_matrix){a, K, 1};
        gemm_matrix y = layout & 2 ? (gemm_matrix){b, 1, K} : (gemm_matrix){b, N, 1};
        void *scratch = malloc(gd_gemm_scratch_f32(x, y, M, N, K, 1) + 1);
        gd_gemm_f32(c, N, x, y, M, N, K, false, scratch, 1);
        double errors = 0;
        for (int i = 0; i < M * N; i++) {
            double sum = 0, squares = 0;
            for (int k = 0; k < K; k++) {
                double term = (double)x.data[i / N * x.row + k * x.column] *
                              (double)y.data[k * y.row + i % N * y.column];
                sum += term, squares += term * term;
            }
            double error = ((double)c[i] - sum) / ldexp(sqrt(squares), -24);
            errors += error * error;
        }
        ck_assert_double_lt(sqrt(errors / (M * N)), 5);
        free(a), free(b), free(c), free(scratch);
    }
}

/* Each c is NaN, infinite or finite where a float32 sum is, also where it is added to something,
 * and has the same bits for any number of threads. */
TEST(product_keeps_infinities_apart)
{
    enum { M = 70, N = 66, K = 300 };
    for (int layout = 0; layout < 8; layout++) {
        bool accumulate = layout & 4;
        uint64_t seed = 13;
        float *a = malloc(M * K * sizeof *a), *b = malloc(K * N * sizeof *b);
        float *c = malloc(M * N * sizeof *c), *again = malloc(M * N * sizeof *again);
        for (int i = 0; i < M * K; i++) a[i] = (float)random_in(&seed, 0.5, 1);
        for (int i = 0; i < K * N; i++) b[i] = (float)random_in(&seed, 0.5, 1);
        for (int i = 0; i < M * N; i++) c[i] = again[i] = accumulate ? 1 : NAN;
        gemm_matrix x = layout & 1 ? (gemm_matrix){a, 1, M} : (gemm_matrix){a, K, 1};
        gemm_matrix y = layout & 2 ? (gemm_matrix){b, 1, K} : (gemm_matrix){b, N, 1};
        a[3 * x.row + 290 * x.column] = INFINITY;
        a[40 * x.row + 7 * x.column] = -INFINITY;
        a[69 * x.row + 100 * x.column] = NAN;
        a[50 * x.row] = FLT_MAX;         /* which rounds to a bfloat16 infinity */
        b[5 * y.column + 7 * y.row] = 0; /* times -inf: NaN */
        b[65 * y.column + 290 * y.row] = -INFINITY;
        b[64 * y.column] = 0x1p-100f;
        b[33 * y.column] = 2; /* times FLT_MAX: infinite */
        void *scratch = malloc(gd_gemm_scratch_f32(x, y, M, N, K, 3) + 1);
        gd_gemm_f32(c, N, x, y, M, N, K, accumulate, scratch, 1);
        gd_gemm_f32(again, N, x, y, M, N, K, accumulate, scratch, 3);
        ck_assert_int_eq(memcmp(c, again, M * N * sizeof *c), 0);
        for (int i = 0; i < M * N; i++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += x.data[i / N * x.row + k * x.column] * y.data[k * y.row + i % N * y.column];
            bool same = isnan(sum) ? isnan(c[i]) : isinf(sum) ? c[i] == sum : isfinite(c[i]);
            ck_assert_msg(same, "layout %d: c[%d, %d] is %g, wanted %g", layout, i / N, i % N,
                          (double)c[i], (double)sum);
        }
        free(a), free(b), free(c), free(again), free(scratch);
    }
}

#ifdef GD_HAVE_BLAS
TEST(product_by_blas)
{
    const int64_t sizes[][3] = {{1, 1, 1},      {7, 9, 11},  {65, 128, 70},
                                {200, 530, 33}, {400, 3, 5}, {3, 2, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t M = sizes[i][0], N = sizes[i][1], K = sizes[i][2];
        for (int layout = 0; layout < 12; layout++) {
            float *one = run_product(
                (product_case){gd_gemm_blas_f32, blas_scratch, M, N, K, layout, 1, layout % 2});
            float *two = run_product(
                (product_case){gd_gemm_blas_f32, blas_scratch, M, N, K, layout, 2, layout % 2});
            int64_t row = N + (layout & 4 ? 3 : 0);
            ck_assert_int_eq(memcmp(one, two, (size_t)(M * row) * sizeof *one), 0);
            free(one), free(two);
        }
    }
}
#endif

/* ---- matmul ------------------------------------------------------------------------------- */

typedef struct matrix_stack {
    int ndim;
    int64_t shape[GD_MAX_DIMS];
    bool transpose;
} matrix_stack;

/* The shape of op(a) op(b), whose leading dimensions are broadcast. */
static shape product_shape(const matrix_stack *a, const matrix_stack *b)
{
    shape s = {a->ndim > b->ndim ? a->ndim : b->ndim, {0}};
    for (int d = 0; d < s.ndim - 2; d++) {
        const int i = d - s.ndim + a->ndim, j = d - s.ndim + b->ndim;
        s.dim[d] = i < 0 || (j >= 0 && a->shape[i] == 1) ? b->shape[j] : a->shape[i];
    }
    s.dim[s.ndim - 2] = a->shape[a->ndim - (a->transpose ? 1 : 2)];
    s.dim[s.ndim - 1] = b->shape[b->ndim - (b->transpose ? 2 : 1)];
    return s;
}

/* Checks c = op(a) op(b) and both gradients for one set of shapes. */
static void check_matmul(int threads, gd_dtype dtype, matrix_stack sa, matrix_stack sb, bool views,
                         uint64_t *seed)
{
    gd_context *ctx = test_context(threads);
    gd_tensor *a = random_leaf(ctx, dtype, sa.ndim, sa.shape, -1, 1, seed),
              *b = random_leaf(ctx, dtype, sb.ndim, sb.shape, -1, 1, seed);
    gd_tensor *x = a, *y = b;
    matrix_stack shown_a = sa, shown_b = sb;
    if (views) { /* the same matrices by way of transposed views */
        x = gd_transpose(a, -1, -2), y = gd_transpose(b, -1, -2);
        shown_a.transpose = !sa.transpose, shown_b.transpose = !sb.transpose;
    }
    const matmul_args args = {shown_a.transpose, shown_b.transpose};
    gd_tensor *const in[] = {x, y};
    assert_twin(matmul_twin(), in, 2, &args, 3 * tolerance_of(dtype), seed);
    assert_called(gd_matmul_with(x, y, shown_a.transpose, shown_b.transpose),
                  product_shape(&sa, &sb), "matmul", in, 2, &args);
    gd_context_free(ctx);
}

TEST(matmul_of_two_matrices)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    uint64_t seed = 5;
    for (int i = 0; i < 64; i++) {
        int64_t M = random_size(&seed, 1, 40), N = random_size(&seed, 1, 60),
                K = random_size(&seed, 1, 80);
        bool ta = i & 1, tb = i & 2;
        matrix_stack a = {2, {ta ? K : M, ta ? M : K}, ta}, b = {2, {tb ? N : K, tb ? K : N}, tb};
        check_matmul(1 + i % 3, dtypes[i / 4 % 4], a, b, i & 16, &seed);
    }
}

TEST(matmul_broadcasts_the_leading_dimensions)
{
    const matrix_stack pairs[][2] = {
        {{3, {4, 3, 5}, false}, {3, {4, 5, 6}, false}},
        {{4, {2, 3, 4, 5}, false}, {2, {5, 6}, false}},
        {{4, {2, 3, 5, 4}, true}, {2, {6, 5}, true}},
        {{2, {4, 5}, false}, {4, {2, 3, 5, 6}, false}},
        {{4, {3, 1, 2, 5}, false}, {4, {1, 4, 3, 5}, true}},
        {{5, {2, 1, 3, 2, 7}, false}, {4, {4, 1, 7, 3}, false}},
        {{3, {1, 4, 5}, false}, {3, {7, 5, 2}, false}},
        {{3, {7, 4, 5}, false}, {3, {1, 5, 2}, false}},
        {{4, {1, 3, 4, 5}, false}, {4, {1, 3, 5, 6}, false}}, /* one sequence, three heads */
        {{5, {2, 1, 3, 4, 5}, false}, {5, {2, 1, 3, 5, 6}, false}},
        {{8, {1, 2, 1, 2, 1, 2, 3, 2}, false}, {8, {2, 1, 2, 1, 2, 1, 2, 3}, false}},
    };
    uint64_t seed = 6;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int t = 0; t < 8; t++) {
            check_matmul(1 + (t & 1), t & 2 ? GD_FLOAT32 : GD_FLOAT64, pairs[i][0], pairs[i][1],
                         t & 4, &seed);
        }
    }
}

TEST(matmul_of_nothing)
{
    uint64_t seed = 7;
    const matrix_stack pairs[][2] = {
        {{2, {0, 5}, false}, {2, {5, 3}, false}},
        {{2, {4, 0}, false}, {2, {0, 3}, false}},
        {{2, {4, 5}, false}, {2, {5, 0}, false}},
        {{3, {0, 2, 5}, false}, {2, {5, 3}, false}},
        {{3, {0, 2, 5}, false}, {3, {1, 5, 3}, false}},
        {{3, {2, 2, 0}, false}, {2, {0, 3}, false}},
        {{4, {3, 0, 2, 5}, false}, {3, {1, 5, 3}, false}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        check_matmul(2, GD_FLOAT32, pairs[i][0], pairs[i][1], false, &seed);
    }
}

/* Slices and expanded tensors as inputs. */
TEST(matmul_of_views)
{
    uint64_t seed = 8;
    gd_tensor *a = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(6, 20, 9), -1, 1, &seed);
    gd_tensor *b = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(9, 1), -1, 1, &seed);
    gd_tensor *x = gd_slice(gd_slice(a, 1, 3, 17), 2, 2, 7);         /* [6, 14, 5] */
    gd_tensor *y = gd_slice(gd_expand(b, GD_SHAPE(9, 11)), 0, 4, 9); /* [5, 11] */
    gd_tensor *views = gd_keep(gd_matmul(x, y));
    gd_tensor *copies = gd_keep(gd_matmul(gd_contiguous(x), gd_contiguous(y)));
    ck_assert_no_error(ctx);
    double *want = values_of(copies);
    assert_sums("c", views, want, 1e-6);
    free(want);
}

TEST(matmul_says_what_does_not_fit)
{
    gd_tensor *a = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3)),
              *b = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 5));
    ck_assert_ptr_null(gd_matmul_with(a, b, true, true));
    ck_assert_error(
        ctx, "matmul: a [2, 3] transposed has 2 columns, but b [4, 5] transposed has 5 rows");
}

/* ---- linear ------------------------------------------------------------------------------- */

TEST(linear_is_its_plain_twin)
{
    const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16};
    const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3},     {0, 4, 3},    {4, 3, 0},
                                {4, 0, 0}, {600, 33, 20}, {70, 65, 128}};
    uint64_t seed = 10;
    for (int i = 0; i < 42; i++) {
        gd_dtype dtype = dtypes[i % 3];
        int64_t M = sizes[i / 6][0], N = sizes[i / 6][1], K = sizes[i / 6][2];
        bool with_bias = i / 3 % 2;
        gd_context *ctx = test_context(1 + i % 2);
        gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(M, 1, K), -1, 1, &seed),
                  *w = random_leaf(ctx, dtype, GD_SHAPE(N, K), -1, 1, &seed);
        gd_tensor *bias = with_bias ? random_leaf(ctx, dtype, GD_SHAPE(N), -1, 1, &seed) : NULL;
        gd_tensor *const in[] = {x, w, bias};
        assert_twin(linear_twin(), in, 3, NULL, 3 * tolerance_of(dtype), &seed);
        assert_called(gd_linear(x, w, bias), SHAPE(M, 1, N), "linear", in, 3, NULL);
        gd_context_free(ctx);
    }
}

CHECK_MAIN_WITHIN("matmul", setup, teardown)
