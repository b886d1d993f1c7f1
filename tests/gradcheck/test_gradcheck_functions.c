/* test_gradcheck_functions.c - gradcheck of functions of users: right ones pass and leave everything as it
 * was, wrong ones fail, and what is not a function is named. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <string.h>

static gd_context *ctx;
static gd_gradcheck_report report;

static void setup(void)
{
    ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    ck_assert_no_error(ctx);
}

static void teardown(void)
{
    gd_gradcheck_report_free(&report);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

static void ck_verdict(gd_verdict wanted)
{
    ck_assert_msg(report.verdict == wanted, "the verdict is %s, expected %s",
                  gd_verdict_name(report.verdict), gd_verdict_name(wanted));
}

/* mean((x w - 1)^2), with dropout if asked */
static gd_tensor *loss_of(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    gd_tensor *y = gd_matmul(in[0], in[1]);
    if (user) y = gd_dropout(y, *(double *)user);
    gd_tensor *error = gd_add_scalar(y, -1);
    return gd_mean(gd_mul(error, error), NULL, 0, false);
}

static gd_tensor *random_tensor(gd_dtype dtype, int64_t rows, int64_t columns, const char *name)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, 2, (int64_t[]){rows, columns});
    gd_random_normal(t, 0, 1);
    gd_tensor_set_name(t, name);
    gd_tensor_set_requires_grad(t, true);
    return t;
}

TEST(a_function_is_checked_and_left_as_it_was)
{
    gd_tensor *in[] = {random_tensor(GD_FLOAT64, 5, 4, "x"), random_tensor(GD_FLOAT64, 4, 3, "")};
    gd_tensor_set_requires_grad(in[0], false);
    double before[12], after[12], p = 0.5;
    gd_tensor_read_f64(in[1], before, 12);
    gd_random_state state = gd_random_get(ctx);
    for (int dropout = 0; dropout < 2; dropout++) {
        gd_gradcheck_report_free(&report);
        gd_gradcheck_function(ctx, "loss", loss_of, dropout ? &p : NULL, in, 2, NULL, &report);
        ck_assert_no_error(ctx);
        ck_verdict(GD_VERDICT_PASS);
        ck_assert_int_eq(report.inputs, 1);
        ck_assert_str_eq(report.input[0].name, "input 1");
        ck_assert_int_eq(report.input[0].compared, 12);
    }
    gd_tensor_read_f64(in[1], after, 12);
    ck_assert_mem_eq(before, after, sizeof before);
    ck_assert_ptr_null(gd_grad(in[1]));
    ck_assert(gd_tensor_requires_grad(in[1]) && !gd_tensor_requires_grad(in[0]));
    gd_random_state now = gd_random_get(ctx);
    ck_assert(now.seed == state.seed && now.offset == state.offset);
    ck_assert_int_eq(gd_tape_length(ctx), 0);
}

static gd_tensor *same(void *user, gd_tensor *const *in, int count)
{
    (void)count, (void)user;
    return gd_tanh(in[0]);
}

/* The gradient of a user's function, of second and third order. */
TEST(a_function_of_higher_order)
{
    gd_tensor *in[] = {random_tensor(GD_FLOAT64, 5, 4, "x"), random_tensor(GD_FLOAT64, 4, 3, "w")};
    double p = 0.5;
    for (int order = 0; order <= 3; order++) {
        for (int dropout = 0; dropout < 2; dropout++) {
            const gd_gradcheck_options options = {.order = order};
            gd_gradcheck_report_free(&report);
            gd_gradcheck_function(ctx, "loss", loss_of, dropout ? &p : NULL, in, 2, &options,
                                  &report);
            ck_assert_no_error(ctx);
            ck_verdict(GD_VERDICT_PASS);
            ck_assert_int_eq(report.order, order ? order : 1);
            ck_assert_int_eq(report.inputs, order > 1 ? 3 : 2);
            if (order > 1) ck_assert_str_eq(report.input[2].name, "u");
            ck_assert(gd_tensor_requires_grad(in[0]) && gd_tensor_requires_grad(in[1]));
        }
    }
    const gd_dtype half = GD_FLOAT16;
    const gd_gradcheck_options wrong[] = {
        {.order = 4}, {.order = -1}, {.order = 2, .dtype = &half}};
    const char *const said[] = {"gradcheck: order is 4, wanted 1, 2 or 3", "gradcheck: order is -1",
                                "gradcheck: order is 2 with dtype float16, wanted float32"};
    for (int i = 0; i < 3; i++) {
        gd_gradcheck_report other;
        gd_gradcheck_function(ctx, "tanh", same, NULL, in, 1, &wrong[i], &other);
        ck_assert_ptr_nonnull(strstr(gd_error(ctx), said[i]));
        gd_error_clear(ctx);
    }
}

TEST(a_function_in_float32)
{
    gd_tensor *in[] = {random_tensor(GD_FLOAT32, 5, 4, "x"), random_tensor(GD_FLOAT32, 4, 3, "w")};
    gd_gradcheck_function(ctx, "loss", loss_of, NULL, in, 2, NULL, &report);
    ck_assert_no_error(ctx);
    ck_verdict(GD_VERDICT_PASS);
    ck_assert_int_eq(report.dtype, GD_FLOAT32);
    ck_assert_int_eq(report.inputs, 2);
    ck_assert_str_eq(report.input[1].name, "w");
}

/* Not a function: another result each time. */
static gd_tensor *counts(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_scale(in[0], ++*(int *)user);
}

static gd_tensor *detaches(void *user, gd_tensor *const *in, int count)
{
    (void)user;
    (void)count;
    return gd_mul(in[0], gd_detach(in[0]));
}

static gd_tensor *returns_null(void *user, gd_tensor *const *in, int count)
{
    (void)user;
    (void)in;
    (void)count;
    return NULL;
}

static gd_tensor *returns_another(void *user, gd_tensor *const *in, int count)
{
    (void)in;
    (void)count;
    return user;
}

TEST(wrong_functions_fail)
{
    int calls = 0;
    gd_tensor *x = random_tensor(GD_FLOAT64, 3, 3, "x");
    gd_gradcheck_function(ctx, "counts", counts, &calls, &x, 1, NULL, &report);
    ck_verdict(GD_VERDICT_FAIL);
    gd_gradcheck_report_free(&report);
    gd_gradcheck_function(ctx, "detaches", detaches, NULL, &x, 1, NULL, &report);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_str_eq(report.input[0].finding, "a constant factor 1/2");
    gd_gradcheck_report_free(&report);
    gd_gradcheck_function(ctx, "returns_null", returns_null, NULL, &x, 1, NULL, &report);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_str_eq(report.message, "gradcheck: the function returns_null returned NULL");
    gd_gradcheck_report_free(&report);
    gd_context *other = gd_context_create(NULL);
    gd_tensor *elsewhere = gd_tensor_create(other, GD_FLOAT64, 2, (int64_t[]){3, 3});
    gd_gradcheck_function(ctx, "another", returns_another, elsewhere, &x, 1, NULL, &report);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_ptr_nonnull(strstr(report.message, "another returned a tensor of another context"));
    gd_context_free(other);
}

static gd_tensor *log_of(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_log(in[0]);
}

/* The gradient of log at 0 is dy / 0: NaN with a cotangent of zeros, and rightly so. */
TEST(zeros_may_give_nan_where_an_output_is_infinite)
{
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, 1, (int64_t[]){3}, (double[]){0, 1, 2});
    gd_tensor_set_requires_grad(x, true);
    gd_gradcheck_function(ctx, "log", log_of, NULL, &x, 1, NULL, &report);
    ck_assert_str_eq(report.input[0].behaviour, "");
}

TEST(bad_calls_are_reported)
{
    gd_gradcheck_function(ctx, "f", NULL, NULL, NULL, 0, NULL, &report);
    ck_assert_error(ctx, "gradcheck: function is NULL");
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, 1, (int64_t[]){3});
    gd_gradcheck_function(ctx, "loss", loss_of, NULL, &x, -1, NULL, &report);
    ck_assert_error(ctx, "gradcheck: count is -1, wanted at least 0");
}

CHECK_MAIN_WITHIN("gradcheck of functions", 0, setup, teardown)
