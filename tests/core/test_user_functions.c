/* test_user_functions.c - ops, segments and files of the user's that do what they should not: each
 * gives a sentence, and the context works on. Ops with many outputs, and without some inputs. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static gd_context *ctx, *other;
static gd_tensor *x; /* [3] = 1, 2, 3 */

static void open_contexts(void)
{
    ctx = gd_context_create(&(gd_context_options){.poison = true});
    other = gd_context_create(NULL);
    x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){1, 2, 3});
    gd_tensor_set_requires_grad(x, true);
}

/* After all of it: d(sum x^2) = 2x. */
static void close_contexts(void)
{
    ck_assert_no_error(ctx);
    gd_grad_clear(x);
    gd_backward(gd_sum(gd_mul(x, x), NULL, 0, false));
    ck_assert_no_error(ctx);
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    for (int i = 0; i < 3; i++) ck_assert_double_eq(dx[i], 2 * (i + 1));
    gd_context_free(ctx);
    gd_context_free(other);
}

/* ---- Ops ---------------------------------------------------------------------------------- */

enum { MANY = 12 };

/* y_k = k x */
static gd_status multiples_forward(const gd_call *call)
{
    const double *from = gd_tensor_data(call->input[0]);
    for (int k = 0; k < call->outputs; k++) {
        double *y = gd_tensor_data(call->output[k]);
        for (int i = 0; i < 3; i++) y[i] = k * from[i];
    }
    return GD_OK;
}

static gd_status multiples_backward(const gd_call *call)
{
    double *dx = gd_tensor_data(call->dinput[0]);
    for (int i = 0; i < 3; i++) {
        double sum = call->accumulate[0] ? dx[i] : 0;
        for (int k = 0; k < call->outputs; k++)
            if (call->doutput[k]) sum += k * ((double *)gd_tensor_data(call->doutput[k]))[i];
        dx[i] = sum;
    }
    return GD_OK;
}

static const gd_op multiples = {.name = "multiples",
                                .inputs = 1,
                                .outputs = MANY,
                                .shape = shape_like_x,
                                .forward = {[GD_CPU] = multiples_forward},
                                .backward = {[GD_CPU] = multiples_backward}};

TEST(an_op_may_have_many_outputs)
{
    gd_tensor *y[MANY], *first = gd_apply(&multiples, &x, 1, NULL);
    ck_assert_double_eq(gd_item(gd_sum(first, NULL, 0, false)), 0);
    ck_assert_int_eq(gd_apply_multi(&multiples, &x, 1, NULL, y), GD_OK);
    ck_assert_double_eq(gd_item(gd_sum(y[MANY - 1], NULL, 0, false)), 6 * (MANY - 1));
    gd_backward(gd_sum(gd_add(y[3], y[11]), NULL, 0, false)); /* the others want nothing */
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    for (int i = 0; i < 3; i++) ck_assert_double_eq(dx[i], 14);
}

/* ---- Signatures --------------------------------------------------------------------------- */

static gd_status puts_zeros(const gd_call *call)
{
    for (int k = 0; k < call->outputs; k++) gd_tensor_fill(call->output[k], 0);
    return GD_OK;
}

static gd_op signed_op(const char *signature)
{
    return (gd_op){.name = "signed", .signature = signature, .forward = {[GD_CPU] = puts_zeros}};
}

static gd_tensor *zero_of(gd_dtype dtype, int ndim, const int64_t *shape)
{
    return gd_constant(ctx, dtype, ndim, shape, 0);
}

TEST(a_signature_gives_shapes)
{
    const gd_op op = signed_op("q[B, ..., 2D] k:int32[*, 3H, 1] w:real[H]? ids:int32[...]  -> "
                               "y[..., 5, 2H] z:int32[B, *] l:compute[D] m[]");
    gd_tensor *in[] = {zero_of(GD_FLOAT64, 4, (int64_t[]){2, 3, 4, 14}),
                       zero_of(GD_INT32, 4, (int64_t[]){8, 9, 6, 1}), NULL,
                       zero_of(GD_INT32, 2, (int64_t[]){3, 4})},
              *out[4];
    gd_apply_multi(&op, in, 4, NULL, out); /* "*" must be what "..." can be repeated to */
    ck_assert_error(ctx,
                    "signed: k is int32 [8, 9, 6, 1], wanted [*, 3H, 1] that broadcasts with q "
                    "float64 [2, 3, 4, 14]");
    in[1] = zero_of(GD_INT32, 4, (int64_t[]){3, 1, 6, 1});
    in[2] = zero_of(GD_FLOAT32, 1, (int64_t[]){2});
    ck_assert_int_eq(gd_apply_multi(&op, in, 4, NULL, out), GD_OK);
    static const char *const shapes[] = {"[3, 4, 5, 4]", "[2, 3, 4]", "[7]", "[]"};
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_INT32, GD_FLOAT64, GD_FLOAT64};
    for (int i = 0; i < 4; i++) {
        ck_assert_text_eq(gd_shape_text(out[i]), shapes[i]);
        ck_assert_int_eq(gd_tensor_dtype(out[i]), dtypes[i]);
    }
    in[3] = zero_of(GD_INT32, 2, (int64_t[]){3, 5});
    REFUSED(gd_apply_multi(&op, in, 4, NULL, out) ? NULL : out[0],
            "signed: ids is int32 [3, 5], wanted [...] as in q[B, ..., 2D] "
            "float64 [2, 3, 4, 14]");
}

static const struct {
    const char *signature, *message;
} wrong_signatures[] = {
    {"x[N -> y[N]", "signature \"x[N -> y[N]\" is wrong from \" -> y[N]\" on"},
    {"x[n] -> y[]", "is wrong from \"n] -> y[]\" on"},
    {"x[..., *] -> y", "is wrong from \"] -> y\" on"},
    {"x[A, B, C, D, E, F, G, H, I] -> y", "is wrong from \"I] -> y\" on"},
    {"x[0N] -> y[N]", "is wrong from"},
    {"x[N] b[M]? -> y[M]", "is wrong from \"\" on"},
    {"x[N] b[*]? -> y[*]", "is wrong from"},
    {"x[N] -> y[N]?", "is wrong from"},
    {"x[N]+ b -> y[N]", "is wrong from"},
    {"x:float16[N] -> y[N]", "is wrong from \"float16[N] -> y[N]\" on"},
    {"x[N] ->", "is wrong from \"\" on"},
    {"x[N] -> y", "\"x[N] -> y\" lacks shapes of results, and there is no shape()"},
    {"x[N] -> y[N]; s", "lacks shapes of results, and there is no shape()"},
    {"x[N]", "the record of \"signed\" is not usable: it has no output"},
    {"x[...] -> y[..., 2, 2, 2, 2, 2, 2, 2, 2]", "y would have 9 dimensions, wanted at most 8"},
};

LOOP_TEST(a_wrong_signature_is_an_error, sizeof wrong_signatures / sizeof *wrong_signatures)
{
    const gd_op op = signed_op(wrong_signatures[_i].signature);
    for (int again = 0; again < 2; again++)
        REFUSED(gd_apply(&op, (gd_tensor *[]){x, x}, 1, NULL), wrong_signatures[_i].message);
}

/* Two records at one address, with their texts at one address, too. */
TEST(a_signature_may_change_with_its_record)
{
    char text[] = "x[3] -> y[4]";
    gd_op op = signed_op(text); /* which holds, whatever else the record says */
    op.inputs = op.outputs = 2, op.optional_inputs = GD_BIT(0);
    ck_assert_int_eq(gd_tensor_count(gd_apply(&op, &x, 1, NULL)), 4);
    text[10] = '7';
    ck_assert_int_eq(gd_tensor_count(gd_apply(&op, &x, 1, NULL)), 7);
    gd_op copy = *gd_find_op(NULL, "tanh"); /* of constant records, in the same place */
    gd_apply(&copy, &x, 1, NULL);
    copy = *gd_find_op(NULL, "mul");
    ck_assert_ptr_nonnull(gd_apply(&copy, (gd_tensor *[]){x, x}, 2, NULL));
}

typedef struct three_args {
    double a;
    int64_t b;
    int c;
} three_args;

TEST(arguments_have_ranges)
{
    static const gd_option_range ranges[] = {
        {"a", GD_FIELD(three_args, a), 0, 2, "0 to 2"},
        {"b", GD_FIELD(three_args, b), 1, (double)INT32_MAX, "at least 1"},
        GD_AXIS_RANGE(three_args, c),
        {0}};
    gd_op op = signed_op("x[...] -> y[...]");
    op.ranges = ranges, op.args_size = sizeof(three_args);
    ck_assert_ptr_nonnull(gd_apply(&op, &x, 1, &(three_args){2, 1, 0}));
    REFUSED(gd_apply(&op, &x, 1, &(three_args){NAN, 1, 0}), "signed: a is nan, wanted 0 to 2");
    REFUSED(gd_apply(&op, &x, 1, &(three_args){0, -5, 0}), "signed: b is -5, wanted at least 1");
    REFUSED(gd_apply(&op, &x, 1, &(three_args){0, 1, 1}),
            "signed: axis is 1, wanted one of the 1 dimensions of x [3]");
}

/* ---- Devices, reasons, names ---------------------------------------------------------------- */

TEST(an_op_for_another_device_is_refused)
{
    gd_op elsewhere = multiples;
    elsewhere.forward[GD_CUDA] = elsewhere.forward[GD_CPU];
    elsewhere.forward[GD_CPU] = NULL;
    elsewhere.backward[GD_CPU] = NULL;
    REFUSED(gd_apply(&elsewhere, &x, 1, NULL), "multiples: there is no forward for cpu");
}

static gd_status shape_refuses(const gd_call *call, gd_shapes *out)
{
    shape_like_x(call, out);
    return GD_ERROR_ARGUMENT;
}

TEST(an_op_may_refuse_without_a_reason)
{
    gd_op wordless = multiples;
    wordless.shape = shape_refuses;
    REFUSED(gd_apply(&wordless, &x, 1, NULL), "multiples: its shape() refused the inputs");
}

TEST(the_record_names_its_inputs)
{
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) {
        const int inputs = gd_op_count(op).inputs;
        for (int k = 0; k < (inputs == GD_ANY_INPUTS ? 1 : inputs); k++)
            ck_assert_int_ne(strncmp(gd_input_name(op, k).text, "input ", 6), 0);
    }
    ck_assert_text_eq(gd_input_name(gd_find_op(ctx, "linear"), 1), "weight");
    ck_assert_text_eq(gd_input_name(gd_find_op(ctx, "concat"), 7), "x[7]");
    gd_op named = multiples;
    ck_assert_text_eq(gd_input_name(&named, 0), "input 0");
    named.inputs = 2;
    named.input_names[1] = "factor";
    REFUSED(gd_apply(&named, (gd_tensor *[]){x, NULL}, 2, NULL),
            "multiples: factor is NULL, wanted a tensor");
}

/* ---- Segments ----------------------------------------------------------------------------- */

static gd_tensor *nothing(void *user, gd_tensor *const *inputs, int count)
{
    (void)user, (void)inputs, (void)count;
    return NULL;
}

static gd_tensor *once(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    int *calls = user;
    return (*calls)++ ? NULL : gd_mul(inputs[0], inputs[0]);
}

static gd_tensor *product(void *user, gd_tensor *const *inputs, int count)
{
    (void)user, (void)count;
    return gd_mul(inputs[0], inputs[0]);
}

static gd_tensor *shrinking(void *user, gd_tensor *const *inputs, int count)
{
    (void)count;
    int *calls = user;
    gd_tensor *y = gd_mul(inputs[0], inputs[0]);
    return (*calls)++ ? gd_sum_all(y) : y;
}

TEST(segments_that_return_nothing)
{
    int calls = 0;
    REFUSED(gd_recompute(ctx, nothing, NULL, &x, 1),
            "recompute: the segment returned NULL, wanted a tensor");
    gd_backward(gd_sum(gd_recompute(ctx, once, &calls, &x, 1), NULL, 0, false));
    ck_assert_error(ctx, "recompute: the segment returned NULL in its second run");
    ck_assert_int_eq(calls, 2);
    gd_step_end(ctx);
    calls = 0;
    gd_backward(gd_sum_all(gd_recompute(ctx, shrinking, &calls, &x, 1)));
    ck_assert_error(ctx, "recompute: op 2 of the segment is sum in its second run, wanted the end");
    gd_step_end(ctx);
}

TEST(segments_of_bad_inputs)
{
    gd_tensor *elsewhere = gd_tensor_create(other, GD_FLOAT64, GD_SHAPE(3));
    gd_tensor *freed = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(3));
    gd_neg(x); /* a step is under way: the header of what is freed waits for its end */
    gd_tensor_free(freed);
    REFUSED(gd_recompute(ctx, product, NULL, &elsewhere, 1),
            "recompute: input 0 is a tensor of another context");
    REFUSED(gd_recompute(ctx, product, NULL, (gd_tensor *[]){x, freed}, 2),
            "recompute: input [3] was freed");
    REFUSED(gd_recompute(ctx, product, NULL, &x, 0), "recompute: there are no inputs");
}

/* ---- Files -------------------------------------------------------------------------------- */

TEST(a_tape_on_a_full_disk)
{
    gd_mul(x, x);
    FILE *full = fopen("/dev/full", "w");
    if (!full) return; /* not on this system */
    setvbuf(full, NULL, _IONBF, 0);
    gd_tape_print(ctx, full);
    ck_assert_error(ctx, "tape_print: writing to the file failed");
    clearerr(full);
    gd_tape_print_dot(ctx, full);
    ck_assert_error(ctx, "tape_print_dot: writing to the file failed");
    fclose(full);
}

TEST(absent_inputs_and_saved_tensors_are_printed)
{
    char text[512] = "";
    FILE *file = tmpfile();
    gd_rms_norm(x, NULL, 1e-5); /* keeps x, 24 bytes, and rstd, 8 */
    ck_assert_int_eq(gd_tape_print(ctx, file), GD_OK);
    read_back(file, text, sizeof text);
    ck_assert_msg(strstr(text, "#0 rms_norm(input [3], none, none) -> [3]  saved 32 bytes\n") !=
                      NULL,
                  "%s", text);
}

CHECK_MAIN_WITHIN("user functions", open_contexts, close_contexts)
