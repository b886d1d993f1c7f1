/* test_options.c - the one rule of options (context.h): an unset field takes its default, and 0 can
 * be set. */
#include <math.h>

#include "each_context.h"

static gd_tensor *row(double a, double b)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1, 2));
    gd_tensor_write_f64(t, (double[]){a, b}, 2);
    return t;
}

static double first(gd_tensor *t)
{
    return gd_item(gd_slice(gd_reshape(t, GD_SHAPE(gd_tensor_count(t))), 0, 0, 1));
}

TEST(a_field_is_default_zero_or_itself)
{
    ck_assert_double_eq(gd_option(0, 0.9), 0.9);
    ck_assert_double_eq(gd_option(0.5, 0.9), 0.5);
    ck_assert_double_eq(gd_option(GD_ZERO, 0.9), 0);
    ck_assert_double_eq(gd_option(gd_literal(0), 0.9), 0);
    ck_assert_double_eq(gd_option(gd_literal(-3), 0.9), -3);
}

TEST(rms_norm_has_an_eps)
{
    gd_tensor *zeros = row(0, 0), *x = row(3, 4), *sum;
    const gd_rms_norm_options offset = {.offset = 1}, zero = {.eps = GD_ZERO};
    ck_assert_double_eq(first(gd_rms_norm_with(zeros, NULL, NULL, NULL)), 0);
    ck_assert_double_eq(first(gd_rms_norm_with(zeros, NULL, NULL, &offset)), 0);
    ck_assert_double_eq(first(gd_add_rms_norm(zeros, zeros, NULL, NULL, NULL, &sum)), 0);
    ck_assert_double_eq(first(gd_rms_norm_with(x, NULL, NULL, NULL)),
                        first(gd_rms_norm(x, NULL, 1e-5)));
    ck_assert_double_eq_tol(first(gd_rms_norm_with(x, NULL, NULL, &zero)), 3 / sqrt(12.5), 1e-15);
    ck_assert_double_eq(first(gd_rms_norm_with(x, NULL, NULL, &zero)),
                        first(gd_rms_norm(x, NULL, 0)));
}

TEST(attention_may_have_no_scale)
{
    gd_tensor *q = gd_reshape(row(5, 1), GD_SHAPE(1, 2, 1, 1));
    gd_tensor *v = gd_reshape(row(1, 3), GD_SHAPE(1, 2, 1, 1));
    const gd_attention_options even = {.scale = GD_ZERO}, unit = {.scale = 1},
                               widest = {.window = INT64_MAX};
    ck_assert_double_eq_tol(first(gd_attention(q, q, v, &even)), 2, 1e-14);
    ck_assert_double_eq(first(gd_attention(q, q, v, NULL)), first(gd_attention(q, q, v, &unit)));
    ck_assert_double_eq(first(gd_attention(q, q, v, NULL)), first(gd_attention(q, q, v, &widest)));
}

TEST(class_0_may_be_ignored)
{
    gd_tensor *logits = gd_reshape(row(1, 1), GD_SHAPE(2, 1));
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(2));
    const gd_cross_entropy_options ignore = {.ignore_index = GD_ZERO}, none = {0};
    ck_assert_double_eq(gd_item(gd_cross_entropy_with(logits, targets, &none)), 0);
    ck_assert_double_nan(gd_item(gd_cross_entropy_with(logits, targets, &ignore)));
}

/* One update of a parameter of 1 by lr 0.1 with gradient 4, after one with gradient 2. */
static double after_two_updates(const gd_adamw_options *options)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT64);
    gd_tensor *w = gd_params_add(params, "w", 0, NULL, 0);
    gd_params_finish(params);
    gd_tensor_fill(w, 1);
    gd_optimizer *adamw = gd_adamw_create(params, options);
    for (int step = 1; step <= 2; step++) {
        gd_params_clear_grads(params);
        gd_backward(gd_scale(w, 2 * step));
        gd_optimizer_step(adamw, 0.1);
        gd_step_end(ctx);
    }
    const double value = gd_item(w);
    gd_optimizer_free(adamw);
    gd_params_free(params);
    return value;
}

TEST(adamw_may_have_no_momentum)
{
    const double v = (0.001 * 16 + 0.999 * 0.001 * 4) / (1 - 0.999 * 0.999);
    const gd_adamw_options same = {0.9, 0.999, 1e-8, 0, false}, no_beta1 = {.beta1 = GD_ZERO},
                           no_eps = {.eps = GD_ZERO}, no_beta2 = {.beta2 = GD_ZERO};
    ck_assert_double_eq(after_two_updates(NULL), after_two_updates(&same));
    ck_assert_double_eq_tol(after_two_updates(&no_beta1), 0.9 - 0.1 * 4 / sqrt(v), 1e-8);
    ck_assert_double_ne(after_two_updates(&no_eps), after_two_updates(NULL));
    ck_assert_double_eq_tol(after_two_updates(&no_beta2),
                            0.9 - 0.1 * (0.1 * 4 + 0.09 * 2) / (1 - 0.81) / 4, 1e-8);
}

/* Numbers whose default is 0 may be set to 0, too. */
TEST(images_may_have_zeros)
{
    gd_tensor *x = gd_reshape(row(3, 4), GD_SHAPE(1, 1, 1, 2));
    gd_tensor *w = gd_reshape(row(5, 6), GD_SHAPE(1, 1, 1, 2));
#define ZEROS            \
    {                    \
        GD_ZERO, GD_ZERO \
    }
    const gd_conv_options conv = {.padding = ZEROS, .output_padding = ZEROS};
    const gd_conv_options no_stride = {.stride = ZEROS};
    const gd_pool_options pool = {.kernel = {1, 2}, .padding = ZEROS}, still = {{1, 2}, ZEROS, {0}};
    const gd_pad_options pad = {GD_ZERO, 1, GD_ZERO, GD_ZERO, GD_PAD_CONSTANT, GD_ZERO};
    ck_assert_double_eq(first(gd_conv2d(x, w, NULL, &conv)), 39);
    ck_assert_double_eq(first(gd_conv_transpose2d(x, w, NULL, &conv)), 15);
    ck_assert_double_eq(first(gd_conv1d(gd_squeeze(x, 2), gd_squeeze(w, 2), NULL, &conv)), 39);
    ck_assert_double_eq(first(gd_unfold(x, 1, 2, &conv)), 3);
    ck_assert_double_eq(first(gd_max_pool2d(x, &pool)), 4);
    ck_assert_double_eq(first(gd_avg_pool2d(x, &pool)), 3.5);
    ck_assert_double_eq(gd_item(gd_sum_all(gd_pad(x, &pad))), 7);
    REFUSED(gd_conv2d(x, w, NULL, &no_stride), "conv2d: stride[1] is 0, wanted 1");
    REFUSED(gd_max_pool2d(x, &still), "max_pool2d: stride[1] is 0, wanted 1");
}

TEST(batch_norm_may_have_neither_eps_nor_momentum)
{
    gd_tensor *x = gd_reshape(row(-1, 1), GD_SHAPE(2, 1));
    gd_tensor *mean = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1)),
              *var = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1));
    const gd_batch_norm_options exact = {.eps = GD_ZERO},
                                still = {.momentum = GD_ZERO, .mean = mean, .var = var},
                                usual = {.mean = mean, .var = var};
    gd_tensor_fill(var, 9);
    ck_assert_double_eq(first(gd_batch_norm(x, NULL, NULL, &exact)), -1);
    ck_assert_double_gt(first(gd_batch_norm(x, NULL, NULL, NULL)), -1);
    gd_batch_norm(x, NULL, NULL, &still);
    ck_assert_double_eq(gd_item(var), 9);
    gd_batch_norm(x, NULL, NULL, &usual);
    ck_assert_double_eq_tol(gd_item(var), 0.9 * 9 + 0.1 * 2, 1e-14);
}

TEST(the_first_element_can_be_checked_alone)
{
    const gd_op *op = gd_find_op(ctx, "exp");
    const gd_gradcheck_options only = {.only_input = "x", .only_element = GD_ZERO};
    gd_gradcheck_report report;
    gd_gradcheck_case(ctx, op, &op->cases[0], &only, &report);
    ck_assert_int_eq(report.input[0].compared, 1);
    ck_assert_int_eq(report.input[0].worst, 0);
    gd_gradcheck_report_free(&report);
}

CHECK_MAIN_WITHIN("options", setup, teardown)
