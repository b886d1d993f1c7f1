/* test_gradcheck_everyday.c - no false alarm in everyday models: gradients that are 0 but for rounding (a
 * bias before a norm, attention's key bias, all that softmax does not see), and ties, where each
 * output may choose. GRADUS_SEEDS: how many seeds, instead of 6. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 5 };

/* What the values of an input are: normal, or few whole numbers, so that there are ties. */
typedef enum kind_of_values { NORMAL, LARGE, SMALL, FAR, TIES } kind_of_values;

typedef struct model {
    const char *name;
    gd_tensor *(*apply)(gd_tensor *const *in);
    struct {
        int ndim;
        int64_t shape[4];
        kind_of_values values;
    } in[MOST];
    bool kinks;   /* the verdict may be KINK */
    bool nothing; /* the outputs are rounding alone, the verdict may be INCONCLUSIVE */
} model;

/* ---- Gradients that are zero but for rounding ------------------------------------------------ */

static gd_tensor *bias_batch_norm(gd_tensor *const *in)
{
    return gd_tanh(gd_batch_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, NULL));
}

static gd_tensor *conv_batch_norm(gd_tensor *const *in)
{
    return gd_silu(gd_batch_norm(gd_conv2d(in[0], in[1], in[2], NULL), NULL, NULL, NULL));
}

static gd_tensor *conv_group_norm(gd_tensor *const *in)
{
    return gd_relu(gd_group_norm(gd_conv2d(in[0], in[1], in[2], NULL), 3, NULL, NULL, 1e-5));
}

static gd_tensor *weight_batch_norm(gd_tensor *const *in)
{
    return gd_batch_norm(gd_mul(in[0], in[1]), NULL, NULL, NULL);
}

static gd_tensor *shift_layer_norm(gd_tensor *const *in)
{
    return gd_layer_norm(gd_add(in[0], in[1]), in[2], NULL, 1e-5);
}

static gd_tensor *scale_rms_norm(gd_tensor *const *in)
{
    return gd_rms_norm(gd_mul(in[0], in[1]), in[2], 1e-12);
}

static gd_tensor *shift_softmax(gd_tensor *const *in)
{
    return gd_softmax(gd_add(in[0], in[1]), 1);
}

static gd_tensor *shift_cross_entropy(gd_tensor *const *in)
{
    gd_tensor *ids = gd_argmax(gd_detach(in[2]), 1, false);
    return gd_cross_entropy(gd_add(in[0], in[1]), ids);
}

static gd_tensor *shift_log_softmax(gd_tensor *const *in)
{
    return gd_log_softmax(gd_add(gd_matmul(in[0], in[1]), in[2]), 1);
}

static gd_tensor *logits_sum(gd_tensor *const *in)
{
    return gd_sum(gd_softmax(in[0], 1), (int[]){1}, 1, false);
}

static gd_tensor *norm_sum(gd_tensor *const *in)
{
    return gd_sum(gd_layer_norm(in[0], NULL, NULL, 1e-5), (int[]){1}, 1, false);
}

static gd_tensor *heads(gd_tensor *x)
{
    return gd_permute(gd_reshape(x, GD_SHAPE(2, 5, 2, 4)), (int[]){0, 2, 1, 3});
}

static gd_tensor *key_bias(gd_tensor *const *in)
{
    gd_tensor *q = heads(gd_linear(in[0], in[1], NULL));
    gd_tensor *k = heads(gd_linear(in[0], in[2], in[3]));
    return gd_attention(q, k, heads(in[0]), NULL);
}

static gd_tensor *key_bias_by_hand(gd_tensor *const *in)
{
    gd_tensor *q = gd_linear(in[0], in[1], NULL), *k = gd_linear(in[0], in[2], in[3]);
    gd_tensor *scores = gd_softmax(gd_matmul_with(q, k, false, true), -1);
    return gd_matmul(scores, in[0]);
}

static gd_tensor *differences(gd_tensor *const *in)
{
    gd_tensor *x = gd_add(in[0], in[1]);
    return gd_sub(gd_slice(x, 1, 1, 6), gd_slice(x, 1, 0, 5));
}

static gd_tensor *cosine(gd_tensor *const *in)
{
    return gd_cosine_similarity(gd_mul(in[0], in[2]), in[1], 1, 1e-8);
}

static gd_tensor *sign_of_one(gd_tensor *const *in)
{
    return gd_div(in[0], gd_norm(in[0], 2, (int[]){1}, 1, true));
}

static gd_tensor *correlation(gd_tensor *const *in)
{
    gd_tensor *x = gd_sub(in[0], gd_mean(in[0], (int[]){1}, 1, true));
    gd_tensor *unit = gd_div(x, gd_norm(x, 2, (int[]){1}, 1, true));
    return gd_matmul_with(unit, unit, false, true);
}

static gd_tensor *variance(gd_tensor *const *in)
{
    return gd_std(gd_add(in[0], in[1]), (int[]){1}, 1, 1, false);
}

static gd_tensor *twice_bias(gd_tensor *const *in)
{
    gd_tensor *h = gd_batch_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, NULL);
    return gd_batch_norm(gd_linear(gd_tanh(h), in[3], in[2]), NULL, NULL, NULL);
}

static gd_tensor *mlp(gd_tensor *const *in)
{
    return gd_linear(gd_gelu(gd_layer_norm(gd_linear(in[0], in[1], in[2]), NULL, NULL, 1e-5)),
                     in[3], NULL);
}

/* ---- Ties ------------------------------------------------------------------------------------ */

static gd_tensor *pool(gd_tensor *const *in)
{
    return gd_max_pool2d(in[0], &(gd_pool_options){.kernel = {2, 2}, .stride = {1, 1}});
}

static gd_tensor *pool_relu(gd_tensor *const *in)
{
    return gd_max_pool2d(gd_relu(in[0]), &(gd_pool_options){.kernel = {1, 3}, .stride = {1, 1}});
}

static gd_tensor *relu_pool(gd_tensor *const *in)
{
    gd_tensor *x = gd_relu(gd_add_scalar(in[0], -1));
    return gd_tanh(gd_max_pool2d(x, &(gd_pool_options){.kernel = {2, 2}, .stride = {1, 1}}));
}

static gd_tensor *sorted(gd_tensor *const *in)
{
    return gd_sort(in[0], 1, false, NULL);
}

static gd_tensor *sorted_relu(gd_tensor *const *in)
{
    return gd_sort(gd_relu(in[0]), 1, true, NULL);
}

static gd_tensor *median(gd_tensor *const *in)
{
    return gd_slice(gd_sort(in[0], 1, false, NULL), 1, 2, 3);
}

static gd_tensor *top(gd_tensor *const *in)
{
    return gd_topk(in[0], 2, 1, true, NULL);
}

static gd_tensor *largest(gd_tensor *const *in)
{
    return gd_concat(
        (gd_tensor *[]){gd_max(in[0], (int[]){1}, 1, true), gd_min(in[0], (int[]){1}, 1, true)}, 2,
        1);
}

static gd_tensor *of_two(gd_tensor *const *in)
{
    return gd_concat((gd_tensor *[]){gd_maximum(in[0], in[1]), gd_minimum(in[0], in[1])}, 2, 1);
}

static gd_tensor *losses(gd_tensor *const *in)
{
    return gd_concat(
        (gd_tensor *[]){gd_l1_loss(in[0], in[1], GD_NONE), gd_clamp(in[0], -1, 1), gd_abs(in[0])},
        3, 1);
}

#define MATRIX(m, n)      \
    {                     \
        2, {m, n}, NORMAL \
    }
#define VECTOR(n)      \
    {                  \
        1, {n}, NORMAL \
    }

static const model models[] = {
    {"a bias before batch_norm", bias_batch_norm, .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5)}},
    {"a large bias before batch_norm", bias_batch_norm,
     .in = {{2, {6, 4}, LARGE}, MATRIX(5, 4), {1, {5}, LARGE}}},
    {"a small bias before batch_norm", bias_batch_norm,
     .in = {MATRIX(6, 4), MATRIX(5, 4), {1, {5}, SMALL}}},
    {"conv2d's bias before batch_norm", conv_batch_norm,
     .in = {{4, {2, 2, 4, 4}, NORMAL}, {4, {3, 2, 3, 3}, NORMAL}, VECTOR(3)}},
    {"conv2d's bias before group_norm", conv_group_norm,
     .in = {{4, {2, 2, 4, 4}, NORMAL}, {4, {3, 2, 3, 3}, NORMAL}, VECTOR(3)}, .kinks = true},
    {"a scale before batch_norm", weight_batch_norm, .in = {MATRIX(6, 4), VECTOR(4)}},
    {"a shift before layer_norm", shift_layer_norm, .in = {MATRIX(6, 5), MATRIX(6, 1), VECTOR(5)}},
    {"a scale before rms_norm", scale_rms_norm, .in = {MATRIX(6, 5), MATRIX(6, 1), VECTOR(5)}},
    {"a shift before softmax", shift_softmax, .in = {MATRIX(6, 5), MATRIX(6, 1)}},
    {"a far shift before softmax", shift_softmax, .in = {MATRIX(6, 5), {2, {6, 1}, FAR}}},
    {"a shift before cross_entropy", shift_cross_entropy,
     .in = {MATRIX(5, 6), MATRIX(5, 1), MATRIX(5, 6)}},
    {"a shift before log_softmax", shift_log_softmax,
     .in = {MATRIX(5, 3), MATRIX(3, 6), MATRIX(5, 1)}},
    {"softmax's sum", logits_sum, .in = {MATRIX(5, 6)}},
    {"layer_norm's sum", norm_sum, .in = {MATRIX(5, 6)}, .nothing = true},
    {"attention's key bias", key_bias,
     .in = {{3, {2, 5, 8}, NORMAL}, MATRIX(8, 8), MATRIX(8, 8), VECTOR(8)}},
    {"attention's key bias by hand", key_bias_by_hand,
     .in = {{3, {2, 5, 4}, NORMAL}, MATRIX(4, 4), MATRIX(4, 4), VECTOR(4)}},
    {"a shift before differences", differences, .in = {MATRIX(5, 6), MATRIX(5, 1)}},
    {"a scale before cosine_similarity", cosine, .in = {MATRIX(5, 6), MATRIX(5, 6), MATRIX(5, 1)}},
    {"a row of one, divided by its norm", sign_of_one, .in = {MATRIX(8, 1)}},
    {"correlations of two", correlation, .in = {MATRIX(8, 2)}},
    {"correlations", correlation, .in = {MATRIX(3, 6)}},
    {"a shift before std", variance, .in = {MATRIX(5, 6), MATRIX(5, 1)}},
    {"a bias of two layers", twice_bias,
     .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5), MATRIX(5, 5)}},
    {"linear, layer_norm, gelu, linear", mlp,
     .in = {MATRIX(6, 4), MATRIX(5, 4), VECTOR(5), MATRIX(3, 5)}},

    {"max_pool2d", pool, .in = {{4, {1, 2, 4, 4}, TIES}}, .kinks = true},
    {"max_pool2d of relu", pool_relu, .in = {{4, {1, 1, 2, 8}, TIES}}, .kinks = true},
    {"tanh, max_pool2d, relu", relu_pool, .in = {{4, {1, 1, 4, 5}, TIES}}, .kinks = true},
    {"sort", sorted, .in = {{2, {2, 8}, TIES}}, .kinks = true},
    {"sort of relu", sorted_relu, .in = {{2, {2, 8}, TIES}}, .kinks = true},
    {"the median", median, .in = {{2, {4, 5}, TIES}}, .kinks = true},
    {"topk", top, .in = {{2, {2, 8}, TIES}}, .kinks = true},
    {"max and min", largest, .in = {{2, {3, 6}, TIES}}, .kinks = true},
    {"maximum and minimum", of_two, .in = {{2, {3, 4}, TIES}, {2, {3, 4}, TIES}}, .kinks = true},
    {"l1_loss, clamp and abs", losses, .in = {{2, {3, 4}, TIES}, {2, {3, 4}, TIES}}, .kinks = true},
};

static void fill(gd_tensor *x, kind_of_values how)
{
    double v[256];
    const int64_t n = gd_tensor_count(x);
    ck_assert_int_le(n, 256);
    gd_random_normal(x, 0, 1);
    gd_tensor_read_f64(x, v, n);
    for (int64_t i = 0; i < n; i++) {
        if (how == TIES) v[i] = (double)(int)(v[i] + 3) - 3; /* toward 0 */
        if (how == LARGE) v[i] *= 1e3;
        if (how == SMALL) v[i] *= 1e-4;
        if (how == FAR) v[i] += 2e3;
    }
    gd_tensor_write_f64(x, v, n);
}

static gd_tensor *apply(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return ((const model *)user)->apply(in);
}

static gd_verdict check(const model *m, uint64_t seed, gd_dtype dtype)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1, .seed = seed});
    gd_tensor *in[MOST];
    gd_gradcheck_report report;
    int count = 0;
    for (; count < MOST && m->in[count].ndim; count++) {
        in[count] = gd_tensor_create(ctx, dtype, m->in[count].ndim, m->in[count].shape);
        fill(in[count], m->in[count].values);
        gd_tensor_set_requires_grad(in[count], true);
    }
    gd_gradcheck_function(ctx, m->name, apply, (void *)m, in, count,
                          &(gd_gradcheck_options){.seed = seed}, &report);
    ck_assert_no_error(ctx);
    const gd_verdict verdict = report.verdict;
    const bool fine = verdict == GD_VERDICT_PASS || (m->kinks && verdict == GD_VERDICT_KINK) ||
                      (m->nothing && verdict == GD_VERDICT_INCONCLUSIVE);
    if (!fine) {
        printf("%s, seed %d: %s\n", m->name, (int)seed, gd_verdict_name(verdict));
        gd_gradcheck_print(&report, stdout, true);
        fflush(stdout);
    }
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
    return fine ? GD_VERDICT_PASS : verdict;
}

/* Counts the verdicts of several seeds: no right model fails. Float32 may be too coarse to tell. */
static void no_alarm(const model *m, gd_dtype dtype, bool may_be_undecided)
{
    const char *given = getenv("GRADUS_SEEDS");
    const int seeds = given ? atoi(given) : 6;
    int fails = 0, undecided = 0;
    for (int seed = 0; seed < seeds; seed++) {
        const gd_verdict verdict = check(m, (uint64_t)seed, dtype);
        fails += verdict == GD_VERDICT_FAIL;
        undecided += verdict != GD_VERDICT_FAIL && verdict != GD_VERDICT_PASS;
    }
    ck_assert_msg(!fails && (may_be_undecided || !undecided),
                  "%s in %s: of %d seeds %d fail, %d are undecided", m->name, gd_dtype_name(dtype),
                  seeds, fails, undecided);
}

LOOP_TEST(everyday_models_pass_in_float64, (sizeof models / sizeof *models))
{
    no_alarm(&models[_i], GD_FLOAT64, false);
}

LOOP_TEST(everyday_models_pass_in_float32, (sizeof models / sizeof *models))
{
    no_alarm(&models[_i], GD_FLOAT32, true);
}

/* ---- A choice at ties, of an op that is not the library's ------------------------------------ */

/* y[i] = max(x[i], x[i + 1]); where both are equal, dx gets these parts of dy. */
typedef struct parts {
    double first, second;
    bool right;
} parts;

static gd_status pairs_shape(const gd_call *call, gd_shapes *out)
{
    out->output[0] = gd_spec_like(call->input[0]);
    out->output[0].shape[0]--;
    return GD_OK;
}

static gd_status pairs_forward(const gd_call *call)
{
    const double *x = gd_tensor_data(call->input[0]);
    double *y = gd_tensor_data(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->output[0]); i++)
        y[i] = x[i] > x[i + 1] ? x[i] : x[i + 1];
    return GD_OK;
}

static gd_status pairs_backward(const gd_call *call)
{
    const parts *p = call->args;
    const double *x = gd_tensor_data(call->input[0]), *dy = gd_tensor_data(call->doutput[0]);
    double *dx = gd_tensor_data(call->dinput[0]);
    const int64_t n = gd_tensor_count(call->input[0]);
    for (int64_t i = 0; i < n && !call->accumulate[0]; i++) dx[i] = 0;
    for (int64_t i = 0; i < n - 1; i++) {
        const bool tie = x[i] == x[i + 1], first = x[i] > x[i + 1];
        dx[i] += dy[i] * (tie ? p->first : first);
        dx[i + 1] += dy[i] * (tie ? p->second : !first);
    }
    return GD_OK;
}

static const parts kinds[] = {{1, 0, true},       {0, 1, true},      {0.5, 0.5, true},
                              {0.1, 0.9, true},   {1.2, 0, false},   {0, 2, false},
                              {-0.3, 1.3, false}, {0.5, -0.5, false}};

static const gd_op pairs = {.name = "pairs",
                            .inputs = 1,
                            .input_names = {"x"},
                            .outputs = 1,
                            .args_size = sizeof(parts),
                            .backward_reads_inputs = GD_BIT(0),
                            .shape = pairs_shape,
                            .forward = {pairs_forward, NULL},
                            .backward = {pairs_backward, NULL}};

static gd_tensor *pairs_of(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_apply(&pairs, in, 1, user);
}

static void ck_choice(gd_context *ctx, const parts *p, const gd_gradcheck_report *report, int seed)
{
    ck_assert_no_error(ctx);
    const bool passes = report->verdict == GD_VERDICT_PASS || report->verdict == GD_VERDICT_KINK;
    ck_assert_msg(p->right ? passes : report->verdict == GD_VERDICT_FAIL,
                  "with %g and %g of dy, seed %d: %s", p->first, p->second, seed,
                  gd_verdict_name(report->verdict));
}

LOOP_TEST(each_output_may_choose_at_ties, sizeof kinds / sizeof *kinds)
{
    const parts *p = &kinds[_i];
    const gd_case all_equal = {"all_equal", p, GD_INPUTS({GD_CONSTANT(2), GD_DIMS(6)}),
                               .kinks = true};
    for (int seed = 0; seed < 20; seed++) {
        const gd_gradcheck_options options = {.seed = (uint64_t)seed};
        gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
        gd_gradcheck_report report;
        gd_gradcheck_case(ctx, &pairs, &all_equal, &options, &report);
        ck_choice(ctx, p, &report, seed);
        gd_gradcheck_report_free(&report);

        gd_tensor *x =
            gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(8), (double[]){1, 1, 1, 2, 2, 3, 0, 0});
        gd_tensor_set_requires_grad(x, true);
        gd_gradcheck_function(ctx, "pairs", pairs_of, (void *)p, &x, 1, &options, &report);
        ck_choice(ctx, p, &report, seed);
        gd_gradcheck_report_free(&report);
        gd_context_free(ctx);
    }
}

CHECK_MAIN("gradcheck of everyday models", 300)
