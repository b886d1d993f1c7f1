/* test_planted_derivatives.c - gradcheck of higher orders finds wrong derivatives and definitions,
 * in copies of records: wrong in value, and right in value but detached from something. Where
 * nothing is planted it passes. */
#include "common/derivation.h"
#include "each_report.h"

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
    const char *op, *what;
    /* That the report holds, of behaviour or the message; NULL: numbers are wrong. */
    const char *words;
    gd_derivation derivative, definition;
    int order; /* 0: 2 */
} planted;

#define BY_DERIVATIVE "the gradient by its derivative"
#define BY_DEFINITION "the gradient by its definition"
#define OUTPUT "by its definition output 0"

static const planted list[] = {
    {"tanh", "the sign", BY_DERIVATIVE, .derivative = tanh_sign},
    {"tanh", "y instead of y^2", BY_DERIVATIVE, .derivative = tanh_no_square},
    {"tanh", "y is detached", NULL, .derivative = tanh_detached},
    {"tanh", "one of two y is detached", NULL, .derivative = tanh_half_detached},
    {"tanh", "a definition that keeps y", "did not set output 0", .definition = tanh_left_out},
    {"sigmoid", "1 - y is missing", BY_DERIVATIVE, .derivative = sigmoid_no_factor},
    {"sqrt", "the factor 1/2", BY_DERIVATIVE, .derivative = sqrt_no_half},
    {"exp", "dy is detached", NULL, .derivative = exp_without_dy},
    {"exp", "y is missing", BY_DERIVATIVE, .derivative = exp_is_one},
    {"log", "no gradient", BY_DERIVATIVE, .derivative = log_nothing},
    {"sin", "the slope is detached", NULL, .derivative = sin_constant},
    {"sin", "wrong from the third order on", NULL, .derivative = sin_third, .order = 3},
    {"relu", "no mask", BY_DERIVATIVE, .derivative = relu_no_mask},
    {"scale", "another factor", BY_DERIVATIVE, .derivative = scale_twice},
    {"silu", "the gate is detached", NULL, .derivative = silu_gate_detached},
    {"mul", "db forgets that it depends on a", NULL, .derivative = mul_detached},
    {"div", "the sign of db", BY_DERIVATIVE, .derivative = div_sign},
    {"linear", "dbias is not summed over rows", BY_DERIVATIVE, .derivative = linear_one_row},
    {"matmul", "b is not transposed", "7 columns, but b [5, 7] has 5 rows",
     .derivative = matmul_transposed},
    {"matmul", "da forgets b", NULL, .derivative = matmul_detached},
    {"softmax", "the sum is missing", BY_DERIVATIVE, .derivative = softmax_no_sum},
    {"softmax", "the sum is over another axis", BY_DERIVATIVE, .derivative = softmax_axis},
    {"softmax", "the sum is detached", NULL, .derivative = softmax_sum_detached},
    {"softmax", "dy in the sum is detached", NULL, .derivative = softmax_dy_in_sum},
    {"softmax", "defined along another axis", OUTPUT, .definition = softmax_unshifted_axis},
    {"softmax", "defined by a constant sum", BY_DEFINITION, .definition = softmax_sum_constant},
    {"log_softmax", "e^y is detached", NULL, .derivative = log_softmax_detached},
    {"log_softmax", "defined without the log", OUTPUT, .definition = log_softmax_no_log},
    {"mean", "the factor 1/n", BY_DERIVATIVE, .derivative = mean_no_factor},
    {"rms_norm", "no eps", OUTPUT, .definition = rms_no_eps},
    {"rms_norm", "the mean is subtracted", OUTPUT, .definition = rms_centred},
    {"rms_norm", "no weight", OUTPUT, .definition = rms_no_weight},
    {"layer_norm", "the mean is detached", BY_DEFINITION, .definition = layer_norm_detached_mean},
    {"swiglu", "gate and up swapped", OUTPUT, .definition = swiglu_swapped},
    {"swiglu", "up is detached", BY_DEFINITION, .definition = swiglu_detached},
    {"gelu", "that with tanh", OUTPUT, .definition = gelu_by_tanh},
    {"gelu", "another shape", "its definition made a tensor [5, 3, 7], wanted [3, 5, 7]",
     .definition = transposed_shape},
};

static const planted right[] = {
    {"tanh", "nothing", NULL, .derivative = tanh_right},
    {"tanh", "nothing", NULL, .derivative = tanh_right, .order = 3},
    {"softmax", "nothing", NULL, .derivative = softmax_right},
    {"sin", "wrong from the third order on", NULL, .derivative = sin_third, .order = 2},
};

static void check(const planted *p)
{
    const gd_op *real = gd_find_op(ctx, p->op);
    ck_assert_msg(real != NULL, "there is no op %s", p->op);
    gd_op op = *real;
    op.derivative = p->derivative;
    op.definition = p->definition;
    check_case(&op, &op.cases[0],
               &(gd_gradcheck_options){.order = p->order ? p->order : 2, .seed = 3});
}

/* Whether the report has the words, or numbers that are wrong and no words at all. */
static bool says(const char *words)
{
    int64_t wrong = 0;
    bool found = words && strstr(report.message, words), silent = !report.message[0];
    for (int k = 0; k < report.inputs; k++) {
        const char *text = report.input[k].behaviour;
        found = found || (words && strstr(text, words));
        silent = silent && !strstr(text, "by its");
        wrong += report.input[k].wrong;
    }
    return words ? found : silent && wrong > 0;
}

LOOP_TEST(every_fault_is_caught, sizeof list / sizeof *list)
{
    check(&list[_i]);
    ck_assert_msg(report.verdict == GD_VERDICT_FAIL && says(list[_i].words), "%s, %s: %s",
                  list[_i].op, list[_i].what, printed_report(LONG));
}

LOOP_TEST(nothing_is_found_where_nothing_is, sizeof right / sizeof *right)
{
    check(&right[_i]);
    ck_assert_msg(report.verdict == GD_VERDICT_PASS, "%s", printed_report(LONG));
}

/* An op without either: what is missing is said. */
TEST(neither)
{
    check(&(planted){.op = "tanh"});
    ck_verdict(GD_VERDICT_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(report.message, "tanh: its record has neither a definition nor a derivative"));
}

CHECK_MAIN_WITHIN("planted derivatives", setup, teardown)
