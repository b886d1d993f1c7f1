/* test_gradcheck_functions.c - gradcheck of functions and ops of users: right ones pass and leave
 * everything as it was, wrong ones fail, and what is not a function is named. How it calls them:
 * with one tensor as several inputs, when outputs change from call to call or have no gradient,
 * with gradients in other subsets. */
#include "each_report.h"

#include <limits.h>
#include <math.h>

#define FUNCTION(name, ...)                                             \
    static gd_tensor *name(void *user, gd_tensor *const *in, int count) \
    {                                                                   \
        (void)user, (void)in, (void)count;                              \
        return __VA_ARGS__;                                             \
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

FUNCTION(same, gd_tanh(in[0]))

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

/* The gradient of mean((x w - 1)^2) by input `by`. */
static gd_tensor *slope_of(gd_tensor *const *in, int by, bool constant)
{
    const gd_gradients_options options = {.differentiable = true};
    gd_tensor *loss = loss_of(NULL, in, 2), *slope = NULL;
    gd_gradients(&loss, 1, &options, &in[by], 1, &slope);
    return constant ? gd_detach(slope) : slope;
}

/* The loss and 10 mean((dl/dx)^2) */
static gd_tensor *gradient_penalty(void *user, gd_tensor *const *in, int count)
{
    gd_tensor *slope = slope_of(in, 0, *(const bool *)user);
    gd_tensor *penalty = gd_mean(gd_mul(slope, slope), NULL, 0, false);
    return gd_add(loss_of(NULL, in, count), gd_scale(penalty, 10));
}

/* The loss after two steps of descent. */
static gd_tensor *after_steps(void *user, gd_tensor *const *in, int count)
{
    gd_tensor *moved[] = {in[0], in[1]};
    for (int step = 0; step < 2; step++)
        moved[1] = gd_sub(moved[1], gd_scale(slope_of(moved, 1, *(const bool *)user), 0.5));
    return loss_of(NULL, moved, count);
}

/* A gradient that is taken as a constant leaves out terms, which the first order shows. */
LOOP_TEST(a_function_that_contains_gradients, 8)
{
    static const char *const names[] = {NULL, "x", "w"};
    const int order = _i / 2;
    const gd_function function = _i % 2 ? after_steps : gradient_penalty;
    const gd_dtype dtype = order ? GD_FLOAT64 : GD_FLOAT32;
    gd_tensor *in[] = {random_tensor(dtype, 5, 4, "x"), random_tensor(dtype, 4, 3, "w")};
    for (int only = 0; only < 3; only++) {
        const gd_gradcheck_options options = {.order = order, .only_input = names[only]};
        for (int wrong = 0; wrong < (order < 2 ? 2 : 1); wrong++) {
            bool constant = wrong;
            gd_gradcheck_function(ctx, "f", function, &constant, in, 2, &options, &report);
            ck_assert_no_error(ctx);
            ck_verdict(wrong ? GD_VERDICT_FAIL : GD_VERDICT_PASS);
            ck_assert_str_eq(report.message, "");
            gd_gradcheck_report_free(&report);
        }
    }
    ck_assert_int_eq(gd_tape_length(ctx), 0);
}

/* Not a function: another result each time. */
FUNCTION(counts, gd_scale(in[0], ++*(int *)user))
FUNCTION(returns_null, NULL)
FUNCTION(returns_another, user)

TEST(wrong_functions_fail)
{
    int calls = 0;
    gd_context *other = gd_context_create(NULL);
    gd_tensor *elsewhere = gd_tensor_create(other, GD_FLOAT64, 2, (int64_t[]){3, 3});
    gd_tensor *x = random_tensor(GD_FLOAT64, 3, 3, "x");
    const struct {
        gd_function function;
        void *user;
        const char *message;
    } wrong[] = {
        {counts, &calls, ""},
        {returns_null, NULL, "gradcheck: the function f returned NULL"},
        {returns_another, elsewhere, "the function f returned a tensor of another context"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_function(wrong[i].function, wrong[i].user, &x, 1, NULL);
        ck_verdict(GD_VERDICT_FAIL);
        ck_assert_msg(strstr(report.message, wrong[i].message), "%s", report.message);
    }
    gd_context_free(other);
}

FUNCTION(log_of, gd_log(in[0]))

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

static gd_tensor *leaf(int64_t count)
{
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(count));
    gd_random_normal(x, 0, 1);
    gd_tensor_set_requires_grad(x, true);
    return x;
}

static void check(gd_function f, void *user, gd_tensor *const *in, int count)
{
    check_function(f, user, in, count, NULL);
}

/* ---- One tensor, several inputs ----------------------------------------------------------- */

static gd_tensor *product(void *user, gd_tensor *const *in, int count)
{
    (void)user;
    gd_tensor *y = in[0];
    for (int i = 1; i < count; i++) y = gd_mul(y, in[i]);
    return y;
}

/* The gradient of the second factor alone. */
FUNCTION(half_product, gd_mul(gd_detach(in[0]), in[1]))

TEST(a_tensor_may_be_given_several_times)
{
    gd_tensor *x = leaf(3), *z = leaf(3);
    for (int count = 2; count <= 3; count++) {
        check(product, NULL, (gd_tensor *[]){x, x, x}, count);
        ck_assert_no_error(ctx);
        ck_assert_str_eq(gd_verdict_name(report.verdict), "PASS");
        ck_assert_int_eq(report.inputs, 1);
    }
    check(product, NULL, (gd_tensor *[]){x, z, x}, 3);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_int_eq(report.inputs, 2);
    ck_assert(gd_tensor_requires_grad(x) && gd_tensor_requires_grad(z));
    check(half_product, NULL, (gd_tensor *[]){x, x}, 2);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_str_eq(report.input[0].finding, "a constant factor 1/2");
    ck_assert_str_eq(report.input[0].behaviour, "");
}

TEST(other_tensors_on_its_memory_are_refused)
{
    double memory[6] = {1, 2, 3, 4, 5, 6};
    gd_tensor *in[] = {gd_tensor_wrap(ctx, GD_FLOAT64, GD_SHAPE(4), memory),
                       gd_tensor_wrap(ctx, GD_FLOAT64, GD_SHAPE(4), memory + 2)};
    gd_tensor_set_requires_grad(in[1], true);
    check(product, NULL, in, 2);
    ck_assert_error(ctx, "gradcheck: inputs 0 and 1 share memory, wanted tensors of their own");
    gd_tensor_set_requires_grad(in[1], false); /* neither is perturbed */
    check(product, NULL, (gd_tensor *[]){in[0], in[1], leaf(4)}, 3);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
}

TEST(tensors_of_a_step_are_refused)
{
    gd_tensor *x = leaf(3);
    check(product, NULL, (gd_tensor *[]){x, gd_detach(x)}, 2);
    ck_assert_error(ctx, "gradcheck: input 1, [3], was made by an op");
    gd_tensor *mask = gd_le(x, x);
    check(product, NULL, (gd_tensor *[]){x, mask}, 2);
    ck_assert_error(ctx, "gradcheck: input 1, [3], was made by an op");
    gd_step_end(ctx);
}

/* ---- Outputs that change ------------------------------------------------------------------ */

typedef struct change {
    int calls, from;
    gd_dtype dtype;
    int ndim;
    int64_t shape[3];
} change;

static gd_tensor *changes(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    change *c = user;
    gd_tensor *y = gd_mul(in[0], in[0]);
    if (++c->calls < c->from) return y;
    return gd_cast(gd_reshape(gd_narrow(y, 0, 0, c->ndim < 3 ? 6 : 4), c->ndim, c->shape),
                   c->dtype);
}

TEST(outputs_must_not_change)
{
    static const change rows[] = {{.ndim = 2, .shape = {2, 3}, .dtype = GD_FLOAT64},
                                  {.ndim = 1, .shape = {6}, .dtype = GD_FLOAT32},
                                  {.ndim = 3, .shape = {1, 2, 2}, .dtype = GD_FLOAT64}};
    gd_tensor *x = leaf(6);
    change never = {.from = INT_MAX};
    check(changes, &never, &x, 1);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    for (int i = 0; i < 3; i++) {
        for (int from = 2; from <= never.calls; from++) {
            change c = rows[i];
            c.from = from;
            check(changes, &c, &x, 1);
            ck_assert_no_error(ctx);
            ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
            ck_assert_msg(strstr(report.message, "output 0 of f was float64 [6] in an earlier "
                                                 "call and is float"),
                          "%d %d: %s", i, from, report.message);
        }
    }
}

/* ---- Subsets ------------------------------------------------------------------------------ */

static gd_tensor *sum_of_squares(void *user, gd_tensor *const *in, int count)
{
    (void)user;
    gd_tensor *y = gd_mul(in[0], in[0]);
    for (int i = 1; i < count; i++) y = gd_add(y, gd_mul(in[i], in[i]));
    return y;
}

TEST(there_may_be_many_inputs)
{
    enum { COUNT = 33 };
    gd_tensor *in[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = leaf(2);
    check(sum_of_squares, NULL, in, COUNT);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_int_eq(report.inputs, COUNT);
}

/* y = a b; db may be another number if it is the only one wanted. */
static double off; /* by how many units in the last place, or relative if it is below 1 */

static gd_status product_forward(const gd_call *call)
{
    const double *a = gd_tensor_data(call->input[0]), *b = gd_tensor_data(call->input[1]);
    double *y = gd_tensor_data(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->output[0]); i++) y[i] = a[i] * b[i];
    return GD_OK;
}

static gd_status product_backward(const gd_call *call)
{
    const double *dy = gd_tensor_data(call->doutput[0]);
    for (int k = 0; k < 2; k++) {
        const double *x = gd_tensor_data(call->input[1 - k]);
        double *dx = call->dinput[k] ? gd_tensor_data(call->dinput[k]) : NULL;
        for (int64_t i = 0; dx && i < gd_tensor_count(call->dinput[k]); i++) {
            double g = x[i] * dy[i];
            if (k == 1 && !call->dinput[0]) g = off < 1 ? g * (1 + off) : nextafter(g, INFINITY);
            dx[i] = call->accumulate[k] ? dx[i] + g : g;
        }
    }
    return GD_OK;
}

static const gd_case product_cases[] = {{"2x3", NULL, GD_INPUTS({GD_DIMS(2, 3)}, {GD_DIMS(2, 3)})}};

static const gd_op product_op = {
    .name = "product",
    .formula = "y = a b",
    .signature = "a[...] b[...] -> y[...]",
    .backward_reads_inputs = GD_ALL_INPUTS,
    .forward = {[GD_CPU] = product_forward},
    .backward = {[GD_CPU] = product_backward},
    GD_CASES(product_cases),
};

TEST(rounding_is_remarked_on_unless_the_record_claims_bits)
{
    gd_op op = product_op;
    off = 1;
    check_case(&op, op.cases, NULL);
    ck_assert_str_eq(gd_verdict_name(report.verdict), "PASS");
    ck_assert_str_eq(report.input[1].behaviour, "");
    ck_assert_str_eq(report.input[0].remark, "");
    ck_assert_msg(strstr(report.input[1].remark, "when only b requires a gradient: b[0, 0] is ") &&
                      strstr(report.input[1].remark, ", it differs by rounding: compute each "
                                                     "gradient in a loop of its own"),
                  "%s", report.input[1].remark);
    ck_assert_ptr_nonnull(strstr(printed_report(SHORT), "remark: when only b"));
    ck_assert_ptr_nonnull(strstr(printed_report(LONG), "remark: when only b"));
    ck_assert_ptr_nonnull(strstr(printed_report(JSON), "\"remark\": \"when"));

    op.same_bits = true;
    check_case(&op, op.cases, NULL);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_ptr_nonnull(strstr(report.input[1].behaviour, "when only b requires a gradient: b"));

    op.same_bits = false;
    off = 1e-9; /* too much for rounding */
    check_case(&op, op.cases, NULL);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_str_eq(report.input[1].remark, "");
    ck_assert_ptr_nonnull(strstr(report.input[1].behaviour, "when only b requires a gradient: b"));
}

FUNCTION(custom, gd_apply(user, in, count, NULL))

TEST(functions_claim_nothing)
{
    gd_op op = product_op;
    off = 1;
    check(custom, &op, (gd_tensor *[]){leaf(5), leaf(5)}, 2);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_ptr_nonnull(strstr(report.input[1].remark, "it differs by rounding"));
}

TEST(the_library_claims_bits)
{
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++)
        ck_assert_msg(op->same_bits || !gd_op_has_backward(op, GD_CPU), "%s does not", op->name);
}

/* ---- An output without a gradient --------------------------------------------------------- */

/* y = 2 x, and the index of each element. */
static gd_status twice_forward(const gd_call *call)
{
    const double *x = gd_tensor_data(call->input[0]);
    double *y = gd_tensor_data(call->output[0]);
    int32_t *index = gd_tensor_data(call->output[1]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        y[i] = 2 * x[i];
        index[i] = (int32_t)i;
    }
    return GD_OK;
}

static gd_status twice_backward(const gd_call *call)
{
    double *dx = gd_tensor_data(call->dinput[0]);
    const double *dy = call->doutput[0] ? gd_tensor_data(call->doutput[0]) : NULL;
    for (int64_t i = 0; i < gd_tensor_count(call->dinput[0]); i++)
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + (dy ? 2 * dy[i] : 0);
    return GD_OK;
}

static const gd_case twice_cases[] = {{"2x3", NULL, GD_INPUTS({GD_DIMS(2, 3)})}};

static const gd_op twice = {.name = "twice",
                            .signature = "x[...] -> y[...] index:int32[...]",
                            .forward = {twice_forward, NULL},
                            .backward = {twice_backward, NULL},
                            GD_CASES(twice_cases)};

TEST(integers_get_no_cotangent)
{
    gd_gradcheck_case(ctx, &twice, twice_cases, NULL, &report);
    ck_verdict(GD_VERDICT_PASS);
    ck_assert_str_eq(report.input[0].behaviour, "");
}

CHECK_MAIN_WITHIN("gradcheck of functions", setup, teardown)
