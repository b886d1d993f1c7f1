/* test_cuda_optim16.c - 16-bit parameters on the GPU, against the CPU: their float32 gradients from
 * every op, and their masters. */
#include <math.h>
#include <string.h>

#include "frozen_times.h"
#include "param_uses.h"
#include "gpu.h"

static const gd_dtype dtypes[2] = {GD_BFLOAT16, GD_FLOAT16};

static double noise(int64_t i, int seed)
{
    return (double)(float)sin(12.9898 * (double)i + 78.233 * seed);
}

static gd_context *open_context(gd_device device)
{
    gd_context *ctx = device == GD_CUDA
                          ? gpu_context()
                          : gd_context_create(&(gd_context_options){.threads = 1, .poison = true});
    ck_assert_no_error(ctx);
    return ctx;
}

/* ---- Gradients ---------------------------------------------------------------------------- */

enum { MOST = PARAM_WIDTH * PARAM_WIDTH };

typedef struct gradients {
    int64_t count[2]; /* of w and v; 0: none */
    double value[2][MOST];
} gradients;

static gd_tensor *make(gd_context *ctx, gd_dtype dtype, int64_t rows, int64_t columns, int seed)
{
    const int64_t shape[2] = {rows, columns};
    double values[MOST];
    gd_tensor *t = gd_tensor_create(ctx, dtype, columns ? 2 : 1, shape);
    for (int64_t i = 0; i < gd_tensor_count(t); i++) {
        values[i] = dtype == GD_INT32 ? (double)((5 * i + seed) % PARAM_WIDTH) : noise(i, seed);
    }
    gd_tensor_write_f64(t, values, gd_tensor_count(t));
    return t;
}

/* The gradients after `turns` forwards and backwards, for a cotangent with few bits. */
static void find_gradients(gd_device device, gd_dtype dtype, int use, int turns, gradients *out)
{
    gd_context *ctx = open_context(device);
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w = gd_params_add(params, "w", 2, (int64_t[]){PARAM_WIDTH, PARAM_WIDTH}, GD_DECAY);
    gd_tensor *v = gd_params_add(params, "v", 1, (int64_t[]){PARAM_WIDTH}, 0);
    gd_params_finish(params);
    gd_tensor *parts[4] = {
        make(ctx, dtype, PARAM_WIDTH, PARAM_WIDTH, 1), make(ctx, dtype, PARAM_WIDTH, 0, 2),
        make(ctx, dtype, PARAM_ROWS, PARAM_WIDTH, 3), make(ctx, GD_INT32, PARAM_ROWS, 0, 4)};
    gd_tensor_copy(w, parts[0]);
    gd_tensor_copy(v, parts[1]);
    for (int turn = 0; turn < turns; turn++) {
        gd_tensor *y = param_use(ctx, use, w, v, parts[2], parts[3]);
        ck_assert_no_error(ctx);
        gd_tensor *u = make(ctx, gd_tensor_dtype(y), PARAM_ROWS, PARAM_WIDTH, 5);
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = &u});
        gd_step_end(ctx);
        gd_tensor_free(u);
    }
    for (int k = 0; k < 2; k++) {
        const gd_tensor *grad = gd_grad(k ? v : w);
        out->count[k] = grad ? gd_tensor_count(grad) : 0;
        if (!grad) continue;
        ck_assert_int_eq(gd_tensor_dtype(grad), GD_FLOAT32);
        gd_tensor_read_f64(grad, out->value[k], out->count[k]);
    }
    ck_assert_no_error(ctx);
    for (int i = 0; i < 4; i++) gd_tensor_free(parts[i]);
    gd_params_free(params);
    gd_context_free(ctx);
}

/* Sums of the same 16-bit numbers differ only by their order; intermediate results in 16 bits may
 * therefore be rounded differently. */
LOOP_TEST(every_op_gives_float32_gradients, 2 * PARAM_USES)
{
    const gd_dtype dtype = dtypes[_i % 2];
    const int use = _i / 2;
    if (gpu_refuses(dtype)) return;
    const double loose = dtype == GD_BFLOAT16 ? 0x1p-7 : 0x1p-10;
    for (int turns = 1; turns <= 3; turns += 2) {
        gradients cpu, gpu;
        find_gradients(GD_CPU, dtype, use, turns, &cpu);
        find_gradients(GD_CUDA, dtype, use, turns, &gpu);
        for (int k = 0; k < 2; k++) {
            double largest = 0;
            ck_assert_int_eq(gpu.count[k], cpu.count[k]);
            for (int64_t i = 0; i < cpu.count[k]; i++) {
                largest = fmax(largest, fabs(cpu.value[k][i]));
            }
            for (int64_t i = 0; i < cpu.count[k]; i++) {
                double off = fabs(gpu.value[k][i] - cpu.value[k][i]) / largest;
                ck_assert_msg(off <= (param_use_is_long(use) ? loose : 1e-5),
                              "use %d, %s, %d turns: d%s[%lld] is %.9g, wanted %.9g", use,
                              gd_dtype_name(dtype), turns, k ? "v" : "w", (long long)i,
                              gpu.value[k][i], cpu.value[k][i]);
            }
        }
    }
}

/* ---- Masters ------------------------------------------------------------------------------ */

enum { ELEMENTS = 100003, SMALL = 5, STEPS = 5 };

/* Trains "w", and returns its masters in `master` and its values in `rounded`. "w" is written
 * during training, and the parameter before it is frozen. */
static void follow(gd_device device, gd_dtype dtype, int kind, double *master, double *rounded)
{
    static double values[ELEMENTS];
    gd_context *ctx = open_context(device);
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *frozen = gd_params_add(params, "frozen", 1, (int64_t[]){SMALL}, GD_DECAY);
    gd_tensor *w = gd_params_add(params, "w", 1, (int64_t[]){ELEMENTS}, GD_DECAY);
    gd_params_finish(params);
    gd_optimizer *optimizer = optimizer_of_kind(params, kind);
    gd_tensor_fill(frozen, 3);
    gd_tensor_set_requires_grad(frozen, false);
    for (int64_t i = 0; i < ELEMENTS; i++) values[i] = noise(i, 1);
    gd_tensor_write_f64(w, values, ELEMENTS);
    for (int step = 0; step < STEPS; step++) {
        if (step == 3) {
            gd_tensor_read_f64(w, values, ELEMENTS);
            for (int64_t i = 0; i < ELEMENTS; i += 7) values[i] = -0.5;
            gd_tensor_write_f64(w, values, ELEMENTS);
        }
        gd_backward_from(&w, 1, NULL);
        for (int64_t i = 0; i < ELEMENTS; i++) values[i] = noise(i, step + 2);
        gd_tensor_write_f64(gd_grad(w), values, ELEMENTS);
        gd_optimizer_step(optimizer, 1e-3);
        gd_params_clear_grads(params);
    }
    gd_tensor *state, *last = NULL;
    for (int i = 0; (state = gd_optimizer_state(optimizer, i)); i++) last = state;
    ck_assert_str_eq(gd_tensor_name(last), "master");
    gd_tensor_read_f64(gd_slice(last, 0, 32, 32 + ELEMENTS), master, ELEMENTS);
    gd_tensor_read_f64(w, rounded, ELEMENTS);
    gd_tensor_read_f64(frozen, values, SMALL);
    for (int i = 0; i < SMALL; i++) ck_assert(values[i] == 3);
    ck_assert_no_error(ctx);
    gd_optimizer_free(optimizer);
    gd_params_free(params);
    gd_context_free(ctx);
}

/* One update of a zero matrix by Muon. */
static void orthogonalize(gd_device device, gd_dtype dtype, int64_t rows, int64_t columns,
                          double *update)
{
    gd_context *ctx = open_context(device);
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w = gd_params_add(params, "w", 2, (int64_t[]){rows, columns}, GD_MUON);
    gd_params_finish(params);
    gd_optimizer *muon = gd_muon_create(params, NULL);
    gd_backward_from(&w, 1, NULL);
    gd_random_set(ctx, (gd_random_state){.seed = 3});
    gd_random_normal(gd_grad(w), 0, 1e-3);
    gd_optimizer_step(muon, 1);
    gd_tensor_read_f64(w, update, rows * columns);
    ck_assert_no_error(ctx);
    gd_optimizer_free(muon);
    gd_params_free(params);
    gd_context_free(ctx);
}

/* For bfloat16 the GPU's products are in bfloat16, the CPU's in float32: the steps of both point
 * the same way. */
LOOP_TEST(steps_of_muon_are_those_of_the_cpu, 8)
{
    enum { MOST = 96 * 160 };
    static const int64_t shapes[][2] = {{96, 160}, {160, 96}, {33, 47}, {64, 64}};
    static double cpu[MOST], gpu[MOST];
    const int64_t rows = shapes[_i / 2][0], columns = shapes[_i / 2][1];
    if (gpu_refuses(dtypes[_i % 2])) return;
    orthogonalize(GD_CPU, dtypes[_i % 2], rows, columns, cpu);
    orthogonalize(GD_CUDA, dtypes[_i % 2], rows, columns, gpu);
    double dot = 0, left = 0, right = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        dot += cpu[i] * gpu[i];
        left += cpu[i] * cpu[i];
        right += gpu[i] * gpu[i];
    }
    const double cosine = dot / sqrt(left * right);
    printf("%lld x %lld %s: cosine %.6f, lengths %.4f and %.4f\n", (long long)rows,
           (long long)columns, gd_dtype_name(dtypes[_i % 2]), cosine, sqrt(left), sqrt(right));
    ck_assert_double_ge(cosine, 0.99);
    ck_assert_double_le(fabs(sqrt(right / left) - 1), 0.02);
}

/* The parameters are exactly the rounded masters; the masters equal the CPU's up to rounding. */
LOOP_TEST(masters_follow_those_of_the_cpu, 2 * OPTIMIZER_KINDS)
{
    static double cpu[2][ELEMENTS], gpu[2][ELEMENTS];
    const gd_dtype dtype = dtypes[_i % 2];
    follow(GD_CPU, dtype, _i / 2, cpu[0], cpu[1]);
    follow(GD_CUDA, dtype, _i / 2, gpu[0], gpu[1]);
    for (int64_t i = 0; i < ELEMENTS; i++) {
        ck_assert_double_eq_tol(gpu[0][i], cpu[0][i], 1e-6);
    }
    const int64_t count = ELEMENTS;
    gd_context *ctx = open_context(GD_CPU);
    gd_tensor *narrow = gd_tensor_create(ctx, dtype, 1, &count);
    gd_tensor_write_f64(narrow, gpu[0], ELEMENTS);
    gd_tensor_read_f64(narrow, gpu[0], ELEMENTS);
    ck_assert_mem_eq(gpu[0], gpu[1], sizeof gpu[0]);
    gd_tensor_free(narrow);
    gd_context_free(ctx);
}

LOOP_TEST(what_is_frozen_for_a_while_goes_on_as_alone, 4 * OPTIMIZER_KINDS)
{
    const gd_dtype dtype = (gd_dtype)(_i % 4);
    if (gpu_refuses(dtype)) return;
    gd_context *ctx = open_context(GD_CUDA);
    ck_assert_frozen_as_alone(ctx, dtype, _i / 4);
    gd_context_free(ctx);
}

/* From a file that was written between two updates, with what was frozen until then. */
LOOP_TEST(going_on_from_a_file_has_the_same_bits, 4 * OPTIMIZER_KINDS)
{
    const char *path = "test_cuda_go_on.safetensors";
    const gd_dtype dtype = (gd_dtype)(_i % 4);
    if (gpu_refuses(dtype)) return;
    double grads[TOTAL], got[2][TOTAL];
    gd_context *ctx = open_context(GD_CUDA);
    gd_params *params[2] = {group(ctx, dtype), group(ctx, dtype)};
    gd_optimizer *optimizer[2];
    for (int k = 0; k < 2; k++) {
        optimizer[k] = optimizer_of_kind(params[k], _i / 4);
        gd_optimizer_average(optimizer[k], 0.9);
    }
    for (int s = 0; s < FROZEN_UPDATES; s++) {
        for (int k = 0; k <= (s >= 6); k++) {
            for (int i = 0; i < PARAMETERS; i++)
                gd_tensor_set_requires_grad(gd_params_at(params[k], i), trained_in(i, s));
            some_numbers(grads, TOTAL, s);
            frozen_update(params[k], optimizer[k], grads);
        }
        if (s != 5) continue;
        gd_optimizer_save(optimizer[0], path, NULL, 0);
        gd_optimizer_load(optimizer[1], path, NULL);
    }
    for (int k = 0; k < 2; k++) read_all(params[k], got[k]);
    ck_assert_mem_eq(got[0], got[1], sizeof got[0]);
    gd_tensor *state;
    for (int i = 0; (state = gd_optimizer_state(optimizer[0], i)); i++) {
        const gd_tensor *other = gd_optimizer_state(optimizer[1], i);
        double values[2][1024];
        gd_tensor_read_f64(state, values[0], gd_tensor_count(state));
        gd_tensor_read_f64(other, values[1], gd_tensor_count(other));
        ck_assert_mem_eq(values[0], values[1], (size_t)gd_tensor_count(state) * sizeof(double));
    }
    ck_assert_no_error(ctx);
    remove(path);
    for (int k = 0; k < 2; k++) gd_optimizer_free(optimizer[k]), gd_params_free(params[k]);
    gd_context_free(ctx);
}

CHECK_MAIN_GPU(false, "16-bit parameters on the GPU", NULL, NULL)
