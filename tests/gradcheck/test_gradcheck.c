/* test_gradcheck.c - a right backward passes, a wrong one fails, and what finite differences cannot
 * decide is neither: verdicts, kinks, samples and reports, on ops made for the purpose. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "each_report.h"
#include "gradcheck/check.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h> /* mkdtemp, where stdlib.h lacks it */

/* ---- An op whose value and slope are chosen by its arguments ------------------------------ */

typedef enum shape_of { SQUARE, RELU, NOISE, STEEP } shape_of;

typedef struct curve_args {
    shape_of shape;
    double slope_at_zero; /* RELU: the gradient that the backward claims at 0 */
    int64_t wrong_at;     /* an element whose gradient is doubled; -1: none */
} curve_args;

static double value(const curve_args *args, double x)
{
    switch (args->shape) {
    case SQUARE:
        return x * x;
    case RELU:
        return x > 0 ? x : 0;
    case NOISE: /* the last bits of x decide about 1e-3 of it */
        return x + 1e-3 * sin(1e13 * x);
    default:
        return exp(40 * x);
    }
}

static gd_status curve_forward(const gd_call *call)
{
    int64_t n = gd_tensor_count(call->input[0]);
    for (int64_t i = 0; i < n; i++) {
        if (call->dtype == GD_FLOAT64) {
            const double *x = gd_tensor_data(call->input[0]);
            ((double *)gd_tensor_data(call->output[0]))[i] = value(call->args, x[i]);
        } else {
            const float *x = gd_tensor_data(call->input[0]);
            ((float *)gd_tensor_data(call->output[0]))[i] = (float)value(call->args, x[i]);
        }
    }
    return GD_OK;
}

static double slope(const curve_args *args, double x)
{
    switch (args->shape) {
    case SQUARE:
        return 2 * x;
    case RELU:
        return x == 0 ? args->slope_at_zero : x > 0;
    case STEEP:
        return 40 * exp(40 * x);
    default:
        return 1;
    }
}

static gd_status curve_backward(const gd_call *call)
{
    const curve_args *args = call->args;
    if (!call->dinput[0] || !call->doutput[0]) return GD_OK;
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        double factor = i == args->wrong_at ? 2 : 1;
        if (call->dtype == GD_FLOAT64) {
            const double *x = gd_tensor_data(call->input[0]);
            double *dx = gd_tensor_data(call->dinput[0]);
            double g = factor * slope(args, x[i]) * ((double *)gd_tensor_data(call->doutput[0]))[i];
            dx[i] = call->accumulate[0] ? dx[i] + g : g;
        } else {
            const float *x = gd_tensor_data(call->input[0]);
            float *dx = gd_tensor_data(call->dinput[0]);
            float g = (float)(factor * slope(args, x[i]) *
                              ((float *)gd_tensor_data(call->doutput[0]))[i]);
            dx[i] = call->accumulate[0] ? dx[i] + g : g;
        }
    }
    return GD_OK;
}

static const gd_op curve = {
    .name = "curve",
    .formula = "y = f(x)",
    .inputs = 1,
    .input_names = {"x"},
    .outputs = 1,
    .args_size = sizeof(curve_args),
    .backward_reads_inputs = GD_BIT(0),
    .shape = shape_like_x,
    .forward = {[GD_CPU] = curve_forward},
    .backward = {[GD_CPU] = curve_backward},
};

static gd_case case_of(const curve_args *args, gd_fill_kind fill, double a, double b, int64_t n)
{
    return (gd_case){"curve", args, GD_INPUTS({fill, a, b, GD_DIMS(n)})};
}

static const gd_gradcheck_input *check(const gd_case *c, const gd_gradcheck_options *options)
{
    check_case(&curve, c, options);
    return report.inputs ? &report.input[0] : NULL;
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

TEST(a_right_backward_passes)
{
    curve_args args = {.shape = SQUARE, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 20);
    const gd_gradcheck_input *in = check(&c, NULL);
    ck_verdict(GD_VERDICT_PASS);
    ck_assert_int_eq(in->elements, 20);
    ck_assert_int_eq(in->compared, 20);
    ck_assert_int_eq(in->wrong + in->kinks + in->inconclusive, 0);
    ck_assert(in->largest_error < 1e-8);
    ck_assert_str_eq(in->finding, "");
    ck_assert_str_eq(in->behaviour, "");
    ck_assert_str_eq(report.op, "curve");
}

TEST(every_dtype_works)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_FLOAT16, GD_BFLOAT16};
    for (int i = 0; i < 4; i++) {
        gd_gradcheck_options options = {.dtype = &dtypes[i]};
        curve_args args = {.shape = SQUARE, .wrong_at = -1};
        gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 20);
        check(&c, &options);
        ck_verdict(GD_VERDICT_PASS);
        args.wrong_at = 7;
        c = case_of(&args, GD_FILL_NORMAL, 1, 0.1, 20);
        const gd_gradcheck_input *in = check(&c, &options);
        ck_verdict(GD_VERDICT_FAIL);
        ck_assert_int_eq(in->wrong, 1);
        ck_assert_int_eq(in->worst, 7);
        ck_assert_ptr_nonnull(strstr(in->finding, "a single element"));
    }
}

TEST(an_overflow_of_float16_is_right)
{
    ck_assert(gd_check_overflows(GD_FLOAT16, -INFINITY, -7e4));
    ck_assert(!gd_check_overflows(GD_FLOAT16, -INFINITY, 7e4));
    ck_assert(!gd_check_overflows(GD_FLOAT16, INFINITY, 6e4));
    ck_assert(!gd_check_overflows(GD_BFLOAT16, INFINITY, 7e4));
}

TEST(nothing_to_compare_is_not_a_pass)
{
    curve_args args = {.shape = SQUARE, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 0);
    check(&c, NULL);
    ck_verdict(GD_VERDICT_VACUOUS);
    c.may_be_empty = true;
    check(&c, NULL);
    ck_verdict(GD_VERDICT_EMPTY);
    c = case_of(&args, GD_FILL_NORMAL, 0, 1, 5);
    c.input[0].fixed = true;
    check(&c, NULL);
    ck_verdict(GD_VERDICT_VACUOUS);
    ck_assert_str_eq(report.message, "no input requires a gradient");
}

TEST(a_noisy_function_is_inconclusive)
{
    curve_args args = {.shape = NOISE, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 5);
    const gd_gradcheck_input *in = check(&c, &(gd_gradcheck_options){.seed = 3});
    ck_verdict(GD_VERDICT_INCONCLUSIVE);
    ck_assert(!in->sweep_stable);
    ck_assert_int_gt(in->sweeps, 2);
}

/* A first step far too long for a function that grows by e in 1/40; the ladder finds a better. */
TEST(a_steep_function_is_measured_with_a_shorter_step)
{
    curve_args args = {.shape = STEEP, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_UNIFORM, 4.9, 5, 30);
    const gd_gradcheck_options options = {.step = 0.05};
    check(&c, &options);
    ck_verdict(GD_VERDICT_PASS);
    args.wrong_at = 3;
    const gd_gradcheck_input *in = check(&c, &options);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_int_eq(in->wrong, 1);
    ck_assert_int_eq(in->worst, 3);
}

TEST(a_missing_backward_is_unsupported)
{
    gd_op op = curve;
    op.backward[GD_CPU] = NULL;
    curve_args args = {.shape = SQUARE, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 5);
    check_case(&op, &c, NULL);
    ck_verdict(GD_VERDICT_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(report.message, "no backward"));
}

static gd_status refuses(const gd_call *call)
{
    return gd_call_fail(call, GD_ERROR_ARGUMENT, "not today");
}

TEST(an_op_that_fails_on_its_case_fails)
{
    gd_op op = curve;
    op.backward[GD_CPU] = refuses;
    curve_args args = {.shape = SQUARE, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 5);
    check_case(&op, &c, NULL);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_str_eq(report.message, "curve: not today");
}

/* ---- Kinks -------------------------------------------------------------------------------- */

TEST(gradients_between_the_slopes_of_a_kink_are_skipped)
{
    static const double between[] = {0, 0.25, 1}, outside[] = {-0.1, 1.1, 2, NAN};
    curve_args args = {.shape = RELU, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_CONSTANT, 0, 0, 4);
    c.kinks = true;
    for (int i = 0; i < 3; i++) {
        args.slope_at_zero = between[i];
        const gd_gradcheck_input *in = check(&c, NULL);
        ck_verdict(GD_VERDICT_KINK);
        ck_assert_int_eq(in->kinks, 4);
        ck_assert_int_eq(in->compared, 0);
    }
    for (int i = 0; i < 4; i++) {
        args.slope_at_zero = outside[i];
        check(&c, NULL);
        ck_verdict(GD_VERDICT_FAIL);
    }
}

TEST(a_kink_must_be_declared)
{
    curve_args args = {.shape = RELU, .slope_at_zero = 0, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_CONSTANT, 0, 0, 4);
    check(&c, NULL);
    ck_verdict(GD_VERDICT_FAIL);
}

/* In float32 the step is so long that many elements have the kink inside it. */
TEST(a_kink_within_the_step_hides_no_wrong_gradient)
{
    gd_gradcheck_options options = {.dtype = &(gd_dtype){GD_FLOAT32}};
    for (options.seed = 0; options.seed < 20; options.seed++) {
        curve_args args = {.shape = RELU, .wrong_at = -1};
        gd_case c = case_of(&args, GD_FILL_NORMAL, 0, 1, 200);
        c.kinks = true;
        const gd_gradcheck_input *in = check(&c, &options);
        ck_verdict(GD_VERDICT_PASS);
        ck_assert_int_ge(in->compared, 195);
    }
    curve_args args = {.shape = RELU, .wrong_at = 0};
    gd_case c = case_of(&args, GD_FILL_CONSTANT, 1e-3, 0, 2);
    c.kinks = true;
    options.step = 100; /* 0.1: the kink is well inside */
    check(&c, &options);
    ck_verdict(GD_VERDICT_FAIL);
}

/* ---- Samples ------------------------------------------------------------------------------ */

TEST(a_direction_finds_what_the_sample_misses)
{
    curve_args args = {.shape = SQUARE, .wrong_at = 1234};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 2, 0.3, 5000);
    gd_gradcheck_options options = {.max_elements = 16, .only_numbers = true};
    const gd_gradcheck_input *in = check(&c, &options);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_int_eq(in->worst, 1234);
    ck_assert_int_eq(in->wrong, 1);
    ck_assert_int_eq(in->directions, 4);
    args.wrong_at = -1;
    in = check(&c, &options);
    ck_verdict(GD_VERDICT_PASS);
    ck_assert_int_eq(in->compared, 16);
}

TEST(one_element_can_be_chosen)
{
    curve_args args = {.shape = SQUARE, .wrong_at = 3};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 1, 0.1, 9);
    gd_gradcheck_options options = {.only_input = "x", .only_element = 2};
    const gd_gradcheck_input *in = check(&c, &options);
    ck_verdict(GD_VERDICT_PASS);
    ck_assert_int_eq(in->compared, 1);
    options.only_element = 3;
    in = check(&c, &options);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_int_eq(in->worst, 3);

    options.only_input = NULL;
    gd_gradcheck_report_free(&report);
    ck_assert_int_ne(gd_gradcheck_case(ctx, &curve, &c, &options, &report), GD_OK);
    ck_assert_error(ctx, "gradcheck: curve: only_element needs only_input as well");
    options.only_input = "x";
    options.only_element = 9;
    gd_gradcheck_report_free(&report);
    ck_assert_int_ne(gd_gradcheck_case(ctx, &curve, &c, &options, &report), GD_OK);
    ck_assert_error(ctx, "gradcheck: curve: element 9 is not in x [9]");
    options = (gd_gradcheck_options){.only_input = "z"};
    gd_gradcheck_report_free(&report);
    ck_assert_int_ne(gd_gradcheck_case(ctx, &curve, &c, &options, &report), GD_OK);
    ck_assert_error(ctx, "gradcheck: curve has no input z");
}

/* y = x^2, with x kept in one static buffer where each call should have a save of its own. */
static double kept[16];

static gd_status square_forward(const gd_call *call)
{
    const double *x = gd_tensor_data(call->input[0]);
    double *y = gd_tensor_data(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) y[i] = x[i] * (kept[i] = x[i]);
    return GD_OK;
}

static gd_status square_backward(const gd_call *call)
{
    double *dx = gd_tensor_data(call->dinput[0]);
    const double *dy = gd_tensor_data(call->doutput[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->dinput[0]); i++)
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + 2 * kept[i] * dy[i];
    return GD_OK;
}

TEST(a_stale_buffer_is_seen)
{
    const gd_case c = {"static", NULL, GD_INPUTS({GD_DIMS(9)})};
    gd_op square = curve;
    square.name = "square";
    square.args_size = 0;
    square.backward_reads_inputs = 0;
    square.forward[GD_CPU] = square_forward;
    square.backward[GD_CPU] = square_backward;
    check_case(&square, &c, NULL);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_msg(strstr(report.input[0].behaviour, "ran on other data before the backward"), "%s",
                  report.input[0].behaviour);
}

/* Values of 100 that differ by 1e-4: in float32 the usual step passes over all of them, and the
 * steps that do not fall to the last bits of a float. */
TEST(steps_that_are_too_long_fail_nothing)
{
    const gd_op *max = gd_find_op(ctx, "max");
    const gd_case c = {"close", max->cases[0].args, GD_INPUTS({GD_NORMAL(100, 1e-4), GD_DIMS(9)})};
    gd_gradcheck_options options = {.dtype = &(gd_dtype){GD_FLOAT32}};
    for (options.seed = 0; options.seed < 50; options.seed++) {
        check_case(max, &c, &options);
        ck_assert_int_ne(report.verdict, GD_VERDICT_FAIL);
        const gd_gradcheck_input *in = &report.input[0];
        ck_assert(!in->inconclusive || !in->sweep_stable);
    }
}

static gd_status off_by_a_little(const gd_call *call)
{
    gd_status status = gd_find_op(NULL, "sub")->backward[GD_CPU](call);
    double *dx = call->dinput[0] ? gd_tensor_data(call->dinput[0]) : NULL;
    for (int64_t i = 0; dx && i < gd_tensor_count(call->dinput[0]); i++) dx[i] *= 1.00004;
    return status;
}

TEST(a_factor_near_1_has_its_digits)
{
    const char *text;
    gd_op sub = *gd_find_op(ctx, "sub");
    sub.backward[GD_CPU] = off_by_a_little;
    check_case(&sub, &sub.cases[0], NULL);
    text = printed_report(LONG);
    ck_assert_msg(strstr(text, "ratio 1.00004"), "%s", text);
    ck_assert_msg(strstr(text, "constant factor 1.00004"), "%s", text);
    ck_assert_msg(strstr(text, "again: gradus-gradcheck sub --case same"), "%s", text);
    sub.name = "my_sub"; /* the program does not know it */
    check_case(&sub, &sub.cases[0], NULL);
    text = printed_report(LONG);
    ck_assert_msg(!strstr(text, "again:"), "%s", text);
}

TEST(bad_cases_are_reported)
{
    const gd_case good = {"bad", NULL, GD_INPUTS({GD_DIMS(3)})};
    const struct {
        gd_case_input input;
        int inputs;
        const char *words;
    } rows[] = {
        {{GD_SCALAR}, 0, "gradcheck: curve, case bad: it has 0 inputs, wanted 1 to 6"},
        {{GD_SCALAR}, 7, "it has 7 inputs, wanted 1 to 6"},
        {GD_ABSENT, 1, "it has 1 inputs, all absent, wanted 1 to 6"},
        {{.ndim = 9}, 1, "ndim of input 0 is 9, wanted 0 to 8"},
        {{GD_DIMS(2, -3)}, 1, "the shape of input 0 is [2, -3], wanted no neg"},
        {{.fill = (gd_fill_kind)5}, 1, "the fill of input 0 is 5, wanted one of gd_fill"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gd_case c = good;
        c.inputs = rows[i].inputs;
        c.input[0] = rows[i].input;
        gd_gradcheck_case(ctx, &curve, &c, NULL, &report);
        ck_assert_error(ctx, rows[i].words);
    }
    gd_op op = curve;
    op.shape = NULL;
    gd_gradcheck_case(ctx, &op, &good, NULL, &report);
    ck_assert_error(ctx, "gradcheck: the record of \"curve\" has no shape()");
}

TEST(bad_calls_are_reported)
{
    gd_case c = {.inputs = 0};
    ck_assert_int_eq(gd_gradcheck_case(NULL, &curve, &c, NULL, &report), GD_ERROR_ARGUMENT);
    gd_gradcheck_case(ctx, NULL, &c, NULL, &report);
    ck_assert_error(ctx, "gradcheck: op is NULL");
    gd_gradcheck_case(ctx, &curve, NULL, NULL, &report);
    ck_assert_error(ctx, "gradcheck: check is NULL");
    gd_gradcheck_options options = {.dtype = &(gd_dtype){GD_INT32}};
    gd_gradcheck_case(ctx, &curve, &c, &options, &report);
    ck_assert_error(ctx, "gradcheck: dtype is int32, wanted a real one");
    options = (gd_gradcheck_options){.step = NAN};
    gd_gradcheck_case(ctx, &curve, &c, &options, &report);
    ck_assert_error(ctx, "gradcheck: step is nan, wanted a finite number");
    options = (gd_gradcheck_options){.rtol = -1};
    gd_gradcheck_case(ctx, &curve, &c, &options, &report);
    ck_assert_error(ctx, "gradcheck: rtol is -1, wanted a finite number");
    gd_no_grad_begin(ctx);
    gd_gradcheck_case(ctx, &curve, &c, NULL, &report);
    gd_no_grad_end(ctx);
    ck_assert_error(ctx, "gradcheck: called after gd_no_grad_begin");
    gd_fail(ctx, GD_ERROR_IO, "an earlier error");
    ck_assert_int_eq(gd_gradcheck_case(ctx, &curve, &c, NULL, &report), GD_ERROR_IO);
    gd_error_clear(ctx);
}

/* ---- Reports ------------------------------------------------------------------------------ */

TEST(a_failure_is_reported_in_full)
{
    const char *text;
    curve_args args = {.shape = SQUARE, .wrong_at = 17};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 1, 0.1, 20);
    check(&c, &(gd_gradcheck_options){.seed = 7});
    text = printed_report(LONG);
    static const char *const wanted[] = {
        "gradcheck curve  FAIL  case curve seed 7  cpu float64  h 1e-05 central, rtol 1e-06, atol "
        "1e-09\n",
        "  x [20]: FAIL  20 compared, 1 wrong, largest error ",
        "    worst x[17]  analytic ",
        "  ratio 2\n",
        "a single element is off, by 100%",
        "    step sweep at x[17]: ",
        "numeric is stable, suspect the backward\n"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        ck_assert_msg(strstr(text, wanted[i]) != NULL, "not in the report: %s\n%s", wanted[i],
                      text);
    text = printed_report(SHORT);
    ck_assert_ptr_nonnull(strstr(text, "FAIL  20 compared, 1 wrong"));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

TEST(json_is_one_line)
{
    curve_args args = {.shape = RELU, .slope_at_zero = NAN, .wrong_at = -1};
    gd_case c = case_of(&args, GD_FILL_CONSTANT, 0, 0, 2);
    c.name = "a \"quoted\"\nname";
    check(&c, NULL);
    const char *text = printed_report(JSON);
    ck_assert_ptr_nonnull(strstr(text, "\"case\": \"a \\\"quoted\\\"\\u000aname\""));
    ck_assert_ptr_nonnull(strstr(text, "\"verdict\": \"FAIL\""));
    ck_assert_ptr_nonnull(strstr(text, "\"analytic\": null"));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

/* A program's locale may write numbers with commas; JSON must not. Needs localedef. */
TEST(json_has_points_in_any_locale)
{
    char half[16], plain[8192], folder[] = "/tmp/gradus_locale_XXXXXX", command[256];
    curve_args args = {.shape = SQUARE, .wrong_at = 17};
    gd_case c = case_of(&args, GD_FILL_NORMAL, 1, 0.1, 20);
    check(&c, &(gd_gradcheck_options){.seed = 7});
    snprintf(plain, sizeof plain, "%s", printed_report(JSON));
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/said 2>&1",
             folder, folder);
    const bool made = system(command) == 0;
    setenv("LOCPATH", folder, 1);
    if (made && setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        snprintf(half, sizeof half, "%g", 0.5);
        ck_assert_str_eq(half, "0,5");
        ck_assert_str_eq(printed_report(JSON), plain);
        snprintf(half, sizeof half, "%g", 0.5);
        ck_assert_str_eq(half, "0,5"); /* as it was */
        setlocale(LC_NUMERIC, "C");
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

CHECK_MAIN_WITHIN("gradcheck", setup, teardown)
