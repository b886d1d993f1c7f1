/* test_cuda_matmul.c - large float32 products on a GPU: as accurate as float32, or as TF32,
 * whatever computes them, and the same in every run. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu.h"

static gd_context *gpu;

static void set_up(void)
{
    gpu = gpu_context();
}

static void tear_down(void)
{
    ck_assert_no_error(gpu);
    gd_context_free(gpu);
}

/* [rows, columns], or with B > 1 [B, rows, columns]: normal numbers, or their sizes. */
static gd_tensor *numbers(int64_t B, int64_t rows, int64_t columns, bool positive)
{
    gd_tensor *x = B > 1 ? gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(B, rows, columns))
                         : gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(rows, columns));
    gd_random_normal(x, 0, 1);
    if (positive) gd_tensor_copy(x, gd_abs(x));
    return x;
}

static double *values_of(gd_tensor *x)
{
    double *v = malloc((size_t)gd_tensor_count(x) * sizeof *v);
    gd_tensor_read_f64(x, v, gd_tensor_count(x));
    ck_assert_no_error(gpu);
    return v;
}

/* a b in float64, or |a| |b|. */
static double *exact(gd_tensor *a, gd_tensor *b, bool ta, bool tb, bool sizes)
{
    gd_tensor *x = gd_cast(a, GD_FLOAT64), *y = gd_cast(b, GD_FLOAT64);
    return values_of(gd_matmul_with(sizes ? gd_abs(x) : x, sizes ? gd_abs(y) : y, ta, tb));
}

/* An error of float32 in sums of this kind is a few of these; one of TF32 is hundreds. cuBLASLt,
 * which computes batches, adds the terms one by one: where all are positive, the error grows. */
static const double unit = 0x1p-24;
enum { ERRORS = 16, ERRORS_OF_POSITIVE_BATCHES = 64 };

typedef struct factor {
    gd_tensor *t;
    bool transposed;
} factor;

/* c = l r: every element within `most` units of |l| |r|. */
static void assert_product(gd_tensor *c, factor l, factor r, double most, const char *what)
{
    gd_tensor *a = l.t, *b = r.t;
    const bool ta = l.transposed, tb = r.transposed;
    double *got = values_of(c), *want = exact(a, b, ta, tb, false);
    double *size = exact(a, b, ta, tb, true);
    for (int64_t i = 0; i < gd_tensor_count(c); i++) {
        const double error = fabs(got[i] - want[i]) / (size[i] * unit);
        ck_assert_msg(error <= most, "%s: element %lld is off by %g units", what, (long long)i,
                      error);
    }
    free(got), free(want), free(size);
}

static const struct {
    int64_t B, M, N, K;
} all_sizes[] = {
    {1, 512, 512, 1024},  {1, 520, 516, 1036}, {1, 1001, 516, 1000},
    {1, 516, 1001, 1000}, {1, 512, 512, 1025}, {1, 64, 64, 131072},
    {1, 256, 320, 16384}, {8, 256, 260, 520},  {1, 4096, 1024, 64},
};

TEST_CASE("products", set_up, tear_down)

/* Any layout, odd sizes, rows that are not aligned, long sums, batches. */
TEST(products_are_those_of_float32)
{
    for (size_t n = 0; n < sizeof all_sizes / sizeof *all_sizes; n++)
        for (int way = 0; way < 8; way++) {
            if (test_brief() && way != (int)n % 8) continue;
            const bool ta = way & 1, tb = way & 2, positive = way & 4;
            const int64_t B = all_sizes[n].B, M = all_sizes[n].M, N = all_sizes[n].N;
            const int64_t K = all_sizes[n].K;
            gd_tensor *a = numbers(B, ta ? K : M, ta ? M : K, positive);
            gd_tensor *b = numbers(B, tb ? N : K, tb ? K : N, positive);
            gd_tensor *c = gd_matmul_with(a, b, ta, tb), *again = gd_matmul_with(a, b, ta, tb);
            char what[96];
            snprintf(what, sizeof what, "size %zu%s%s%s", n, ta ? ", a^T" : "", tb ? ", b^T" : "",
                     positive ? ", positive" : "");
            assert_product(c, (factor){a, ta}, (factor){b, tb},
                           B > 1 && positive ? ERRORS_OF_POSITIVE_BATCHES : ERRORS, what);
            double *first = values_of(c), *second = values_of(again);
            ck_assert_msg(!memcmp(first, second, (size_t)gd_tensor_count(c) * sizeof *first),
                          "%s: differs from run to run", what);
            free(first), free(second);
            gd_step_end(gpu);
            gd_tensor_free(a), gd_tensor_free(b);
        }
}

/* Joins two matrices of as many columns. */
static gd_tensor *rows_of(gd_tensor *a, gd_tensor *b)
{
    return gd_concat((gd_tensor *[]){a, b}, 2, 0);
}

/* y = x w^T + bias, and gradients that are added: dw = dy1^T x1 + dy2^T x2. */
TEST(a_linear_layer_and_its_gradients)
{
    enum { M = 2100, K = 260, N = 516 };
    gd_tensor *x[2], *dy[2], *y[2], *w = numbers(1, N, K, false);
    gd_tensor *bias = gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(N));
    gd_random_normal(bias, 0, 1);
    gd_tensor_set_requires_grad(w, true);
    for (int i = 0; i < 2; i++) {
        x[i] = numbers(1, M, K, false), dy[i] = numbers(1, M, N, false);
        gd_tensor_set_requires_grad(x[i], true);
        y[i] = gd_keep(gd_linear(x[i], w, bias));
    }
    gd_backward_from(y, 2, &(gd_backward_options){.cotangents = dy});
    ck_assert_no_error(gpu);
    assert_product(gd_sub(y[0], bias), (factor){x[0], false}, (factor){w, true}, ERRORS, "y");
    assert_product(gd_grad(x[0]), (factor){dy[0], false}, (factor){w, false}, ERRORS, "dx");
    assert_product(gd_grad(w), (factor){rows_of(dy[0], dy[1]), true},
                   (factor){rows_of(x[0], x[1]), false}, ERRORS, "dw");
}

/* With TF32: dx = dy w where w is transposed first, and where it is not. Both factors are rounded
 * to 11 bits. */
TEST(gradients_with_tf32)
{
    static const int64_t sizes[][3] = {{4096, 512, 520}, {4096, 512, 518}, {4000, 512, 520}};
    gd_context_set_tf32(gpu, true);
    for (int i = 0; i < 3; i++) {
        gd_tensor *x = numbers(1, sizes[i][0], sizes[i][1], false);
        gd_tensor *w = numbers(1, sizes[i][2], sizes[i][1], false);
        gd_tensor *dy = numbers(1, sizes[i][0], sizes[i][2], false);
        gd_tensor_set_requires_grad(x, true);
        gd_tensor *y = gd_keep(gd_linear(x, w, NULL));
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
        ck_assert_no_error(gpu);
        assert_product(gd_grad(x), (factor){dy, false}, (factor){w, false}, 0x1p-10 / unit,
                       "dx with TF32");
        gd_step_end(gpu);
        gd_tensor_free(x), gd_tensor_free(w), gd_tensor_free(dy);
    }
}

static int class_of(double x)
{
    return isnan(x) ? 2 : isinf(x) ? (x > 0 ? 1 : -1) : 0;
}

/* Run alone by scripts/gpu-check: without cuBLAS. */
TEST_CASE("special values", set_up, tear_down)

/* Infinities and NaN appear where float32 has them, and nowhere else; the largest numbers do not
 * overflow early, and the smallest are not lost. */
TEST(special_values)
{
    enum { M = 512, N = 516, K = 1024 };
    static float a[M * K], b[N * K];
    uint64_t state = 1;
    for (int i = 0; i < M * K + N * K; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float *x = i < M * K ? &a[i] : &b[i - M * K];
        *x = (float)(int64_t)(state >> 33) * 0x1p-31f - 0.5f;
    }
    for (int n = 0; n < N; n++) { /* exact factors, whose low parts are 0 */
        b[n * K + 0] = n % 3 ? 1 : -1;
        b[n * K + 1] = n % 2 ? 0.5f : 2;
        b[n * K + 2] = 0;
    }
    a[1 * K + 0] = INFINITY;
    a[2 * K + 0] = -INFINITY;
    a[3 * K + 0] = NAN;
    a[4 * K + 1] = FLT_MAX;  /* times 2: infinite */
    a[5 * K + 2] = INFINITY; /* times 0: NaN */
    a[6 * K + 0] = INFINITY, a[6 * K + 3] = -INFINITY;
    b[7 * K + 5] = INFINITY;
    for (int k = 0; k < K; k++) {
        a[7 * K + k] *= 0x1p-110f;
        a[8 * K + k] *= 0x1p-136f; /* below the smallest normal number */
    }
    const uint32_t low = 0x7f800001u; /* a NaN that is infinite without its last bits */
    memcpy(&a[0 * K + 9], &low, sizeof low);

    gd_tensor *ta = gd_tensor_from(gpu, GD_FLOAT32, GD_SHAPE(M, K), a);
    gd_tensor *tb = gd_tensor_from(gpu, GD_FLOAT32, GD_SHAPE(N, K), b);
    double *got = values_of(gd_matmul_with(ta, tb, false, true));
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double want = 0, size = 0;
            for (int k = 0; k < K; k++) {
                want += (double)a[m * K + k] * b[n * K + k];
                size += fabs((double)a[m * K + k] * b[n * K + k]);
            }
            if (fabs(want) > FLT_MAX) want = copysign(INFINITY, want);
            const double c = got[m * N + n];
            ck_assert_msg(class_of(c) == class_of(want), "[%d, %d] is %g, wanted %g", m, n, c,
                          want);
            if (class_of(want)) continue;
            /* A low part below 2^-136 is lost: an error of as much, times b. */
            const double most = ERRORS * unit * size + (m == 7 || m == 8 ? K * 0x1p-138 : 0);
            ck_assert_msg(fabs(c - want) <= most, "[%d, %d] is %g, wanted %g", m, n, c, want);
        }
    free(got);
}

CHECK_MAIN_GPU(false, "float32 products on the GPU", NULL, NULL)
