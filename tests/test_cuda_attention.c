/* test_cuda_attention.c - attention in 16 bits on the GPU against the CPU in float64: heads as wide
 * and as long as in training, the ends of tiles, shared key heads, inputs that are views. */
#include "gpu.h"
#include "op_test.h"

typedef struct sizes {
    int64_t B, T, S, H, KV, D, E;
    bool causal;
} sizes;

/* How q, k and v reach the op: as [B, rows, heads, columns], as views of [B, heads, rows, columns],
 * as windows on wider rows (which begin at odd addresses), or of one tensor [B, rows, all heads,
 * columns]. */
enum { PLAIN, BY_HEADS, WINDOWS, TOGETHER, WAYS };

enum { RESULTS = 4 };
static const char *const names[RESULTS] = {"y", "dq", "dk", "dv"};

typedef struct results {
    double *value[RESULTS];
    int64_t count[RESULTS];
} results;

static void free_results(results r)
{
    for (int i = 0; i < RESULTS; i++) free(r.value[i]);
}

/* Numbers that `dtype` has, in a tensor of dtype `stored`. */
static gd_tensor *make(gd_context *ctx, gd_dtype stored, gd_dtype dtype, const int64_t *shape,
                       uint64_t seed)
{
    gd_tensor *t = gd_tensor_create(ctx, stored, 4, shape);
    ck_assert_no_error(ctx);
    int64_t n = gd_tensor_count(t);
    double *value = zeros(n);
    for (int64_t i = 0; i < n; i++) value[i] = rounded(random_in(&seed, -2, 2), dtype);
    gd_tensor_write_f64(t, value, n);
    free(value);
    return t;
}

/* An input that keeps its gradient. */
static gd_tensor *make_input(gd_context *ctx, gd_dtype stored, gd_dtype dtype, int way,
                             const int64_t *shape, uint64_t seed)
{
    int64_t base[4] = {shape[0], shape[1], shape[2], shape[3] + (way == WINDOWS ? 3 : 0)};
    if (way == BY_HEADS) base[1] = shape[2], base[2] = shape[1];
    gd_tensor *t = make(ctx, stored, dtype, base, seed);
    gd_tensor_set_requires_grad(t, true);
    if (way == BY_HEADS) t = gd_transpose(t, 1, 2);
    if (way == WINDOWS) t = gd_slice(t, -1, 1, 1 + shape[3]);
    return gd_retain_grad(t);
}

static results run(gd_context *ctx, gd_dtype stored, gd_dtype dtype, int way, const sizes *z)
{
    const int64_t heads[3] = {z->H, z->KV, z->KV};
    gd_tensor *input[3];
    if (way == TOGETHER) {
        const int64_t shape[4] = {z->B, z->T, z->H + 2 * z->KV, z->D};
        gd_tensor *all = make(ctx, stored, dtype, shape, 5);
        gd_tensor_set_requires_grad(all, true);
        for (int64_t i = 0, from = 0; i < 3; from += heads[i++])
            input[i] = gd_retain_grad(gd_slice(all, 2, from, from + heads[i]));
    } else {
        for (int i = 0; i < 3; i++) {
            const int64_t shape[4] = {z->B, i ? z->S : z->T, heads[i], i == 2 ? z->E : z->D};
            input[i] = make_input(ctx, stored, dtype, way, shape, (uint64_t)i);
        }
    }
    gd_tensor *y = gd_keep(
        gd_attention(input[0], input[1], input[2], &(gd_attention_options){.causal = z->causal}));
    ck_assert_no_error(ctx);
    gd_tensor *dy = make(ctx, stored, dtype, gd_tensor_shape(y), 4);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(ctx);
    const gd_tensor *all[RESULTS] = {y, gd_grad(input[0]), gd_grad(input[1]), gd_grad(input[2])};
    results r;
    for (int i = 0; i < RESULTS; i++) {
        r.value[i] = values_of(all[i]);
        r.count[i] = gd_tensor_count(all[i]);
    }
    gd_step_end(ctx);
    return r;
}

/* In units of dtype at the largest: p and ds are rounded, so errors are some halves of one. */
static void assert_close_to(const results *got, const results *want, gd_dtype dtype,
                            const char *what)
{
    const double unit = 2 * rounding_of(dtype);
    for (int k = 0; k < RESULTS; k++) {
        double largest = 0, most = 0, square = 0, error = 0;
        ck_assert_int_eq(got->count[k], want->count[k]);
        for (int64_t i = 0; i < want->count[k]; i++) {
            const double w = want->value[k][i], off = fabs(got->value[k][i] - w);
            largest = fmax(largest, fabs(w));
            if (!(off <= most)) most = off; /* a NaN stays */
            square += w * w, error += off * off;
        }
        ck_assert_msg(most <= 2 * unit * largest, "%s: %s is off by %.3g of the largest, %.3g",
                      what, names[k], most / largest, largest);
        ck_assert_msg(sqrt(error) <= unit * sqrt(square), "%s: %s is off by %.3g in norm", what,
                      names[k], sqrt(error / square));
    }
}

static const sizes all_sizes[] = {
    {2, 64, 64, 4, 4, 32, 32, true},
    {1, 300, 300, 6, 2, 64, 64, true},
    {1, 129, 129, 2, 1, 64, 64, false},
    {2, 65, 200, 4, 2, 64, 64, true},
    {1, 200, 70, 2, 2, 64, 64, true},
    {2, 1, 150, 3, 3, 64, 64, true},
    {1, 190, 190, 2, 1, 128, 128, true},
    {1, 70, 70, 3, 3, 80, 96, false},
    {1, 77, 77, 4, 2, 48, 24, true},
    {1, 257, 257, 1, 1, 16, 16, true},
    {1, 99, 99, 2, 2, 33, 7, true},
    {1, 40, 40, 2, 2, 136, 136, true}, /* wider than tensor cores take */
};

START_TEST(attention_in_16_bits_is_that_of_the_cpu)
{
    const gd_dtype dtype = _i ? GD_FLOAT16 : GD_BFLOAT16;
    gd_context *gpu = gpu_context();
    gd_context *cpu = test_context(2);
    for (size_t n = 0; n < sizeof all_sizes / sizeof *all_sizes; n++) {
        const sizes *z = &all_sizes[n];
        for (int way = 0; way < WAYS; way++) {
            if (way == TOGETHER && (z->T != z->S || z->D != z->E)) continue;
            char what[96];
            snprintf(what, sizeof what, "%s, sizes %zu, way %d", gd_dtype_name(dtype), n, way);
            results want = run(cpu, GD_FLOAT64, dtype, way, z);
            results got = run(gpu, dtype, dtype, way, z), again = run(gpu, dtype, dtype, way, z);
            assert_close_to(&got, &want, dtype, what);
            for (int k = 0; k < RESULTS; k++)
                ck_assert_msg(
                    !memcmp(got.value[k], again.value[k], (size_t)got.count[k] * sizeof(double)),
                    "%s: %s differs from run to run", what, names[k]);
            free_results(want), free_results(got), free_results(again);
        }
    }
    gd_context_free(gpu);
    gd_context_free(cpu);
}
END_TEST

/* Scores far beyond what 16 bits resolve: the largest takes all the weight; nothing overflows. */
START_TEST(attention_of_huge_scores)
{
    gd_context *gpu = gpu_context();
    const int64_t shape[4] = {1, 150, 2, 64};
    gd_tensor *q = make(gpu, GD_BFLOAT16, GD_BFLOAT16, shape, 1);
    gd_tensor *v = make(gpu, GD_BFLOAT16, GD_BFLOAT16, shape, 2);
    double *large = values_of(q);
    for (int64_t i = 0; i < gd_tensor_count(q); i++) large[i] *= 0x1p33;
    gd_tensor_write_f64(q, large, gd_tensor_count(q));
    gd_tensor_set_requires_grad(q, true);
    gd_tensor_set_requires_grad(v, true);
    gd_tensor *y = gd_keep(gd_attention(q, q, v, &(gd_attention_options){.causal = true}));
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &v});
    ck_assert_no_error(gpu);
    double *vy = values_of(y), *dv = values_of(gd_grad(v));
    for (int64_t i = 0; i < gd_tensor_count(y); i++) {
        ck_assert(fabs(vy[i]) <= 2);
        ck_assert(isfinite(dv[i]));
    }
    free(large), free(vy), free(dv);
    gd_context_free(gpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention on the GPU");
    TCase *tcase = tcase_create("in 16 bits");
    tcase_add_loop_test(tcase, attention_in_16_bits_is_that_of_the_cpu, 0, 2);
    tcase_add_test(tcase, attention_of_huge_scores);
    suite_add_tcase(suite, tcase);
    return check_main_gpu(suite);
}
