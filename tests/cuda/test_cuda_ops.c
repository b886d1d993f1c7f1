/* test_cuda_ops.c - every case of every op on the GPU, forward and backward, against the CPU.
 *
 * float64 and float32 are compared with the CPU in float64; 16-bit dtypes with the CPU in the same
 * dtype, which computes in float32 and rounds once. Each case runs three times: with packed inputs,
 * with inputs that are windows (rows have gaps and begin at odd addresses), and with packed inputs
 * again, which must give the same bits. The backward runs twice over the same tape: the first
 * overwrites the gradients, the second adds to them. Inputs that an op updates are compared, too. */
/* Build: all symbols. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu.h"
#include "gradcheck/check.h"

enum { MOST_PARTS = 4 * GD_CASE_MAX_INPUTS, MOST_OUTPUTS = 8 };

/* ---- One run ------------------------------------------------------------------------------ */

/* A result of a run. */
typedef struct part {
    char name[96];
    bool summed; /* the gradient after the second backward */
    int64_t count;
    double *value;
} part;

typedef struct outcome {
    bool refused; /* an op with products in a dtype of which the GPU has none */
    int parts;
    part part[MOST_PARTS];
} outcome;

typedef struct problem {
    const gd_op *op;
    const gd_case *c;
    double *input[GD_CASE_MAX_INPUTS];
    uint64_t seed;
} problem;

static void keep(outcome *out, const char *name, bool summed, const gd_tensor *t)
{
    part *p = &out->part[out->parts++];
    ck_assert_int_le(out->parts, MOST_PARTS);
    snprintf(p->name, sizeof p->name, "%s%s", name, summed ? " after a second backward" : "");
    p->summed = summed;
    p->count = t ? gd_tensor_count(t) : 0;
    p->value = malloc(((size_t)p->count + 1) * sizeof *p->value);
    if (t) gd_tensor_read_f64(t, p->value, p->count);
}

static void free_outcome(outcome *out)
{
    for (int i = 0; i < out->parts; i++) free(out->part[i].value);
    out->parts = 0;
}

static int64_t case_count(const gd_case_input *in)
{
    int64_t count = in->absent ? 0 : 1;
    for (int d = 0; d < in->ndim && !in->absent; d++) count *= in->shape[d];
    return count;
}

/* The leaf of an input. As a window it has one more element before each row and two after it. */
static gd_tensor *make_leaf(gd_context *ctx, const gd_case_input *in, gd_dtype dtype, bool window,
                            const double *value)
{
    bool index = in->fill == GD_FILL_INDEX;
    int64_t shape[GD_MAX_DIMS], count = case_count(in);
    memcpy(shape, in->shape, sizeof shape);
    int64_t row = in->ndim ? shape[in->ndim - 1] : 1, rows = row ? count / row : 0;
    const int64_t front = window ? 1 : 0, wide = row + (window ? 3 : 0);
    if (in->ndim) shape[in->ndim - 1] = wide;
    if (window) {
        rows = 1;
        for (int d = 0; d + 1 < in->ndim; d++) rows *= shape[d];
    }
    double *all = malloc(((size_t)(rows * wide) + 1) * sizeof *all);
    for (int64_t i = 0; i < rows * wide; i++) all[i] = index ? 0 : NAN;
    for (int64_t i = 0; i < rows; i++)
        memcpy(all + i * wide + front, value + i * row, (size_t)row * sizeof *all);
    gd_tensor *t = gd_tensor_create(ctx, index ? GD_INT32 : dtype, in->ndim, shape);
    gd_tensor_write_f64(t, all, rows * wide);
    if (!index && !in->fixed) gd_tensor_set_requires_grad(t, true);
    free(all);
    return t;
}

/* Random numbers, rounded to dtype. */
static gd_tensor *make_cotangent(gd_context *ctx, const gd_tensor *y, uint64_t seed)
{
    int64_t n = gd_tensor_count(y);
    double *value = malloc(((size_t)n + 1) * sizeof *value);
    gd_check_normal(value, n, seed, 77);
    gd_dtype dtype = gd_tensor_dtype(y);
    gd_tensor *t = gd_tensor_create(ctx, dtype, gd_tensor_ndim(y), gd_tensor_shape(y));
    for (int64_t i = 0; i < n; i++) value[i] = (float)value[i];
    for (int64_t i = 0; i < n; i++) value[i] = ldexp(rint(ldexp(value[i], 6)), -6);
    gd_tensor_write_f64(t, value, n);
    free(value);
    return t;
}

/* Whether the GPU refused the call; then the error is cleared. */
static bool was_refused(gd_context *ctx, gd_dtype dtype)
{
    if (dtype != GD_BFLOAT16 || gd_error_status(ctx) != GD_ERROR_UNSUPPORTED) return false;
    ck_assert_ptr_nonnull(strstr(gd_error(ctx), "need a GPU of compute capability 8.0"));
    gd_error_clear(ctx);
    return true;
}

static void run(const problem *p, gd_context *ctx, gd_dtype dtype, bool windows, outcome *out)
{
    gd_tensor *leaf[GD_CASE_MAX_INPUTS] = {NULL}, *input[GD_CASE_MAX_INPUTS] = {NULL};
    gd_tensor *output[MOST_OUTPUTS], *cotangent[MOST_OUTPUTS] = {NULL};
    *out = (outcome){0};
    for (int i = 0; i < p->c->inputs; i++) {
        const gd_case_input *in = &p->c->input[i];
        if (in->absent) continue;
        bool window = windows && in->ndim > 0;
        leaf[i] = make_leaf(ctx, in, dtype, window, p->input[i]);
        input[i] = leaf[i];
        if (window) input[i] = gd_slice(leaf[i], -1, 1, 1 + in->shape[in->ndim - 1]);
    }
    ck_assert_no_error(ctx);
    gd_apply_multi(p->op, input, p->c->inputs, p->c->args, output);
    out->refused = was_refused(ctx, dtype);
    ck_assert_no_error(ctx);
    for (int i = 0; i < p->op->outputs && !out->refused; i++) {
        gd_keep(output[i]);
        keep(out, "output", false, output[i]);
        if (!p->op->backward[GD_CPU]) continue; /* whole numbers */
        cotangent[i] = make_cotangent(ctx, output[i], p->seed + (uint64_t)i);
    }
    for (int i = 0; i < p->c->inputs; i++) {
        if (out->refused || !input[i] || !(p->op->updates_inputs & GD_BIT(i))) continue;
        char name[64];
        snprintf(name, sizeof name, "%.40s, updated", gd_input_name(p->op, i).text);
        keep(out, name, false, input[i]);
    }
    gd_backward_options options = {.cotangents = cotangent, .keep_tape = true};
    for (int turn = 0; turn < 2 && p->op->backward[GD_CPU] && !out->refused; turn++) {
        gd_backward_from(output, p->op->outputs, &options);
        out->refused = was_refused(ctx, dtype);
        ck_assert_no_error(ctx);
        if (out->refused) break;
        for (int i = 0; i < p->c->inputs; i++) {
            if (!leaf[i] || !gd_tensor_requires_grad(leaf[i])) continue;
            char name[48];
            snprintf(name, sizeof name, "d%.40s", gd_input_name(p->op, i).text);
            keep(out, name, turn, gd_grad(leaf[i]));
        }
    }
    gd_step_end(ctx);
    for (int i = 0; i < p->op->outputs; i++) gd_tensor_free(cotangent[i]);
    for (int i = 0; i < p->c->inputs; i++) gd_tensor_free(leaf[i]);
    ck_assert_no_error(ctx);
}

/* ---- Comparing ---------------------------------------------------------------------------- */

typedef struct tally {
    int compared, wrong, refused;
    double worst; /* of the tolerance */
    char where[256];
} tally;

static double largest_of(const part *p)
{
    double largest = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (isfinite(p->value[i])) largest = fmax(largest, fabs(p->value[i]));
    return largest;
}

/* The distance between adjacent numbers near x in a 16-bit dtype. */
static double unit(double x, gd_dtype dtype)
{
    int digits = dtype == GD_BFLOAT16 ? 8 : 11, lowest = dtype == GD_BFLOAT16 ? -126 : -14;
    int exponent = lowest;
    if (x != 0 && isfinite(x)) exponent = (int)fmax(lowest, floor(log2(fabs(x))));
    return ldexp(1, exponent - digits + 1);
}

/* The allowed error of an element. `largest` is that of its tensor. 16-bit results are rounded
 * once, except
 *
 * - in linear with a bias: the library may round the product, and then the sum with a bias of up to
 *   4; the error is some units of the product;
 * - in attention, which rounds p and ds before their products, as tensor cores require. That is
 *   half a unit of each term of a sum, so y is off by a unit of the largest. And delta = dy . y is
 *   computed from this y; in ds = p (dp - delta) the difference may be several times smaller than
 *   delta;
 * - in rope_attention, which besides rounds q and k after their rotation;
 * - in lstm and gru, which round the state that the next step's product reads, and every step's
 *   gradient before the products that pass it on;
 * - in linear_cross_entropy, which stores the logits, and their gradient in the same memory, in the
 *   dtype of the inputs. */
static double tolerance(const gd_op *op, double want, double largest, const part *p, gd_dtype dtype)
{
    double f32 = 1e-5 * largest;
    if (dtype == GD_FLOAT64) return 1e-12 * largest;
    if (dtype == GD_FLOAT32) return f32;
    if (!strcmp(op->name, "linear")) want = fabs(want) + 4;
    const bool rotated = !strcmp(op->name, "rope_attention");
    if (rotated || !strcmp(op->name, "attention"))
        f32 += (rotated ? 2 : 1) * (strcmp(p->name, "output") ? 6 : 1) * unit(largest, dtype);
    if (!strcmp(op->name, "lstm") || !strcmp(op->name, "gru")) f32 += 2 * unit(largest, dtype);
    if (!strcmp(op->name, "linear_cross_entropy")) f32 += unit(largest, dtype);
    return f32 + (p->summed ? 2 : 1) * unit(want, dtype);
}

static void compare(const problem *p, gd_dtype dtype, const char *how, const outcome *got,
                    const outcome *want, tally *t)
{
    ck_assert_int_eq(got->parts, want->parts);
    for (int k = 0; k < want->parts; k++) {
        const part *w = &want->part[k], *g = &got->part[k];
        ck_assert_int_eq(g->count, w->count);
        double largest = largest_of(w);
        bool told = false;
        for (int64_t i = 0; i < w->count; i++) {
            double a = g->value[i], b = w->value[i];
            if (a == b || (isnan(a) && isnan(b))) continue;
            double share = fabs(a - b) / tolerance(p->op, b, largest, w, dtype);
            bool bad = !(share <= 1);
            if (!(share <= t->worst)) {
                t->worst = isnan(share) ? INFINITY : share;
                snprintf(t->where, sizeof t->where, "%s, case %s, %s, %s", p->op->name, p->c->name,
                         how, w->name);
            }
            if (bad && !told) {
                printf("%s, case %s, %s, %s: %s[%lld] is %.9g, wanted %.9g (largest %.3g)\n",
                       p->op->name, p->c->name, gd_dtype_name(dtype), how, w->name, (long long)i, a,
                       b, largest);
                told = true;
            }
        }
        t->compared++;
        t->wrong += told;
    }
}

static void same_bits(const problem *p, gd_dtype dtype, const outcome *a, const outcome *b,
                      tally *t)
{
    for (int k = 0; k < a->parts; k++) {
        if (!memcmp(a->part[k].value, b->part[k].value, (size_t)a->part[k].count * sizeof(double)))
            continue;
        printf("%s, case %s, %s: %s differs from run to run\n", p->op->name, p->c->name,
               gd_dtype_name(dtype), a->part[k].name);
        t->wrong++;
    }
}

/* ---- All cases ---------------------------------------------------------------------------- */

/* The inputs' values, rounded to dtype, so that both sides get the same numbers. */
static void make_inputs(problem *p, gd_context *cpu, gd_dtype dtype)
{
    for (int i = 0; i < p->c->inputs; i++) {
        const gd_case_input *in = &p->c->input[i];
        int64_t count = case_count(in);
        double *value = malloc(((size_t)count + 1) * sizeof *value);
        double *room = malloc(((size_t)count + 1) * sizeof *room);
        gd_check_fill(value, count, in, 0.01, p->seed, (uint64_t)i, room);
        if (in->fill != GD_FILL_INDEX && count) {
            gd_tensor *t = gd_tensor_create(cpu, dtype, 1, &count);
            gd_tensor_write_f64(t, value, count);
            gd_tensor_read_f64(t, value, count);
            gd_tensor_free(t);
        }
        p->input[i] = value;
        free(room);
    }
    ck_assert_no_error(cpu);
}

static void check_case(gd_context *gpu, gd_context *cpu, const gd_op *op, const gd_case *c,
                       gd_dtype dtype, tally *t)
{
    problem p = {.op = op, .c = c, .seed = 11};
    gd_dtype reference = dtype == GD_FLOAT32 ? GD_FLOAT64 : dtype;
    outcome want, got, again;
    make_inputs(&p, cpu, dtype);
    /* Both sides draw the same random numbers in each run. */
    gd_random_state state = {.seed = 5};
    for (int windows = 0; windows < 2; windows++) {
        gd_random_set(cpu, state);
        gd_random_set(gpu, state);
        run(&p, cpu, reference, windows, &want);
        run(&p, gpu, dtype, windows, &got);
        t->refused += got.refused;
        if (!got.refused) compare(&p, dtype, windows ? "windows" : "packed", &got, &want, t);
        if (!windows && !got.refused && !test_brief()) {
            gd_random_set(gpu, state);
            run(&p, gpu, dtype, windows, &again);
            same_bits(&p, dtype, &got, &again, t);
            free_outcome(&again);
        }
        free_outcome(&want);
        free_outcome(&got);
    }
    for (int i = 0; i < c->inputs; i++) free(p.input[i]);
}

/* GRADUS_TEST_OP in the environment names a single op to test; GRADUS_TEST_SHORT leaves out the run
 * for equal bits and half of the dtypes, for slow tools. */
static tally check_all(gd_dtype dtype)
{
    tally t = {0};
    gd_context *gpu = gpu_context();
    gd_context *cpu = gd_context_create(&(gd_context_options){.threads = 1, .poison = true});
    ck_assert_no_error(gpu);
    ck_assert_no_error(cpu);
    const char *only = getenv("GRADUS_TEST_OP");
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        if (only && strcmp(only, op->name)) continue;
        ck_assert_msg(op->forward[GD_CUDA], "%s has no forward on the GPU", op->name);
        ck_assert_msg(!op->backward[GD_CPU] || op->backward[GD_CUDA],
                      "%s has no backward on the GPU", op->name);
        for (int k = 0; k < op->case_count; k++) check_case(gpu, cpu, op, &op->cases[k], dtype, &t);
    }
    gd_context_free(gpu);
    gd_context_free(cpu);
    if (t.refused)
        printf("skipped: %d runs of ops with products that this GPU has not\n", t.refused);
    printf("%s: %d tensors compared, %d wrong; the worst at %.3g of the tolerance: %s\n",
           gd_dtype_name(dtype), t.compared, t.wrong, t.worst, t.where);
    fflush(stdout);
    return t;
}

START_TEST(every_case_agrees_with_the_cpu)
{
    static const gd_dtype dtypes[] = {GD_FLOAT32, GD_BFLOAT16, GD_FLOAT64, GD_FLOAT16};
    if (_i >= 2 && test_brief()) return;
    tally t = check_all(dtypes[_i]);
    ck_assert_int_eq(t.wrong, 0);
    ck_assert_int_gt(t.compared + t.refused, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops on the GPU");
    TCase *tcase = tcase_create("against the CPU");
    tcase_add_loop_test(tcase, every_case_agrees_with_the_cpu, 0, 4);
    suite_add_tcase(suite, tcase);
    return check_main_gpu(suite);
}
