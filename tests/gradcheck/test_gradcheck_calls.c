/* test_gradcheck_calls.c - how gradcheck calls a function: with one tensor as several inputs, when
 * its outputs change from call to call, with gradients in other subsets, and with bad options. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static gd_context *ctx;
static gd_gradcheck_report report;

static void setup(void)
{
    ctx = gd_context_create(&(gd_context_options){.poison = true});
}

static void teardown(void)
{
    gd_gradcheck_report_free(&report);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
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
    gd_gradcheck_report_free(&report);
    gd_gradcheck_function(ctx, "f", f, user, in, count, NULL, &report);
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
static gd_tensor *half_product(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(gd_detach(in[0]), in[1]);
}

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

static gd_tensor *of_the_first(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(in[0], gd_detach(in[0]));
}

static gd_tensor *ignores(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(in[0], in[0]);
}

static gd_tensor *sum_of_squares(void *user, gd_tensor *const *in, int count)
{
    (void)user;
    gd_tensor *y = gd_mul(in[0], in[0]);
    for (int i = 1; i < count; i++) y = gd_add(y, gd_mul(in[i], in[i]));
    return y;
}

TEST(an_input_may_be_ignored)
{
    gd_tensor *in[] = {leaf(3), leaf(2)};
    check(ignores, NULL, in, 2);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    check(of_the_first, NULL, in, 2);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_str_eq(report.message, "");
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

static gd_status product_shape(const gd_call *call, gd_shapes *out)
{
    out->output[0] = gd_spec_like(call->input[0]);
    return GD_OK;
}

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
    .inputs = 2,
    .input_names = {"a", "b"},
    .outputs = 1,
    .backward_reads_inputs = GD_ALL_INPUTS,
    .shape = product_shape,
    .forward = {[GD_CPU] = product_forward},
    .backward = {[GD_CPU] = product_backward},
    GD_CASES(product_cases),
};

TEST(rounding_is_remarked_on_unless_the_record_claims_bits)
{
    char text[4000] = "";
    gd_op op = product_op;
    off = 1;
    ck_assert_int_eq(gd_gradcheck_case(ctx, &op, op.cases, NULL, &report), GD_OK);
    ck_assert_str_eq(gd_verdict_name(report.verdict), "PASS");
    ck_assert_str_eq(report.input[1].behaviour, "");
    ck_assert_str_eq(report.input[0].remark, "");
    ck_assert_msg(strstr(report.input[1].remark, "when only b requires a gradient: b[0, 0] is ") &&
                      strstr(report.input[1].remark, ", it differs by rounding: compute each "
                                                     "gradient in a loop of its own"),
                  "%s", report.input[1].remark);
    for (int verbose = 0; verbose < 2; verbose++) {
        FILE *file = tmpfile();
        gd_gradcheck_print(&report, file, verbose);
        gd_gradcheck_print_json(&report, file);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        ck_assert_msg(strstr(text, "remark: when only b") && strstr(text, "\"remark\": \"when"),
                      "%s", text);
    }
    gd_gradcheck_report_free(&report);

    op.same_bits = true;
    ck_assert_int_eq(gd_gradcheck_case(ctx, &op, op.cases, NULL, &report), GD_OK);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_ptr_nonnull(strstr(report.input[1].behaviour, "when only b requires a gradient: b"));
    gd_gradcheck_report_free(&report);

    op.same_bits = false;
    off = 1e-9; /* too much for rounding */
    ck_assert_int_eq(gd_gradcheck_case(ctx, &op, op.cases, NULL, &report), GD_OK);
    ck_assert_int_eq(report.verdict, GD_VERDICT_FAIL);
    ck_assert_str_eq(report.input[1].remark, "");
    ck_assert_ptr_nonnull(strstr(report.input[1].behaviour, "when only b requires a gradient: b"));
}

static gd_tensor *custom(void *user, gd_tensor *const *in, int count)
{
    return gd_apply(user, in, count, NULL);
}

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
        ck_assert_msg(op->same_bits || !op->backward[GD_CPU], "%s does not", op->name);
}

/* ---- Options ------------------------------------------------------------------------------ */

TEST(options_that_were_never_set_are_refused)
{
    gd_gradcheck_options options;
    gd_tensor *x = leaf(3);
    memset(&options, 0xff, sizeof options);
    gd_gradcheck_function(ctx, "f", product, NULL, &x, 1, &options, &report);
    ck_assert_error(ctx, "gradcheck: step is ");
    gd_gradcheck_case(ctx, &product_op, product_op.cases, &options, &report);
    ck_assert_error(ctx, "gradcheck: step is ");
    options = (gd_gradcheck_options){.seed = 1};
    memset(&options.dtype, 0xff, sizeof options.dtype);
    gd_gradcheck_function(ctx, "f", product, NULL, &x, 1, &options, &report);
    ck_assert_error(ctx, "gradcheck: dtype is ");
}

CHECK_MAIN_WITHIN("gradcheck, calls", 100, setup, teardown)
