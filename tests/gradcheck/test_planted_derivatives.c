/* test_planted_derivatives.c - gradcheck of higher orders finds wrong derivatives and definitions,
 * in copies of records: wrong in value, and right in value but detached from something. Where
 * nothing is planted it passes. */
#include "check_main.h"

#include <stdio.h>
#include <string.h>

#include "common/derivation.h"
#include "gradus/gradus.h"

#define X (call->input[0])
#define Y (call->output[0])
#define DY (call->doutput[0])

/* Derivatives of one input, and definitions of one output. */
#define DERIVATIVE(name, dx)              \
    static void name(const gd_call *call) \
    {                                     \
        call->dinput[0] = (dx);           \
    }
#define DEFINITION(name, y)               \
    static void name(const gd_call *call) \
    {                                     \
        call->output[0] = (y);            \
    }

static gd_tensor *total(gd_tensor *x, int axis)
{
    return gd_sum(x, &axis, 1, true);
}

static gd_tensor *average(gd_tensor *x)
{
    const int last = gd_tensor_ndim(x) - 1;
    return gd_mean(x, &last, 1, true);
}

/* ---- Functions of one number -------------------------------------------------------------- */

DERIVATIVE(tanh_right, mul(DY, minus(1, square(Y))))
DERIVATIVE(tanh_sign, gd_neg(mul(DY, minus(1, square(Y)))))
DERIVATIVE(tanh_no_square, mul(DY, minus(1, Y)))
DERIVATIVE(tanh_detached, mul(DY, minus(1, square(gd_detach(Y)))))
DERIVATIVE(tanh_half_detached, mul(DY, minus(1, mul(Y, gd_detach(Y)))))
DERIVATIVE(sigmoid_no_factor, mul(DY, Y))
DERIVATIVE(sqrt_no_half, over(DY, Y))
DERIVATIVE(exp_without_dy, mul(gd_detach(DY), Y))
DERIVATIVE(exp_is_one, DY)
DERIVATIVE(log_nothing, NULL)
DERIVATIVE(sin_constant, mul(DY, gd_detach(gd_cos(X))))
DERIVATIVE(relu_no_mask, DY)
DERIVATIVE(scale_twice, times(DY, 2))

/* Right in value and slope, but not in the slope's slope: cos(x) by a tangent. */
DERIVATIVE(sin_third,
           mul(DY, sub(gd_detach(gd_cos(X)), mul(gd_detach(gd_sin(X)), sub(X, gd_detach(X))))))

static void silu_gate_detached(const gd_call *call)
{
    gd_tensor *s = gd_detach(gd_sigmoid(X));
    call->dinput[0] = mul(DY, add(s, mul(X, mul(s, minus(1, s)))));
}

/* ---- Two inputs --------------------------------------------------------------------------- */

static void product(const gd_call *call, gd_tensor *da, gd_tensor *db)
{
    if (call->dinput[0]) call->dinput[0] = da;
    if (call->dinput[1]) call->dinput[1] = db;
}

static void mul_detached(const gd_call *call)
{
    product(call, mul(DY, call->input[1]), mul(DY, gd_detach(X)));
}

static void div_sign(const gd_call *call)
{
    gd_tensor *a = X, *b = call->input[1];
    product(call, over(DY, b), mul(DY, over(over(a, b), b)));
}

/* dbias is one row of dy, not the sum of all. */
static void linear_one_row(const gd_call *call)
{
    gd_tensor *weight = call->input[1];
    product(call, gd_matmul(DY, weight), gd_matmul_with(DY, X, true, false));
    if (!call->dinput[2]) return;
    gd_tensor *row = gd_narrow(DY, 0, 0, 1);
    call->dinput[2] = gd_reshape(row, GD_SHAPE(-1));
}

static void matmul_transposed(const gd_call *call)
{
    gd_tensor *da = gd_matmul(DY, call->input[1]);
    product(call, da, gd_matmul_with(X, DY, true, false));
}

static void matmul_detached(const gd_call *call)
{
    gd_tensor *da = gd_matmul_with(DY, gd_detach(call->input[1]), false, true);
    product(call, da, gd_matmul_with(X, DY, true, false));
}

/* ---- Rows --------------------------------------------------------------------------------- */

DERIVATIVE(softmax_right, mul(Y, sub(DY, total(mul(DY, Y), -1))))
DERIVATIVE(softmax_no_sum, mul(Y, DY))
DERIVATIVE(softmax_axis, mul(Y, sub(DY, total(mul(DY, Y), 0))))
DERIVATIVE(softmax_sum_detached, mul(Y, sub(DY, gd_detach(total(mul(DY, Y), -1)))))
DERIVATIVE(softmax_dy_in_sum, mul(Y, sub(DY, total(mul(gd_detach(DY), Y), -1))))
DERIVATIVE(log_softmax_detached, sub(DY, mul(gd_detach(gd_exp(Y)), total(DY, -1))))
DERIVATIVE(mean_no_factor, gd_expand(DY, gd_tensor_ndim(X), gd_tensor_shape(X)))

DEFINITION(softmax_unshifted_axis, over(gd_exp(X), total(gd_exp(X), 0)))
DEFINITION(softmax_sum_constant, over(gd_exp(X), gd_detach(total(gd_exp(X), -1))))
DEFINITION(log_softmax_no_log, sub(X, total(gd_exp(X), -1)))

static gd_tensor *rms(gd_tensor *x, double eps)
{
    return mul(x, gd_rsqrt(plus(average(square(x)), eps)));
}

static gd_tensor *weighted(const gd_call *call, gd_tensor *y)
{
    y = mul(y, call->input[1]);
    return call->input[2] ? add(y, call->input[2]) : y;
}

DEFINITION(rms_no_eps, weighted(call, rms(X, 0)))
DEFINITION(rms_centred, weighted(call, rms(sub(X, average(X)), 1e-6)))
DEFINITION(rms_no_weight, rms(X, 1e-6))
DEFINITION(layer_norm_detached_mean, weighted(call, rms(sub(X, gd_detach(average(X))), 1e-5)))

/* ---- Gates, tables, windows --------------------------------------------------------------- */

DEFINITION(swiglu_swapped, mul(X, gd_silu(call->input[1])))
DEFINITION(swiglu_detached, mul(gd_silu(X), gd_detach(call->input[1])))
DEFINITION(gelu_by_tanh, gd_gelu_tanh(X))
DEFINITION(transposed_shape, gd_transpose(gd_tanh(X), 0, 1))
DEFINITION(tanh_left_out, Y)

/* ---- The list ----------------------------------------------------------------------------- */

typedef struct planted {
    const char *op, *check; /* and case; NULL: the first */
    const char *what;
    const char
        *words; /* that the report holds: of behaviour or the message; NULL: numbers are wrong */
    gd_derivation derivative, definition;
    int order; /* 0: 2 */
} planted;

#define BY_DERIVATIVE "the gradient by its derivative"
#define BY_DEFINITION "the gradient by its definition"
#define OUTPUT "by its definition output 0"

static const planted list[] = {
    {"tanh", NULL, "the sign", BY_DERIVATIVE, tanh_sign, NULL, 0},
    {"tanh", NULL, "y instead of y^2", BY_DERIVATIVE, tanh_no_square, NULL, 0},
    {"tanh", NULL, "y is detached", NULL, tanh_detached, NULL, 0},
    {"tanh", NULL, "one of two y is detached", NULL, tanh_half_detached, NULL, 0},
    {"tanh", NULL, "a definition that keeps y", "did not set output 0", NULL, tanh_left_out, 0},
    {"sigmoid", NULL, "1 - y is missing", BY_DERIVATIVE, sigmoid_no_factor, NULL, 0},
    {"sqrt", NULL, "the factor 1/2", BY_DERIVATIVE, sqrt_no_half, NULL, 0},
    {"exp", NULL, "dy is detached", NULL, exp_without_dy, NULL, 0},
    {"exp", NULL, "y is missing", BY_DERIVATIVE, exp_is_one, NULL, 0},
    {"log", NULL, "no gradient", BY_DERIVATIVE, log_nothing, NULL, 0},
    {"sin", NULL, "the slope is detached", NULL, sin_constant, NULL, 0},
    {"sin", NULL, "wrong from the third order on", NULL, sin_third, NULL, 3},
    {"relu", NULL, "no mask", BY_DERIVATIVE, relu_no_mask, NULL, 0},
    {"scale", NULL, "another factor", BY_DERIVATIVE, scale_twice, NULL, 0},
    {"silu", NULL, "the gate is detached", NULL, silu_gate_detached, NULL, 0},
    {"mul", NULL, "db forgets that it depends on a", NULL, mul_detached, NULL, 0},
    {"div", NULL, "the sign of db", BY_DERIVATIVE, div_sign, NULL, 0},
    {"linear", NULL, "dbias is not summed over rows", BY_DERIVATIVE, linear_one_row, NULL, 0},
    {"matmul", NULL, "b is not transposed", "7 columns, but b [5, 7] has 5 rows", matmul_transposed,
     NULL, 0},
    {"matmul", NULL, "da forgets b", NULL, matmul_detached, NULL, 0},
    {"softmax", NULL, "the sum is missing", BY_DERIVATIVE, softmax_no_sum, NULL, 0},
    {"softmax", NULL, "the sum is over another axis", BY_DERIVATIVE, softmax_axis, NULL, 0},
    {"softmax", NULL, "the sum is detached", NULL, softmax_sum_detached, NULL, 0},
    {"softmax", NULL, "dy in the sum is detached", NULL, softmax_dy_in_sum, NULL, 0},
    {"softmax", NULL, "defined along another axis", OUTPUT, NULL, softmax_unshifted_axis, 0},
    {"softmax", NULL, "defined by a constant sum", BY_DEFINITION, NULL, softmax_sum_constant, 0},
    {"log_softmax", NULL, "e^y is detached", NULL, log_softmax_detached, NULL, 0},
    {"log_softmax", NULL, "defined without the log", OUTPUT, NULL, log_softmax_no_log, 0},
    {"mean", NULL, "the factor 1/n", BY_DERIVATIVE, mean_no_factor, NULL, 0},
    {"rms_norm", NULL, "no eps", OUTPUT, NULL, rms_no_eps, 0},
    {"rms_norm", NULL, "the mean is subtracted", OUTPUT, NULL, rms_centred, 0},
    {"rms_norm", NULL, "no weight", OUTPUT, NULL, rms_no_weight, 0},
    {"layer_norm", NULL, "the mean is detached", BY_DEFINITION, NULL, layer_norm_detached_mean, 0},
    {"swiglu", NULL, "gate and up swapped", OUTPUT, NULL, swiglu_swapped, 0},
    {"swiglu", NULL, "up is detached", BY_DEFINITION, NULL, swiglu_detached, 0},
    {"gelu", NULL, "that with tanh", OUTPUT, NULL, gelu_by_tanh, 0},
    {"gelu", NULL, "another shape", "its definition made a tensor [5, 3, 7], wanted [3, 5, 7]",
     NULL, transposed_shape, 0},
};

static const planted right[] = {
    {"tanh", NULL, "nothing", NULL, tanh_right, NULL, 0},
    {"tanh", NULL, "nothing", NULL, tanh_right, NULL, 3},
    {"softmax", NULL, "nothing", NULL, softmax_right, NULL, 0},
    {"sin", NULL, "wrong from the third order on", NULL, sin_third, NULL, 2},
};

static const gd_case *find_case(const planted *p, const gd_op *op)
{
    for (int i = 0; p->check && i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, p->check)) return &op->cases[i];
    return &op->cases[0];
}

static gd_gradcheck_report check(gd_context *ctx, const planted *p)
{
    const gd_op *real = gd_find_op(ctx, p->op);
    ck_assert_msg(real != NULL, "there is no op %s", p->op);
    gd_op op = *real;
    op.derivative = p->derivative;
    op.definition = p->definition;
    const gd_gradcheck_options options = {.order = p->order ? p->order : 2, .seed = 3};
    gd_gradcheck_report report;
    gd_gradcheck_case(ctx, &op, find_case(p, real), &options, &report);
    ck_assert_no_error(ctx);
    return report;
}

/* Whether the report has the words, or numbers that are wrong and no words at all. */
static bool says(const gd_gradcheck_report *report, const char *words)
{
    int64_t wrong = 0;
    bool found = words && strstr(report->message, words), silent = !report->message[0];
    for (int k = 0; k < report->inputs; k++) {
        const char *text = report->input[k].behaviour;
        found = found || (words && strstr(text, words));
        silent = silent && !strstr(text, "by its");
        wrong += report->input[k].wrong;
    }
    return words ? found : silent && wrong > 0;
}

TEST(every_fault_is_caught)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    int missed = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        gd_gradcheck_report report = check(ctx, &list[i]);
        const bool fine = report.verdict == GD_VERDICT_FAIL && says(&report, list[i].words);
        missed += !fine;
        if (!fine) {
            printf("%s, %s: missed, or told wrongly\n", list[i].op, list[i].what);
            gd_gradcheck_print(&report, stdout, true);
        }
        gd_gradcheck_report_free(&report);
    }
    printf("%d faults, %d missed\n", (int)(sizeof list / sizeof *list), missed);
    fflush(stdout);
    ck_assert_int_eq(missed, 0);
    gd_context_free(ctx);
}

TEST(nothing_is_found_where_nothing_is)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        gd_gradcheck_report report = check(ctx, &right[i]);
        if (report.verdict != GD_VERDICT_PASS) gd_gradcheck_print(&report, stdout, true);
        ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
        gd_gradcheck_report_free(&report);
    }
    gd_context_free(ctx);
}

/* An op without either: what is missing is said. */
TEST(neither)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    gd_gradcheck_report report = check(ctx, &(planted){.op = "tanh"});
    ck_assert_int_eq(report.verdict, GD_VERDICT_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(report.message, "tanh: its record has neither a definition nor a derivative"));
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

CHECK_MAIN("planted derivatives")
