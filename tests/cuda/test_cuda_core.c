/* test_cuda_core.c - the core on a GPU: copies, random numbers, optimizers, memory, errors. */
#include <math.h>
#include <string.h>

#include "gpu.h"
#include "core/core.h"
#include "cuda/device_limits.h"
#include "optimizer_kinds.h"

static gd_context *gpu, *cpu;

static void set_up(void)
{
    gpu = gpu_context();
    cpu = gd_context_create(&(gd_context_options){.threads = 1, .seed = 1, .poison = true});
    ck_assert_no_error(gpu);
}

static void tear_down(void)
{
    gd_synchronize(gpu); /* which looks at the margins of memory, if there are any */
    ck_assert_no_error(gpu);
    ck_assert_no_error(cpu);
    gd_context_free(gpu);
    gd_context_free(cpu);
}

/* ---- Copies ------------------------------------------------------------------------------- */

/* Larger than the staging buffers, and not a multiple of any block size. */
TEST(what_goes_in_comes_out)
{
    static const int64_t counts[] = {0, 1, 3, 1000003, 5000017};
    for (int i = 0; i < 5; i++) {
        const int64_t n = counts[i];
        int32_t *in = malloc(((size_t)n + 1) * sizeof *in), *out = malloc(((size_t)n + 1) * 4);
        for (int64_t k = 0; k < n; k++) in[k] = (int32_t)(k * 2654435761);
        memset(out, 0, (size_t)n * sizeof *out);
        gd_tensor *t = gd_tensor_from(gpu, GD_INT32, 1, &n, in);
        gd_tensor_read(t, out, (size_t)n * sizeof *out);
        ck_assert_no_error(gpu);
        ck_assert_int_eq(memcmp(in, out, (size_t)n * sizeof *in), 0);
        gd_tensor_free(t);
        free(in), free(out);
    }
}

/* Random bits as every dtype, converted to every dtype, packed and transposed: same bits as CPU. */
TEST(conversions_are_those_of_the_cpu)
{
    enum { ROWS = 67, COLS = 129, N = ROWS * COLS };
    static unsigned char bits[N * 8], want[N * 8], got[N * 8];
    uint64_t state = 1;
    for (int from = 0; from < GD_DTYPE_COUNT; from++) {
        size_t size = gd_dtype_size((gd_dtype)from);
        for (size_t i = 0; i < N * size; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bits[i] = (unsigned char)(state >> 56);
        }
        for (int to = 0; to < 2 * GD_DTYPE_COUNT; to++) {
            gd_dtype dtype = (gd_dtype)(to / 2);
            gd_context *ctx[2] = {cpu, gpu};
            size_t bytes = N * gd_dtype_size(dtype);
            for (int k = 0; k < 2; k++) {
                gd_tensor *x = gd_tensor_from(ctx[k], (gd_dtype)from, GD_SHAPE(ROWS, COLS), bits);
                gd_tensor *y = to % 2 ? gd_tensor_create(ctx[k], dtype, GD_SHAPE(COLS, ROWS))
                                      : gd_tensor_create(ctx[k], dtype, GD_SHAPE(ROWS, COLS));
                gd_tensor_copy(y, to % 2 ? gd_transpose(x, 0, 1) : x);
                gd_tensor_read(y, k ? got : want, bytes);
                gd_step_end(ctx[k]);
                gd_tensor_free(x), gd_tensor_free(y);
                ck_assert_no_error(ctx[k]);
            }
            for (size_t i = 0, each = gd_dtype_size(dtype); i < bytes; i += each) {
                /* A NaN may have other bits. */
                double a = NAN, b = NAN;
                if (dtype == GD_FLOAT64) memcpy(&a, got + i, 8), memcpy(&b, want + i, 8);
                float c = NAN, d = NAN;
                if (dtype == GD_FLOAT32) memcpy(&c, got + i, 4), memcpy(&d, want + i, 4);
                bool both_nan = (dtype == GD_FLOAT64 && isnan(a) && isnan(b)) ||
                                (dtype == GD_FLOAT32 && isnan(c) && isnan(d));
                if (dtype == GD_BFLOAT16 || dtype == GD_FLOAT16) {
                    uint16_t u, v, most = dtype == GD_FLOAT16 ? 0x7c00 : 0x7f80;
                    memcpy(&u, got + i, 2), memcpy(&v, want + i, 2);
                    both_nan = (u & 0x7fff) > most && (v & 0x7fff) > most;
                }
                ck_assert_msg(both_nan || !memcmp(got + i, want + i, each),
                              "%s to %s%s: element %d", gd_dtype_name((gd_dtype)from),
                              gd_dtype_name(dtype), to % 2 ? ", turned" : "", (int)(i / each));
            }
        }
    }
}

TEST(fill_scale_accumulate_and_sum_of_squares)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    static const int64_t counts[] = {1, 5, 4097, 1048577};
    for (int d = 0; d < 4; d++)
        for (int c = 0; c < 4; c++) {
            const int64_t n = counts[c];
            double *value[2], square[2];
            gd_context *ctx[2] = {cpu, gpu};
            for (int k = 0; k < 2; k++) {
                const gd_services *s = gd_services_of[k ? GD_CUDA : GD_CPU];
                gd_tensor *x = gd_tensor_create(ctx[k], dtypes[d], 1, &n);
                gd_tensor *y = gd_tensor_create(ctx[k], dtypes[d], 1, &n);
                value[k] = malloc((size_t)n * sizeof(double));
                for (int64_t i = 0; i < n; i++) value[k][i] = sin((double)i);
                gd_tensor_write_f64(x, value[k], n);
                gd_tensor_fill(y, 0.7);
                s->accumulate(gd_tensor_data(x), dtypes[d], gd_tensor_data(y), dtypes[d], n,
                              ctx[k]);
                s->scale(gd_tensor_data(x), dtypes[d], 1.3, n, NULL, ctx[k]);
                gd_tensor *sum = gd_tensor_create(ctx[k], GD_FLOAT64, 0, NULL);
                s->sum_squares(gd_tensor_data(sum), gd_tensor_data(x), dtypes[d], n, NULL, ctx[k]);
                square[k] = gd_item(sum);
                gd_tensor_read_f64(x, value[k], n);
                gd_tensor_free(x), gd_tensor_free(y), gd_tensor_free(sum);
                ck_assert_no_error(ctx[k]);
            }
            for (int64_t i = 0; i < n; i++) ck_assert(value[0][i] == value[1][i]);
            ck_assert_double_le(fabs(square[0] - square[1]), 1e-12 * square[0]);
            free(value[0]), free(value[1]);
        }
}

/* ---- Random numbers ----------------------------------------------------------------------- */

TEST(the_same_random_numbers)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16, GD_INT32};
    enum { N = 10007 };
    static double value[2][N];
    gd_context *ctx[2] = {cpu, gpu};
    for (int d = 0; d < 5; d++)
        for (int kind = 0; kind < 4; kind++) { /* uniform, normal; integers, permutation */
            if ((dtypes[d] == GD_INT32) != (kind >= 2)) continue;
            for (int k = 0; k < 2; k++) {
                gd_random_set(ctx[k], (gd_random_state){.seed = 9, .offset = 12});
                gd_tensor *t = gd_tensor_create(ctx[k], dtypes[d], GD_SHAPE(N));
                if (kind == 0) gd_random_uniform(t, -2, 3);
                if (kind == 1) gd_random_normal(t, 0.5, 2);
                if (kind == 2) gd_random_integers(t, -100, 1000);
                if (kind == 3) gd_random_permutation(t);
                gd_tensor_read_f64(t, value[k], N);
                gd_tensor_free(t);
                ck_assert_no_error(ctx[k]);
            }
            ck_assert_uint_eq(gd_random_get(cpu).offset, gd_random_get(gpu).offset);
            double unit = dtypes[d] == GD_BFLOAT16 ? 1.0 / 128 : 1.0 / 1024;
            double tolerance = dtypes[d] == GD_FLOAT64 ? 1e-14 : dtypes[d] == GD_FLOAT32 ? 2e-6 : 0;
            for (int i = 0; i < N; i++) {
                double a = value[0][i], b = value[1][i], most = kind == 1 ? tolerance : 0;
                if (kind == 1 && tolerance == 0) most = fabs(a) * unit;
                ck_assert_msg(fabs(a - b) <= most, "%s, kind %d: element %d is %.17g, wanted %.17g",
                              gd_dtype_name(dtypes[d]), kind, i, b, a);
            }
        }
}

/* Initial values: those that the host computes to the last bit, the others as their plain fills. */
TEST(initial_values_are_the_same)
{
    enum { N = 24 * 5 * 3 * 3 };
    for (int kind = 0; kind < 4; kind++) {
        static double value[2][N];
        for (int g = 0; g < 2; g++) {
            gd_tensor *t = gd_tensor_create(g ? gpu : cpu, GD_FLOAT32, GD_SHAPE(24, 5, 3, 3));
            gd_random_set(g ? gpu : cpu, (gd_random_state){.seed = 3});
            if (kind == 0)
                gd_init_xavier_uniform(t, 1);
            else if (kind == 1)
                gd_init_kaiming_normal(t, GD_FAN_IN, 1);
            else if (kind == 2)
                gd_init_truncated_normal(t, 0, 1, -2, 2);
            else
                gd_init_orthogonal(t, 1);
            gd_tensor_read_f64(t, value[g], N);
            gd_tensor_free(t);
        }
        ck_assert_no_error(gpu);
        for (int i = 0; i < N; i++)
            ck_assert_double_le(fabs(value[0][i] - value[1][i]), kind == 0 || kind == 2 ? 0 : 2e-6);
    }
}

/* ---- Optimizers --------------------------------------------------------------------------- */

/* Ten steps on the sum of w^4 over an odd number of weights in four parameters: one decays, two are
 * matrices for Muon, a wide and a tall one, and one has a learning rate of its own. All of them are
 * averaged, and `out` ends in the average. */
enum { OPTIMIZED = 1003 + 501 + 19 * 37 + 41 * 13 };

static void optimize(gd_context *ctx, gd_dtype dtype, int kind, double *out, double *norm)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_params_add(params, "a", GD_SHAPE(1003), GD_DECAY);
    gd_tensor *b = gd_params_add(params, "b", GD_SHAPE(501), 0);
    gd_params_add(params, "c", GD_SHAPE(19, 37), GD_DECAY | GD_MUON);
    gd_params_add(params, "d", GD_SHAPE(41, 13), GD_MUON);
    gd_params_set_factors(params, b, 0.5, 1);
    gd_params_finish(params);
    double value[1003];
    for (int i = 0; i < 1003; i++) value[i] = cos(i) + (cos(i) < 0 ? -0.4 : 0.4);
    for (int k = 0; k < 4; k++)
        gd_tensor_write_f64(gd_params_at(params, k), value,
                            gd_tensor_count(gd_params_at(params, k)));
    gd_optimizer *optimizer = optimizer_of_kind(params, kind);
    gd_optimizer_average(optimizer, 0.8);
    for (int step = 0; step < 10; step++) {
        gd_tensor *loss = NULL;
        for (int k = 0; k < 4; k++) {
            gd_tensor *sum = gd_sum(gd_pow(gd_abs(gd_params_at(params, k)), 4), NULL, 0, false);
            loss = loss ? gd_add(loss, sum) : sum;
        }
        gd_backward(loss);
        gd_clip_grad_norm(params, 5, norm);
        gd_optimizer_step(optimizer, 0.01);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    for (int swapped = 0; swapped < 2; swapped++) {
        for (int k = 0; k < 4; k++) {
            const int64_t n = gd_tensor_count(gd_params_at(params, k));
            gd_tensor_read_f64(gd_params_at(params, k), out, n);
            out += n;
        }
        gd_optimizer_swap_average(optimizer);
    }
    ck_assert_no_error(ctx);
    gd_optimizer_free(optimizer);
    gd_params_free(params);
}

TEST(optimizers_go_the_same_way)
{
    static double want[2 * OPTIMIZED], got[2 * OPTIMIZED];
    for (int dtype = 0; dtype < 2; dtype++)
        for (int kind = 0; kind < OPTIMIZER_KINDS; kind++) {
            double norms[2], tolerance = dtype ? 1e-12 : 2e-6;
            optimize(cpu, dtype ? GD_FLOAT64 : GD_FLOAT32, kind, want, &norms[0]);
            optimize(gpu, dtype ? GD_FLOAT64 : GD_FLOAT32, kind, got, &norms[1]);
            ck_assert_double_le(fabs(norms[0] - norms[1]), 10 * tolerance * norms[0]);
            /* five products of float32 in each step of Muon, one after the other */
            if (kind == OPTIMIZER_KINDS - 1) tolerance *= 20;
            for (int i = 0; i < 2 * OPTIMIZED; i++)
                ck_assert_msg(fabs(want[i] - got[i]) <= tolerance,
                              "optimizer %d: weight %d is %.9g, wanted %.9g", kind, i, got[i],
                              want[i]);
        }
}

/* ---- The device --------------------------------------------------------------------------- */

TEST(auto_takes_the_gpu)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.device = GD_DEVICE_AUTO});
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_context_device(ctx), GD_CUDA);
    ck_assert_ptr_nonnull(gd_context_stream(ctx));
    printf("%s\n", gd_context_device_name(ctx));
    gd_context_free(ctx);
}

/* A GPU for which the build has no code is refused in a sentence; where any device will do, the CPU
 * is taken, and the sentence is its note. */
TEST(a_gpu_without_code_is_named)
{
#ifdef GD_HAVE_CUDA
    gd_cuda_limits limits = gd_cuda_device_limits();
    limits.code = 0;
    gd_cuda_cap_limits(&limits);
    gd_context *refused = gd_context_create(&(gd_context_options){.device = GD_CUDA});
    gd_context *any = gd_context_create(&(gd_context_options){.device = GD_DEVICE_AUTO});
    gd_cuda_cap_limits(NULL);
    char end[80];
    snprintf(end, sizeof end, ") is %d.%d: build with -DCMAKE_CUDA_ARCHITECTURES=native",
             limits.capability / 10, limits.capability % 10);
    ck_assert_int_eq(gd_error_status(refused), GD_ERROR_UNSUPPORTED);
    ck_assert_int_eq(strncmp(gd_error(refused), "this build has GPU code for ", 28), 0);
    ck_assert_ptr_nonnull(strstr(gd_error(refused), end));
    ck_assert_no_error(any);
    ck_assert_int_eq(gd_context_device(any), GD_CPU);
    ck_assert_str_eq(gd_context_device_note(any), gd_error(refused));
    gd_context_free(any), gd_context_free(refused);
#endif
}

/* A kernel finds a bad index, and the next wait reports it. Good calls work afterwards. */
TEST(bad_indices_are_reported)
{
    const int32_t good[] = {0, 4, 2}, bad[] = {0, 5, -1};
    gd_tensor *weight = gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(5, 4));
    gd_tensor *index = gd_tensor_from(gpu, GD_INT32, GD_SHAPE(3), bad);
    gd_embedding(weight, index);
    gd_synchronize(gpu);
    ck_assert_error(gpu, "embedding: the index at position ");
    gd_step_end(gpu);
    gd_tensor_write(index, good, sizeof good);
    gd_embedding(weight, index);
    ck_assert_int_eq(gd_synchronize(gpu), GD_OK);

    gd_tensor_write(index, bad, sizeof bad);
    gd_tensor *logits = gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(3, 5));
    gd_item(gd_cross_entropy(logits, index));
    ck_assert_error(gpu, "cross_entropy: the index at position ");
    gd_step_end(gpu);
    gd_tensor_write(index, good, sizeof good);
    ck_assert_double_le(fabs(gd_item(gd_cross_entropy(logits, index)) - log(5)), 1e-6);
    gd_step_end(gpu);
    gd_tensor_free(weight), gd_tensor_free(index), gd_tensor_free(logits);
}

/* Ops that move data work on integers too: slice, transpose, expand, concatenate. */
TEST(whole_numbers_are_moved)
{
    const int32_t values[] = {1, -2, 3, 4, 5, 1 << 30};
    static const int32_t want[] = {1, 4, 4, 4, -2, 5, 5, 5, 3, 1 << 30, 1 << 30, 1 << 30};
    int32_t got[12];
    gd_tensor *x = gd_tensor_from(gpu, GD_INT32, GD_SHAPE(2, 3), values);
    gd_tensor *turned = gd_transpose(x, 0, 1); /* [3, 2] */
    gd_tensor *twice = gd_contiguous(gd_expand(gd_slice(turned, 1, 1, 2), GD_SHAPE(3, 2)));
    gd_tensor *all = gd_concat((gd_tensor *[]){turned, twice}, 2, 1); /* [3, 4] */
    ck_assert_int_eq(gd_tensor_read(all, got, sizeof got), GD_OK);
    ck_assert_int_eq(memcmp(got, want, sizeof want), 0);
    gd_step_end(gpu);
    gd_tensor_free(x);
}

/* memcheck would report the failure that this test causes, so the test is skipped there. */
TEST(no_memory_is_an_error)
{
    if (test_brief()) return;
    const int64_t huge = (int64_t)1 << 50;
    ck_assert_ptr_null(gd_tensor_create(gpu, GD_FLOAT32, 1, &huge));
    ck_assert_error(gpu, "out of memory");
    gd_tensor *t = gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(3));
    ck_assert_no_error(gpu);
    gd_tensor_free(t);
}

TEST(recomputation_repeats_dropout)
{
    gd_tensor *x = gd_tensor_create(gpu, GD_FLOAT32, GD_SHAPE(64, 33));
    gd_tensor_fill(x, 1);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_keep(gd_dropout(x, 0.4));
    gd_backward_from(&y, 1, NULL);
    double a[64 * 33], b[64 * 33];
    gd_tensor_read_f64(y, a, 64 * 33);
    gd_tensor_read_f64(gd_grad(x), b, 64 * 33);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0); /* x is 1: y and dx are the same mask */
    gd_step_end(gpu);
    gd_tensor_free(x);
}

/* ---- Guarded memory ------------------------------------------------------------------------- */

/* From the second run on it writes to the byte before the exponentials. */
typedef struct overrun {
    gd_tensor *x;
    int runs;
} overrun;

static gd_status overrun_exp(void *user)
{
    overrun *o = user;
    gd_context *ctx = gd_tensor_context(o->x);
    gd_tensor *y = gd_exp(o->x);
    if (o->runs++) ctx->device->fill_bytes(ctx, (char *)gd_tensor_data(y) - 1, 0, 1);
    return GD_OK;
}

TEST(memory_that_is_overrun_is_named)
{
    gd_context *ctx =
        gd_context_create(&(gd_context_options){.device = GD_CUDA, .guard = GD_GUARD_MARGINS});
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    ctx->device->fill_bytes(ctx, (char *)gd_tensor_data(t) + 12, 0, 1);
    gd_tensor_free(t);
    ck_assert_error(ctx, "tensor_create: its memory of 12 bytes was written to behind its end");
    overrun o = {.x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3))};
    gd_graph *graph = gd_graph_create(ctx, NULL);
    ck_assert_int_eq(gd_graph_run(graph, overrun_exp, &o), GD_OK);
    gd_graph_run(graph, overrun_exp, &o); /* captured, and replayed */
    ck_assert_int_eq(gd_graph_count(graph).captures, 1);
    ck_assert_error(ctx, "exp: its memory of 12 bytes was written to before its beginning");
    gd_graph_free(graph);
    gd_tensor_free(o.x);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "the core on the GPU", set_up, tear_down)
