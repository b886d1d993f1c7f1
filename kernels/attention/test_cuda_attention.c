/* test_cuda_attention.c - attention on the GPU against the CPU in float64: sizes of training,
 * partial tiles, shared key heads, inputs that are views, dropout. */
#include "gpu.h"
#include "op_test.h"

typedef struct sizes {
    int64_t B, T, S, H, KV, D, E;
    bool causal;
    double dropout;
} sizes;

/* The layout of q, k and v: [B, rows, heads, columns], views of [B, heads, rows, columns], windows
 * on wider rows (which begin at odd addresses), or views of one tensor [B, rows, all heads,
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

/* Random numbers that are exact in `dtype`, in a tensor of dtype `stored`. */
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

static results run_attention(gd_context *ctx, gd_dtype stored, gd_dtype dtype, int way,
                             const sizes *z)
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
    gd_attention_options options = {.causal = z->causal, .dropout = z->dropout};
    gd_random_set(ctx, (gd_random_state){.seed = 9});
    gd_tensor *y = gd_keep(gd_attention(input[0], input[1], input[2], &options));
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

/* The inputs, p and ds are rounded, so errors are a few half units. In float32 only sums, products
 * (by 2^-21 at most) and exponentials are rounded. */
typedef struct format {
    const char *name;
    gd_dtype dtype;
    bool tf32;
    double unit, in_norm,
        at_most; /* allowed errors, in units: of the norm; of an element, relative to the largest */
} format;

static const format formats[] = {
    {"bfloat16", GD_BFLOAT16, false, 0x1p-8, 1, 2},
    {"float16", GD_FLOAT16, false, 0x1p-11, 1, 2},
    {"float32 as TF32", GD_FLOAT32, true, 0x1p-11, 2, 4},
    {"float32", GD_FLOAT32, false, 0x1p-24, 16, 30},
};

enum { FORMATS = sizeof formats / sizeof *formats };

static void assert_close_to(const results *got, const results *want, const format *format,
                            const char *what)
{
    for (int k = 0; k < RESULTS; k++) {
        double largest = 0, most = 0, square = 0, error = 0;
        ck_assert_int_eq(got->count[k], want->count[k]);
        for (int64_t i = 0; i < want->count[k]; i++) {
            const double w = want->value[k][i], off = fabs(got->value[k][i] - w);
            largest = fmax(largest, fabs(w));
            if (!(off <= most)) most = off; /* keeps a NaN */
            square += w * w, error += off * off;
        }
        ck_assert_msg(most <= format->at_most * format->unit * largest,
                      "%s: %s is off by %.3g of the largest, %.3g", what, names[k], most / largest,
                      largest);
        ck_assert_msg(sqrt(error) <= format->in_norm * format->unit * sqrt(square),
                      "%s: %s is off by %.3g in norm", what, names[k], sqrt(error / square));
    }
}

static const sizes all_sizes[] = {
    {2, 64, 64, 4, 4, 32, 32, true, 0},
    {1, 300, 300, 6, 2, 64, 64, true, 0},
    {1, 129, 129, 2, 1, 64, 64, false, 0},
    {2, 65, 200, 4, 2, 64, 64, true, 0},
    {1, 200, 70, 2, 2, 64, 64, true, 0},
    {2, 1, 150, 3, 3, 64, 64, true, 0},
    {1, 190, 190, 2, 1, 128, 128, true, 0},
    {1, 70, 70, 3, 3, 80, 96, false, 0},
    {1, 77, 77, 4, 2, 48, 24, true, 0},
    {1, 257, 257, 1, 1, 16, 16, true, 0},
    {1, 99, 99, 2, 2, 33, 7, true, 0},
    {1, 140, 140, 2, 1, 256, 256, true, 0},
    {1, 90, 90, 2, 2, 192, 136, true, 0},
    {1, 40, 40, 2, 2, 264, 264, true, 0}, /* wider than the kernels for tensor cores support */
    {2, 150, 150, 4, 2, 64, 64, true, 0.3},
    {1, 60, 75, 2, 1, 32, 32, false, 0.2},
    {1, 140, 140, 2, 2, 128, 128, true, 0.5},
    {1, 40, 70, 2, 1, 256, 200, true, 0.1},
    {1, 40, 40, 1, 1, 264, 264, true, 0.2},
};

LOOP_TEST(attention_is_that_of_the_cpu, FORMATS)
{
    const format *format = &formats[_i];
    const gd_dtype dtype = format->dtype;
    const bool brief = test_brief(); /* under a sanitizer: one way for each size */
    gd_context *gpu =
        watched_context((gd_context_options){.device = GD_CUDA, .seed = 1, .tf32 = format->tf32});
    gd_context *cpu = test_context(2);
    for (size_t n = 0; n < sizeof all_sizes / sizeof *all_sizes; n++) {
        const sizes *z = &all_sizes[n];
        for (int way = 0; way < WAYS; way++) {
            if (brief && way != (int)n % WAYS) continue;
            if (way == TOGETHER && (z->T != z->S || z->D != z->E)) continue;
            char what[96];
            snprintf(what, sizeof what, "%s, sizes %zu, way %d", format->name, n, way);
            results want = run_attention(cpu, GD_FLOAT64, dtype, way, z);
            results got = run_attention(gpu, dtype, dtype, way, z),
                    again = run_attention(gpu, dtype, dtype, way, z);
            assert_close_to(&got, &want, format, what);
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

/* ---- Packed and rotated ------------------------------------------------------------------- */

/* y, and dqkv in its three parts. With `add`, dqkv has a gradient before: the cotangent of
 * qkv / 2. */
static results run_roped(gd_context *ctx, gd_dtype stored, gd_dtype dtype, bool add, const sizes *z)
{
    const int64_t all = z->H + 2 * z->KV, shape[4] = {z->B, z->T, all, z->D};
    gd_tensor *qkv = make(ctx, stored, dtype, shape, 6);
    gd_tensor_set_requires_grad(qkv, true);
    const gd_rope_options rope = {.position = 5};
    const gd_attention_options options = {.causal = z->causal, .dropout = z->dropout};
    gd_random_set(ctx, (gd_random_state){.seed = 9});
    gd_no_grad_begin(ctx);
    double *forward_only = values_of(gd_rope_attention(qkv, z->KV, &rope, &options));
    gd_no_grad_end(ctx);
    gd_random_set(ctx, (gd_random_state){.seed = 9});
    gd_tensor *y[2] = {gd_keep(gd_rope_attention(qkv, z->KV, &rope, &options)), NULL};
    if (add) y[1] = gd_keep(gd_scale(qkv, 0.5)); /* its backward comes first */
    ck_assert_no_error(ctx);
    gd_tensor *dy[2] = {make(ctx, stored, dtype, gd_tensor_shape(y[0]), 4),
                        make(ctx, stored, dtype, shape, 7)};
    gd_backward_from(y, 1 + add, &(gd_backward_options){.cotangents = dy});
    ck_assert_no_error(ctx);
    const int64_t heads[3] = {z->H, z->KV, z->KV};
    results r = {{values_of(y[0])}, {gd_tensor_count(y[0])}};
    ck_assert(!memcmp(forward_only, r.value[0], (size_t)r.count[0] * sizeof(double)));
    free(forward_only);
    for (int64_t i = 0, from = 0; i < 3; from += heads[i++]) {
        gd_tensor *part = gd_slice(gd_grad(qkv), 2, from, from + heads[i]);
        r.value[i + 1] = values_of(part);
        r.count[i + 1] = gd_tensor_count(part);
    }
    gd_step_end(ctx);
    return r;
}

/* Heads that the kernels rotate as they store them, and others. q and k are rounded once more than
 * above, after their rotation. */
LOOP_TEST(rope_attention_is_that_of_the_cpu, FORMATS)
{
    format format = formats[_i];
    format.in_norm *= 2, format.at_most *= 2;
    static const sizes of[] = {
        {2, 64, 64, 4, 4, 32, 32, true, 0},     {1, 77, 77, 4, 2, 32, 32, false, 0.2},
        {1, 300, 300, 6, 2, 64, 64, true, 0},   {2, 150, 150, 4, 2, 64, 64, true, 0.3},
        {1, 190, 190, 2, 1, 128, 128, true, 0}, {2, 65, 65, 3, 3, 128, 128, false, 0},
        {1, 140, 140, 2, 1, 256, 256, true, 0}, {1, 77, 77, 4, 2, 48, 48, true, 0},
        {1, 40, 40, 2, 2, 264, 264, true, 0},
    };
    gd_context *gpu =
        watched_context((gd_context_options){.device = GD_CUDA, .seed = 1, .tf32 = format.tf32});
    gd_context *cpu = test_context(2);
    for (int n = 0; n < 2 * (int)(sizeof of / sizeof *of); n++) {
        char what[96];
        const bool add = n % 2;
        if (test_brief() && add != n / 2 % 2) continue;
        snprintf(what, sizeof what, "rope_attention, %s, sizes %d, add %d", format.name, n / 2,
                 add);
        results want = run_roped(cpu, GD_FLOAT64, format.dtype, add, &of[n / 2]);
        results got = run_roped(gpu, format.dtype, format.dtype, add, &of[n / 2]);
        assert_close_to(&got, &want, &format, what);
        free_results(want), free_results(got);
    }
    gd_context_free(gpu);
    gd_context_free(cpu);
}

/* In float64 attention does not use tensor cores, but must use the same random numbers. */
TEST(attention_in_float64_drops_what_the_cpu_drops)
{
    const sizes z = {2, 75, 90, 4, 2, 20, 12, true, 0.4};
    const format exact = {"float64", GD_FLOAT64, false, 0x1p-53, 200, 1000};
    gd_context *gpu = gpu_context(), *cpu = test_context(2);
    results want = run_attention(cpu, GD_FLOAT64, GD_FLOAT64, PLAIN, &z);
    results got = run_attention(gpu, GD_FLOAT64, GD_FLOAT64, PLAIN, &z);
    assert_close_to(&got, &want, &exact, "float64 with dropout");
    free_results(want), free_results(got);
    gd_context_free(gpu);
    gd_context_free(cpu);
}

/* Scores far beyond the resolution of 16 bits: the largest gets all the weight; nothing
 * overflows. */
LOOP_TEST(attention_of_huge_scores, FORMATS)
{
    const gd_dtype dtype = formats[_i].dtype;
    gd_context *gpu = watched_context(
        (gd_context_options){.device = GD_CUDA, .seed = 1, .tf32 = formats[_i].tf32});
    const int64_t shape[4] = {1, 150, 2, 64};
    gd_tensor *q = make(gpu, dtype, dtype, shape, 1);
    gd_tensor *v = make(gpu, dtype, dtype, shape, 2);
    double *large = values_of(q);
    for (int64_t i = 0; i < gd_tensor_count(q); i++)
        large[i] *= dtype == GD_FLOAT16 ? 0x1p13 : 0x1p33;
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

/* Every score is far below 0, and lse with it: what is past the last key, in its tile, has a score
 * of 0 and must not count. */
LOOP_TEST(attention_of_scores_far_below_zero, FORMATS)
{
    const gd_dtype dtype = formats[_i].dtype;
    gd_context *gpu = watched_context(
        (gd_context_options){.device = GD_CUDA, .seed = 1, .tf32 = formats[_i].tf32});
    const int64_t shape[4] = {1, 70, 1, 64};
    gd_tensor *input[3];
    for (int i = 0; i < 3; i++) {
        input[i] = make(gpu, dtype, dtype, shape, (uint64_t)i);
        if (i < 2) gd_tensor_fill(input[i], i ? -20 : 20);
        gd_tensor_set_requires_grad(input[i], true);
    }
    gd_tensor *y = gd_keep(gd_attention(input[0], input[1], input[2], NULL));
    gd_tensor *dy = make(gpu, dtype, dtype, shape, 3);
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(gpu);
    for (int i = 0; i < 3; i++) {
        double *gradient = values_of(gd_grad(input[i]));
        for (int64_t j = 0; j < gd_tensor_count(input[i]); j++)
            ck_assert_msg(isfinite(gradient[j]), "%s: %s[%lld] is %g", formats[_i].name,
                          names[1 + i], (long long)j, gradient[j]);
        free(gradient);
    }
    gd_context_free(gpu);
}

/* So many heads that the gradients of their scores are stored in several parts: all batches have
 * the same inputs and get the same bits. */
TEST(attention_of_many_heads_in_parts)
{
    enum { BATCHES = 9, TOKENS = 4096, D = 64 };
    gd_context *gpu = gpu_context();
    gd_tensor *input[3], *dy = NULL;
    for (int i = 0; i < 4; i++) {
        const int64_t one[4] = {1, TOKENS, i == 0 || i == 3 ? 2 : 1, D};
        const int64_t all[4] = {BATCHES, TOKENS, one[2], D};
        gd_tensor *part[BATCHES], *t = make(gpu, GD_BFLOAT16, GD_BFLOAT16, one, (uint64_t)i);
        for (int b = 0; b < BATCHES; b++) part[b] = t;
        gd_tensor *repeated = gd_tensor_create(gpu, GD_BFLOAT16, 4, all);
        gd_tensor_copy(repeated, gd_concat(part, BATCHES, 0));
        if (i < 3)
            gd_tensor_set_requires_grad(input[i] = repeated, true);
        else
            dy = repeated;
    }
    gd_tensor *y = gd_keep(gd_attention(input[0], input[1], input[2], NULL));
    gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &dy});
    ck_assert_no_error(gpu);
    for (int i = 0; i < 3; i++) {
        double *gradient = values_of(gd_grad(input[i])), largest = 0;
        const int64_t each = gd_tensor_count(input[i]) / BATCHES;
        for (int64_t j = 0; j < each; j++) largest = fmax(largest, fabs(gradient[j]));
        ck_assert(largest > 0);
        for (int b = 1; b < BATCHES; b++)
            ck_assert_msg(!memcmp(gradient, gradient + b * each, (size_t)each * sizeof *gradient),
                          "%s of batch %d differs", names[1 + i], b);
        free(gradient);
    }
    gd_context_free(gpu);
}

CHECK_MAIN_GPU(false, "attention on the GPU", NULL, NULL)
