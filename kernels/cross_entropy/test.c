/* test.c - cross_entropy against its plain twin and its definition, and far from 0 against
 * -log(softmax(x)[t]) in long double. */
#include "each_context.h"
#include "twin.h"

#include "cross_entropy/cross_entropy.h"

TWIN(cross_entropy)

#include <string.h>

enum { ROWS = 6, VOCAB = 20 };

/* The mean loss of rows of x, and dx. */
static double reference(const double *x, const int32_t *targets, double *dx)
{
    long double loss = 0;
    for (int i = 0; i < ROWS; i++, x += VOCAB, dx += VOCAB) {
        long double sum = 0, max = -INFINITY;
        for (int j = 0; j < VOCAB; j++) max = fmaxl(max, x[j]);
        for (int j = 0; j < VOCAB; j++) sum += expl(x[j] - max);
        loss += logl(sum) + (max - x[targets[i]]);
        for (int j = 0; j < VOCAB; j++)
            dx[j] = (double)((expl(x[j] - max) / sum - (j == targets[i])) / ROWS);
    }
    return (double)(loss / ROWS);
}

static void check_far(double mean, double scale, gd_dtype dtype)
{
    uint64_t seed = 1;
    const int32_t targets[ROWS] = {0, 7, 19, 3, 3, 12};
    const double low = mean - 2 * scale, high = mean + 2 * scale;
    gd_tensor *x = random_leaf(ctx, dtype, GD_SHAPE(ROWS, VOCAB), low, high, &seed);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(ROWS), targets);
    double *xv = values_of(x), dx[ROWS * VOCAB];
    const double loss = reference(xv, targets, dx), rtol = dtype == GD_FLOAT64 ? 1e-13 : 2e-6;
    gd_tensor *y = gd_keep(gd_cross_entropy(x, t));
    assert_near(y, &loss, 1, (bound){1, rtol, 1}, "loss"); /* a difference of terms of size 1 */
    gd_backward(y);
    assert_near(gd_grad(x), dx, 1, (bound){1.0 / ROWS, rtol, 1}, "dx");
    free(xv);
    gd_step_end(ctx);
}

/* exp overflows at 88 in float32; a logsumexp of 10000, rounded to float32, would be off by 0.0005
 * and so would be every probability. */
LOOP_TEST(test_far_from_zero, 4)
{
    static const double means[] = {-1e4, 1e4, 500, 1e6};
    check_far(means[_i], 2, GD_FLOAT32);
    check_far(means[_i], 2, GD_FLOAT64);
    check_far(0, 300, GD_FLOAT32);
}

static gd_tensor *logits_of(gd_context *ctx, int64_t rows, int64_t vocab, const float *values)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(rows, vocab), values);
    gd_tensor_set_requires_grad(x, true);
    return x;
}

TEST(test_infinities_and_nan)
{
    static const struct {
        float x[3];
        int32_t target;
        double loss; /* NaN: NaN */
        bool finite_gradient;
    } rows[] = {
        {{1, -INFINITY, 1}, 0, 0.69314718, true}, /* a masked class has no probability */
        {{1, -INFINITY, 1}, 1, INFINITY, true},   /* and is infinitely surprising */
        {{-INFINITY, -INFINITY, -INFINITY}, 0, NAN, false},
        {{1, INFINITY, 1}, 1, NAN, false},
        {{1, NAN, 1}, 0, NAN, false},
        {{3e38f, -3e38f, 0}, 0, 0, true},
    };
    for (int i = 0; i < 6; i++) {
        gd_tensor *x = logits_of(ctx, 1, 3, rows[i].x);
        gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(1), &rows[i].target);
        gd_tensor *y = gd_cross_entropy(x, t);
        gd_backward(y);
        ck_assert_no_error(ctx);
        double loss = gd_item(y);
        arrays_near(&loss, &rows[i].loss, 1, (bound){0, 1e-6, 0}, GD_FLOAT32, "loss");
        double *dx = values_of(gd_grad(x));
        for (int j = 0; j < 3; j++) ck_assert(isfinite(dx[j]) || !rows[i].finite_gradient);
        if (i == 0) ck_assert(dx[1] == 0 && fabs(dx[2] - 0.5) < 1e-6);
        free(dx);
        gd_step_end(ctx);
    }
}

/* Rows that do not count have a gradient of 0 even where their logits are NaN, and without any row
 * the mean is NaN and the sum 0. */
TEST(test_ignored)
{
    const float values[] = {NAN, 1, 2, 1, 1, 1};
    const int32_t one[] = {-1, 2}, none[] = {-1, -1};
    gd_tensor *x = logits_of(ctx, 2, 3, values);
    for (int sum = 0; sum < 2; sum++) {
        gd_cross_entropy_options options = {.reduction = sum ? GD_SUM : GD_MEAN,
                                            .ignore_index = -1};
        gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), one);
        gd_tensor *y = gd_cross_entropy_with(x, t, &options);
        gd_backward(y);
        ck_assert_no_error(ctx);
        ck_assert(fabs(gd_item(y) - log(3)) < 1e-6);
        const float *dx = gd_tensor_data(gd_grad(x));
        ck_assert(dx[0] == 0 && dx[1] == 0 && dx[2] == 0 && fabs(dx[5] + 2.0 / 3) < 1e-6);
        gd_grad_clear(x);
        gd_tensor_write(t, none, sizeof none);
        y = gd_cross_entropy_with(x, t, &options);
        gd_backward(y);
        ck_assert_no_error(ctx);
        ck_assert(sum ? gd_item(y) == 0 : isnan(gd_item(y)));
        dx = gd_tensor_data(gd_grad(x));
        for (int i = 0; i < 6; i++) ck_assert(dx[i] == 0);
        gd_grad_clear(x);
        gd_step_end(ctx);
    }
}

TEST(test_empty)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 4));
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(0));
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *mean = gd_cross_entropy(x, t);
    gd_tensor *sum = gd_cross_entropy_with(x, t, &(gd_cross_entropy_options){.reduction = GD_SUM});
    gd_backward_from((gd_tensor *[]){mean, sum}, 2, NULL);
    ck_assert_no_error(ctx);
    ck_assert(isnan(gd_item(mean)) && gd_item(sum) == 0);
}

/* Logits that an op made and nobody else reads: the gradient takes their memory. */
TEST(test_gradient_over_logits)
{
    const int32_t targets[ROWS] = {0, 19, 5, 17, 5, 1};
    double *first = NULL;
    size_t peak[2];
    for (int keep = 0; keep < 2; keep++) {
        uint64_t seed = 4;
        gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true});
        gd_tensor *x = random_leaf(ctx, GD_FLOAT32, GD_SHAPE(ROWS, VOCAB), -2, 2, &seed);
        gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(ROWS), targets);
        gd_tensor *logits = gd_rms_norm(x, NULL, 0.1);
        if (keep) gd_keep(logits);
        gd_backward(gd_cross_entropy(logits, t));
        ck_assert_no_error(ctx);
        double *dx = values_of(gd_grad(x));
        first = first ? first : memcpy(zeros(ROWS * VOCAB), dx, ROWS * VOCAB * sizeof *dx);
        arrays_near(dx, first, ROWS * VOCAB, (bound){0}, GD_FLOAT32, "dx");
        peak[keep] = gd_memory(ctx).peak[GD_MEMORY_GRADIENTS];
        free(dx);
        gd_context_free(ctx);
    }
    ck_assert_uint_eq(peak[1] - peak[0], ROWS * VOCAB * sizeof(float));
    free(first);
}

TEST(test_refused)
{
    const int32_t bad[] = {0, 3, -1, 4};
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(4, 4));
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(4), bad);
    REFUSED(gd_cross_entropy(x, t), "cross_entropy: targets[2] is -1, wanted 0 to 3");
    gd_cross_entropy_options options = {.ignore_index = -1};
    REFUSED(gd_cross_entropy_with(x, t, &options),
            "cross_entropy: targets[3] is 4, wanted 0 to 3 or the ignore index");
}

/* ---- Class weights, smoothing, a loss a row, probabilities -------------------------------- */

/* Log-probabilities of ln 1/4 and ln 3/4, by hand. */
TEST(test_soft_by_hand)
{
    const float l3 = 1.0986122886681098f, logits[] = {0, l3, l3, 0};
    gd_tensor *x = logits_of(ctx, 2, 2, logits);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 0});
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){3, 1});
    gd_tensor *q = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){0.5, 0.5, 1, 0});
    const double a = log(4), b = log(4.0 / 3); /* the losses of the two probabilities */
    gd_cross_entropy_options options = {.reduction = GD_NONE};
    assert_sums("none", gd_cross_entropy_with(x, t, &options), (double[]){a, b}, 1e-6);
    options.weight = w;
    assert_sums("weight", gd_cross_entropy_with(x, t, &options), (double[]){3 * a, 3 * b}, 1e-6);
    options.reduction = GD_MEAN;
    assert_sums("mean", gd_cross_entropy_with(x, t, &options), (double[]){(a + b) / 2}, 1e-6);
    assert_sums("q", gd_cross_entropy_with(x, q, &options),
                (double[]){(1.5 * a + 0.5 * b + 3 * b) / 2}, 1e-6);
    options = (gd_cross_entropy_options){.reduction = GD_SUM, .label_smoothing = 0.5};
    assert_sums("smoothing", gd_cross_entropy_with(x, t, &options), (double[]){a + b}, 1e-6);
    options.label_smoothing = 1;
    assert_sums("all of it", gd_cross_entropy_with(x, t, &options), (double[]){a + b}, 1e-6);
    gd_tensor *matrix = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 1), (float[]){0, l3});
    gd_tensor *one = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(1, 1), (float[]){1});
    gd_tensor *first = gd_slice(t, 0, 0, 1);
    options.label_smoothing = 0.5; /* gd_linear_cross_entropy as two ops */
    assert_sums("linear", gd_linear_cross_entropy(one, matrix, first, &options),
                (double[]){0.75 * a + 0.25 * b}, 1e-6);
}

/* Weights that are all 0 leave nothing to divide by; a class without a share may be -inf. */
TEST(test_soft_edges)
{
    const float logits[] = {0, -INFINITY, 0, NAN, 1, 2};
    gd_tensor *x = logits_of(ctx, 2, 3, logits);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 1});
    gd_tensor *zero = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor *q = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 3), (float[]){.5, 0, .5, 0, 0, 0});
    gd_tensor_fill(zero, 0);
    gd_cross_entropy_options options = {.weight = zero};
    gd_tensor *y = gd_cross_entropy_with(x, t, &options);
    gd_backward(y);
    ck_assert_no_error(ctx);
    double *dx = values_of(gd_grad(x));
    ck_assert(isnan(gd_item(y)));
    for (int i = 0; i < 6; i++) ck_assert(isnan(dx[i]));
    free(dx);
    gd_grad_clear(x);
    gd_tensor_set_requires_grad(q, true);
    options = (gd_cross_entropy_options){.reduction = GD_SUM};
    y = gd_cross_entropy_with(x, q, &options);
    gd_backward(y);
    ck_assert_no_error(ctx);
    ck_assert(fabs(gd_item(y) - log(2)) < 1e-6);
    assert_sums("dx", gd_grad(x), (double[]){0, 0, 0, 0, 0, 0}, 1e-6);
    assert_sums("dq", gd_grad(q), (double[]){log(2), INFINITY, log(2), NAN, NAN, NAN}, 1e-6);
    gd_grad_clear(x);
    /* Ignored rows count for nothing, with smoothing too; without any row the mean is NaN. */
    options = (gd_cross_entropy_options){.ignore_index = 1, .label_smoothing = 0.1};
    gd_tensor *both = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){1, 1});
    y = gd_cross_entropy_with(x, both, &options);
    gd_backward(y);
    ck_assert_no_error(ctx);
    ck_assert(isnan(gd_item(y)));
    assert_sums("dx", gd_grad(x), (double[]){0, 0, 0, 0, 0, 0}, 0);
    options.reduction = GD_NONE;
    assert_sums("none", gd_cross_entropy_with(x, both, &options), (double[]){0, 0}, 0);
    gd_tensor *none = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(0, 3));
    y = gd_cross_entropy(none, none);
    ck_assert(isnan(gd_item(y)));
    y = gd_cross_entropy_with(none, none, &(gd_cross_entropy_options){.reduction = GD_NONE});
    ck_assert_int_eq(gd_tensor_count(y), 0);
}

/* By the definition, too, the targets' weights of 0 leave nothing to divide what smoothing
 * spreads by. */
TEST(test_definition_of_weights_of_0)
{
    static gd_op op;
    op = gd_op_cross_entropy;
    op.forward[GD_CPU] = op.backward[GD_CPU] = NULL;
    const gd_cross_entropy_args args = {.smoothing = 0.1};
    gd_tensor *in[] = {logits_of(ctx, 2, 3, (float[]){0.5F, -0.25F, 1, 0, 2, -1}),
                       gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), (int32_t[]){0, 0}),
                       gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){0, 2, 0.5F})};
    gd_tensor *y = gd_apply(&op, in, 3, &args);
    ck_assert_double_nan(gd_item(y));
    gd_backward(y);
    assert_sums("dx", gd_grad(*in), (double[]){NAN, NAN, NAN, NAN, NAN, NAN}, 0);
}

/* Where PyTorch's loss is NaN, or would be without the shares of 0. */
TEST(test_soft_weights)
{
    const float logits[] = {0.5F, -0.25F, 1, 0, 2, -1};
    const int32_t all_zero[] = {0, 0};
    gd_tensor *x = logits_of(ctx, 2, 3, logits);
    gd_tensor *t = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(2), all_zero);
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor_write_f64(w, (double[]){0, 2, 0.5}, 3);
    for (int reduction = GD_MEAN; reduction <= GD_NONE; reduction++) {
        for (double eps = 0.1; eps <= 1; eps += 0.9) { /* the targets' weights are 0 */
            gd_cross_entropy_options options = {
                .reduction = (gd_reduction)reduction, .weight = w, .label_smoothing = eps};
            gd_tensor *y = gd_cross_entropy_with(x, t, &options);
            gd_backward_from(&y, 1, NULL);
            double *loss = values_of(y), *dx = values_of(gd_grad(x));
            ck_assert_no_error(ctx);
            for (int64_t i = 0; i < gd_tensor_count(y); i++)
                ck_assert(reduction == GD_MEAN ? isnan(loss[i]) : isfinite(loss[i]));
            for (int i = 0; i < 6; i++)
                ck_assert(reduction == GD_MEAN ? isnan(dx[i]) : isfinite(dx[i]));
            free(loss);
            free(dx);
            gd_grad_clear(x);
        }
    }
    /* An infinite weight of a class that is no target. */
    gd_tensor_write_f64(w, (double[]){1, INFINITY, 1}, 3);
    gd_tensor *y = gd_cross_entropy_with(x, t, &(gd_cross_entropy_options){.weight = w});
    gd_backward(y);
    const double weighted = gd_item(y);
    double *dx = values_of(gd_grad(x));
    gd_grad_clear(x);
    y = gd_cross_entropy(x, t);
    gd_backward(y);
    ck_assert_double_eq_tol(weighted, gd_item(y), 1e-6);
    assert_sums("dx", gd_grad(x), dx, 1e-6);
    free(dx);
    /* Ignored rows may hold anything. */
    gd_tensor *odd = logits_of(ctx, 2, 3, (float[]){NAN, INFINITY, 1, 0, 2, -1});
    gd_tensor_write(t, (int32_t[]){2, 0}, 8);
    for (double eps = 0; eps < 0.2; eps += 0.1) {
        y = gd_cross_entropy_with(
            odd, t, &(gd_cross_entropy_options){.ignore_index = 2, .label_smoothing = eps});
        gd_backward(y);
        dx = values_of(gd_grad(odd));
        ck_assert(isfinite(gd_item(y)) && isfinite(dx[3]) && dx[3] != 0);
        ck_assert(dx[0] == 0 && dx[1] == 0 && dx[2] == 0);
        free(dx);
        gd_grad_clear(odd);
    }
}

/* dw_j = sum over rows of q_ij (L_i - x_ij), of the logits above; a share of 0 hides a
 * logit of -inf. */
TEST(test_gradient_of_class_weights)
{
    const float l3 = 1.0986122886681098f, logits[] = {0, l3, -INFINITY, 0};
    gd_tensor *x = logits_of(ctx, 2, 2, logits);
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){3, 0});
    gd_tensor *q = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){0.25, 0.75, 0, 1});
    const double a = log(4) / 4,
                 b = 0.75 * log(4.0 / 3); /* the first row's; the second has loss 0 */
    gd_tensor_set_requires_grad(w, true);
    for (int both = 0; both < 2; both++) { /* dx overwrites x if it can: after dw */
        gd_cross_entropy_options options = {.weight = w};
        gd_tensor_set_requires_grad(x, both);
        gd_backward(gd_cross_entropy_with(gd_scale(x, 1), q, &options));
        assert_sums("dw", gd_grad(w), (double[]){a / 2, b / 2}, 1e-6);
        gd_backward(gd_cross_entropy_with(gd_scale(x, 1), q, &options));
        assert_sums("added", gd_grad(w), (double[]){a, b}, 1e-6);
        gd_grad_clear(w);
        options.label_smoothing = 1; /* gives the -inf a share */
        gd_backward(gd_cross_entropy_with(x, q, &options));
        double smoothed[2];
        gd_tensor_read_f64(gd_grad(w), smoothed, 2);
        ck_assert_double_eq(smoothed[0], INFINITY);
        ck_assert_double_eq_tol(smoothed[1], log(4.0 / 3) / 4, 1e-6);
        gd_grad_clear(w);
        gd_step_end(ctx);
    }
}

TEST(test_soft_refused)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3));
    gd_tensor *t = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2));
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_cross_entropy_options options = {.weight = w};
    gd_tensor_set_requires_grad(w, true);
    REFUSED(gd_cross_entropy_with(x, t, &options),
            "cross_entropy: weight requires a gradient, which class weights have only "
            "with targets that are probabilities: give gd_detach of it");
    options = (gd_cross_entropy_options){.ignore_index = 1};
    REFUSED(gd_cross_entropy_with(x, x, &options),
            "cross_entropy: given an ignore index, but targets are probabilities");
    options = (gd_cross_entropy_options){.reduction = GD_NONE};
    gd_tensor_fill(t, 3);
    REFUSED(gd_cross_entropy_with(x, t, &options), "cross_entropy: targets[0] is 3, wanted 0 to 2");
}

/* The short kernels against the shares of the derivation; and these, with targets or probabilities,
 * class weights and smoothing, against the definition. */
LOOP_TEST(kernels_are_the_derivation, test_rounds(96))
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    const gd_dtype dtype = dtypes[_i % 4];
    const bool soft = _i / 4 % 2, weighs = _i / 8 % 2, smooth = _i / 16 % 2;
    uint64_t seed = 500 + (uint64_t)_i;
    const int64_t M = random_size(&seed, 1, 30), V = random_size(&seed, 1, _i % 5 ? 70 : 1000);
    const layout way = (layout)(_i % LAYOUTS);
    const gd_cross_entropy_args args = {.reduction = (gd_reduction)(_i / 32 % 3),
                                        .ignore_index = 1,
                                        .use_ignore_index = !soft && random_chance(&seed, 0.5),
                                        .smoothing = smooth ? 0.1 : 0};
    gd_tensor *in[] = {random_tensor(ctx, dtype, SHAPE(M, V), way, -3, 3, &seed),
                       soft ? random_tensor(ctx, dtype, SHAPE(M, V), way, 0, 1, &seed)
                            : random_leaf(ctx, GD_INT32, GD_SHAPE(M), 0, (double)V, &seed),
                       weighs ? random_tensor(ctx, dtype, SHAPE(V), PACKED, 0.5, 2, &seed) : NULL};
    if (weighs && !soft) gd_tensor_set_requires_grad(in[2], false);
    static gd_op other;
    other = *cross_entropy_twin();
    if (soft || weighs || smooth || args.reduction == GD_NONE)
        other.forward[GD_CPU] = other.backward[GD_CPU] = NULL;
    assert_twin(&other, in, 3, &args, 100 * tolerance_of(dtype), &seed);
}

CHECK_MAIN_WITHIN("cross_entropy", setup, teardown)
