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
    int64_t wrong;        /* the element, from 1 on, whose gradient is doubled; 0: none */
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

enum { MOST = 5000 };

static gd_status curve_forward(const gd_call *call)
{
    const int64_t n = gd_tensor_count(call->input[0]);
    double x[MOST];
    gd_tensor_read_f64(call->input[0], x, n);
    for (int64_t i = 0; i < n; i++) x[i] = value(call->args, x[i]);
    return gd_tensor_write_f64(call->output[0], x, n);
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
    const int64_t n = gd_tensor_count(call->input[0]);
    double x[MOST], dy[MOST], dx[MOST];
    if (!call->dinput[0] || !call->doutput[0]) return GD_OK;
    gd_tensor_read_f64(call->input[0], x, n);
    gd_tensor_read_f64(call->doutput[0], dy, n);
    gd_tensor_read_f64(call->dinput[0], dx, n);
    for (int64_t i = 0; i < n; i++)
        dx[i] = (call->accumulate[0] ? dx[i] : 0) +
                (i + 1 == args->wrong ? 2 : 1) * slope(args, x[i]) * dy[i];
    return gd_tensor_write_f64(call->dinput[0], dx, n);
}

static const gd_op curve = {
    .name = "curve",
    .formula = "y = f(x)",
    .signature = "x[...] -> y[...]",
    .args_size = sizeof(curve_args),
    .backward_reads_inputs = GD_BIT(0),
    .forward = {[GD_CPU] = curve_forward},
    .backward = {[GD_CPU] = curve_backward},
};

static gd_case case_of(const curve_args *args, gd_case_input x)
{
    return (gd_case){"curve", args, .inputs = 1, .input = {x}};
}

static const gd_gradcheck_input *check(const gd_case *c, const gd_gradcheck_options *options)
{
    check_case(&curve, c, options);
    return report.inputs ? &report.input[0] : NULL;
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

#define FEW                                      \
    {                                            \
        .max_elements = 16, .only_numbers = true \
    }
#define ONLY(element)                              \
    {                                              \
        .only_input = "x", .only_element = element \
    }
/* At a kink, where the backward claims a slope of its own. */
#define CLAIM(slope) \
    .args = {.shape = RELU, .slope_at_zero = slope}, .x = {GD_CONSTANT(0), GD_DIMS(4)}

static const struct {
    curve_args args;
    gd_case_input x;
    gd_gradcheck_options options;
    bool kinks, empty; /* the case has kinks; nothing to compare is by design */
    gd_verdict verdict;
    int64_t compared, wrong, at_kinks; /* with that verdict */
    int directions;
} verdicts[] = {
    {.x = {GD_DIMS(20)}, .compared = 20},
    {.x = {GD_DIMS(0)}, .verdict = GD_VERDICT_VACUOUS},
    {.x = {GD_DIMS(0)}, .empty = true, .verdict = GD_VERDICT_EMPTY},
    {.x = {.fixed = true, GD_DIMS(5)}, .verdict = GD_VERDICT_VACUOUS},
    {{.shape = NOISE}, {GD_DIMS(5)}, {.seed = 3}, .verdict = GD_VERDICT_INCONCLUSIVE},
    /* The first step is far too long for a function that grows by e in 1/40. */
    {{.shape = STEEP}, {GD_UNIFORM(4.9, 5), GD_DIMS(30)}, {.step = 0.05}, .compared = 30},
    {{.shape = STEEP, .wrong = 4},
     {GD_UNIFORM(4.9, 5), GD_DIMS(30)},
     {.step = 0.05},
     .verdict = GD_VERDICT_FAIL,
     .compared = 30,
     .wrong = 1},
    /* Gradients between the slopes of a kink are skipped; it must be declared. */
    {CLAIM(0), .kinks = true, .verdict = GD_VERDICT_KINK, .at_kinks = 4},
    {CLAIM(0.25), .kinks = true, .verdict = GD_VERDICT_KINK, .at_kinks = 4},
    {CLAIM(1), .kinks = true, .verdict = GD_VERDICT_KINK, .at_kinks = 4},
    {CLAIM(-0.1), .kinks = true, .verdict = GD_VERDICT_FAIL, .compared = 4, .wrong = 4},
    {CLAIM(1.1), .kinks = true, .verdict = GD_VERDICT_FAIL, .compared = 4, .wrong = 4},
    {CLAIM(2), .kinks = true, .verdict = GD_VERDICT_FAIL, .compared = 4, .wrong = 4},
    {CLAIM(NAN), .kinks = true, .verdict = GD_VERDICT_FAIL, .compared = 4, .wrong = 4},
    {CLAIM(0), .verdict = GD_VERDICT_FAIL, .compared = 4, .wrong = 4},
    /* A direction finds what the sample misses. */
    {{.wrong = 1235},
     {GD_NORMAL(2, 0.3), GD_DIMS(MOST)},
     FEW,
     .verdict = GD_VERDICT_FAIL,
     .compared = 17,
     .wrong = 1,
     .directions = 4},
    {.x = {GD_NORMAL(2, 0.3), GD_DIMS(MOST)}, .options = FEW, .compared = 16, .directions = 4},
    {{.wrong = 4}, {GD_NORMAL(1, 0.1), GD_DIMS(9)}, ONLY(2), .compared = 1},
    {{.wrong = 4},
     {GD_NORMAL(1, 0.1), GD_DIMS(9)},
     ONLY(3),
     .verdict = GD_VERDICT_FAIL,
     .compared = 1,
     .wrong = 1},
};

LOOP_TEST(a_verdict_has_its_counts, sizeof verdicts / sizeof *verdicts)
{
    gd_case c = case_of(&verdicts[_i].args, verdicts[_i].x);
    c.kinks = verdicts[_i].kinks;
    c.may_be_empty = verdicts[_i].empty;
    const gd_gradcheck_input *in = check(&c, &verdicts[_i].options);
    ck_verdict(verdicts[_i].verdict);
    ck_assert_str_eq(report.op, "curve");
    ck_assert_str_eq(report.message, in ? "" : "no input requires a gradient");
    if (!in) return;
    ck_assert_int_eq(in->elements, c.input[0].shape[0]);
    ck_assert_int_eq(in->wrong, verdicts[_i].wrong);
    ck_assert_int_eq(in->kinks, verdicts[_i].at_kinks);
    ck_assert_int_eq(in->directions, verdicts[_i].directions);
    ck_assert_str_eq(in->behaviour, "");
    if (in->wrong && verdicts[_i].args.wrong)
        ck_assert_int_eq(in->worst, verdicts[_i].args.wrong - 1);
    if (report.verdict == GD_VERDICT_INCONCLUSIVE) {
        ck_assert(!in->sweep_stable && in->sweeps > 2 && in->inconclusive > 0);
        return;
    }
    ck_assert_int_eq(in->compared, verdicts[_i].compared);
    ck_assert_int_eq(in->inconclusive, 0);
    if (in->wrong) return;
    ck_assert_str_eq(in->finding, "");
    ck_assert(in->largest_error < 1e-7);
}

TEST(every_dtype_works)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_FLOAT16, GD_BFLOAT16};
    for (int i = 0; i < 4; i++) {
        gd_gradcheck_options options = {.dtype = &dtypes[i]};
        curve_args args = {.shape = SQUARE};
        gd_case c = case_of(&args, (gd_case_input){GD_DIMS(20)});
        check(&c, &options);
        ck_verdict(GD_VERDICT_PASS);
        args.wrong = 8;
        c = case_of(&args, (gd_case_input){GD_NORMAL(1, 0.1), GD_DIMS(20)});
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

static gd_status refuses(const gd_call *call)
{
    return gd_call_fail(call, GD_ERROR_ARGUMENT, "not today");
}

TEST(a_backward_that_fails_or_is_missing)
{
    gd_op op = curve;
    const curve_args args = {.shape = SQUARE};
    const gd_case c = case_of(&args, (gd_case_input){GD_DIMS(5)});
    op.backward[GD_CPU] = refuses;
    check_case(&op, &c, NULL);
    ck_verdict(GD_VERDICT_FAIL);
    ck_assert_str_eq(report.message, "curve: not today");
    op.backward[GD_CPU] = NULL;
    check_case(&op, &c, NULL);
    ck_verdict(GD_VERDICT_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(report.message, "no backward"));
}

/* In float32 the step is so long that many elements have the kink inside it. */
TEST(a_kink_within_the_step_hides_no_wrong_gradient)
{
    gd_gradcheck_options options = {.dtype = &(gd_dtype){GD_FLOAT32}};
    for (options.seed = 0; options.seed < 20; options.seed++) {
        const curve_args args = {.shape = RELU};
        gd_case c = case_of(&args, (gd_case_input){GD_DIMS(200)});
        c.kinks = true;
        const gd_gradcheck_input *in = check(&c, &options);
        ck_verdict(GD_VERDICT_PASS);
        ck_assert_int_ge(in->compared, 195);
    }
    const curve_args args = {.shape = RELU, .wrong = 1};
    gd_case c = case_of(&args, (gd_case_input){GD_CONSTANT(1e-3), GD_DIMS(2)});
    c.kinks = true;
    options.step = 100; /* 0.1: the kink is well inside */
    check(&c, &options);
    ck_verdict(GD_VERDICT_FAIL);
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
    op.signature = NULL;
    gd_gradcheck_case(ctx, &op, &good, NULL, &report);
    ck_assert_error(ctx, "gradcheck: the record of \"curve\" has no shape()");
}

static const struct {
    gd_gradcheck_options options;
    const char *words;
} bad_options[] = {
    {{.only_element = 3}, "gradcheck: curve: only_element needs only_input as well"},
    {ONLY(9), "gradcheck: curve: element 9 is not in x [9]"},
    {{.only_input = "z"}, "gradcheck: curve has no input z"},
    {{.dtype = &(const gd_dtype){GD_INT32}}, "gradcheck: dtype is int32, wanted a real one"},
    {{.step = NAN}, "gradcheck: step is nan, wanted a finite number"},
    {{.rtol = -1}, "gradcheck: rtol is -1, wanted a finite number"},
};

TEST(bad_calls_are_reported)
{
    const curve_args args = {.shape = SQUARE};
    const gd_case c = case_of(&args, (gd_case_input){GD_DIMS(9)});
    ck_assert_int_eq(gd_gradcheck_case(NULL, &curve, &c, NULL, &report), GD_ERROR_ARGUMENT);
    gd_gradcheck_case(ctx, NULL, &c, NULL, &report);
    ck_assert_error(ctx, "gradcheck: op is NULL");
    gd_gradcheck_case(ctx, &curve, NULL, NULL, &report);
    ck_assert_error(ctx, "gradcheck: check is NULL");
    for (size_t i = 0; i < sizeof bad_options / sizeof *bad_options; i++) {
        ck_assert(gd_gradcheck_case(ctx, &curve, &c, &bad_options[i].options, &report) != GD_OK);
        ck_assert_error(ctx, bad_options[i].words);
    }
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
    const curve_args args = {.shape = SQUARE, .wrong = 18};
    const gd_case c = case_of(&args, (gd_case_input){GD_NORMAL(1, 0.1), GD_DIMS(20)});
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
    const curve_args args = {.shape = RELU, .slope_at_zero = NAN};
    gd_case c = case_of(&args, (gd_case_input){GD_CONSTANT(0), GD_DIMS(2)});
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
    const curve_args args = {.shape = SQUARE, .wrong = 18};
    const gd_case c = case_of(&args, (gd_case_input){GD_NORMAL(1, 0.1), GD_DIMS(20)});
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
