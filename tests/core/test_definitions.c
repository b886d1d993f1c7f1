/* test_definitions.c - ops that are run by their definitions: beside kernels, and what the tape,
 * messages and memory have of their parts. */
#include "core/core.h"
#include "cross_entropy/cross_entropy.h"
#include "each_context.h"
#include "op_cases.h"

static gd_tensor *x; /* [3] = 1, 2, 3, which requires a gradient */

static void open_context(void)
{
    ctx = watched_context((gd_context_options){.threads = 1, .seed = 1});
    x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){1, 2, 3});
    gd_tensor_set_requires_grad(x, true);
    ck_assert_no_error(ctx);
}

static void assert_error(const char *words)
{
    const char *error = gd_error(ctx);
    ck_assert_msg(error && !strcmp(error, words), "it says \"%s\"", error ? error : "nothing");
    gd_error_clear(ctx);
    gd_step_end(ctx);
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_ACTIVATIONS], 0);
}

static void assert_gradient(double a, double b, double c)
{
    double *dx = values_of(gd_grad(x));
    const double want[3] = {a, b, c};
    for (int i = 0; i < 3; i++) ck_assert_double_eq_tol(dx[i], want[i], 1e-13 * fabs(want[i]));
    free(dx);
    gd_grad_clear(x);
    gd_step_end(ctx);
}

/* ---- An op of one's own ------------------------------------------------------------------- */

static void swish_definition(const gd_call *call)
{
    call->output[0] = gd_mul(call->input[0], gd_sigmoid(call->input[0]));
}

static const gd_op swish = {.name = "swish",
                            .formula = "y = x sigmoid(x)",
                            .signature = "x[...] -> y[...]",
                            .definition = swish_definition};

static gd_tensor *run(const gd_op *op)
{
    return gd_apply(op, &x, 1, NULL);
}

static double swish_slope(double a)
{
    const double s = 1 / (1 + exp(-a));
    return s + a * s * (1 - s);
}

TEST(a_definition_alone_is_an_op)
{
    gd_backward(gd_sum_all(run(&swish)));
    assert_gradient(swish_slope(1), swish_slope(2), swish_slope(3));
    gd_tensor *y = gd_sum_all(run(&swish)), *g = NULL;
    const gd_gradients_options options = {.differentiable = true};
    ck_assert_int_eq(gd_gradients(&y, 1, &options, &x, 1, &g), GD_OK);
    gd_backward(gd_sum_all(g));
    double second[3];
    for (int i = 0; i < 3; i++) { /* s' (2 + x (1 - 2 s)) */
        const double s = 1 / (1 + exp(-i - 1.0));
        second[i] = s * (1 - s) * (2 + (i + 1) * (1 - 2 * s));
    }
    assert_gradient(second[0], second[1], second[2]);
}

static bool no_kernels(const gd_call *call)
{
    return gd_tensor_dim(call->input[0], 0) != 3;
}

static gd_status ones(const gd_call *call)
{
    gd_tensor_fill(call->output[0], 1);
    return GD_OK;
}

/* The kernel is wrong, so that it can be told who ran. */
TEST(kernels_says_which_calls_have_kernels)
{
    gd_op op = swish;
    op.forward[GD_CPU] = ones;
    op.kernels = no_kernels;
    const double want = 1 / (1 + exp(-1)) + 2 / (1 + exp(-2)) + 3 / (1 + exp(-3));
    ck_assert_double_eq_tol(gd_item(gd_sum_all(run(&op))), want, 1e-12);
    gd_tensor *two = gd_slice(x, 0, 0, 2);
    ck_assert_double_eq(gd_item(gd_sum_all(gd_apply(&op, &two, 1, NULL))), 2);
    op.kernels = NULL;
    ck_assert_double_eq(gd_item(gd_sum_all(run(&op))), 3);
    op.definition = NULL;
    op.kernels = no_kernels;
    gd_step_end(ctx);
    ck_assert_ptr_null(run(&op));
    assert_error(
        "apply: the record of \"swish\" is not usable: it has kernels() without a definition");
    op = swish;
    op.definition = NULL;
    ck_assert_ptr_null(run(&op));
    assert_error(
        "apply: the record of \"swish\" is not usable: it has neither a forward nor a definition");
}

static gd_status cubes(const gd_call *call)
{
    gd_no_grad_begin(ctx);
    gd_tensor *row = gd_slice(call->input[0], 0, 0, 1); /* a view of what the input was packed to */
    gd_tensor_copy(call->output[0], gd_mul(gd_mul(row, row), row));
    gd_no_grad_end(ctx);
    return GD_OK;
}

static gd_status first_row(const gd_call *call, gd_shapes *out)
{
    out->output[0] = gd_spec_like(call->input[0]);
    out->output[0].shape[0] = 1;
    return GD_OK;
}

TEST(a_kernel_may_call_ops)
{
    gd_op op = swish;
    op.shape = first_row;
    op.definition = NULL;
    op.forward[GD_CPU] = cubes;
    gd_tensor *columns = gd_transpose(gd_reshape(x, GD_SHAPE(1, 3)), 0, 1);
    gd_tensor *rows = gd_expand(columns, 2, (const int64_t[]){3, 2});
    for (int times = 0; times < 2;
         times++) { /* the second one packs into the memory of the first */
        double *y = values_of(gd_apply(&op, &rows, 1, NULL));
        for (int i = 0; i < 2; i++) ck_assert_double_eq(y[i], 1);
        free(y);
    }
    gd_step_end(ctx);
}

/* ---- What a definition makes -------------------------------------------------------------- */

static void copies_definition(const gd_call *call)
{
    call->output[0] = call->output[1] = call->input[0];
}

static void forgetful_definition(const gd_call *call)
{
    call->output[0] = gd_neg(call->input[0]);
}

static void wrong_definition(const gd_call *call)
{
    call->output[0] = gd_sum_all(call->input[0]);
}

static void failing_definition(const gd_call *call)
{
    gd_tensor *y = gd_mul(call->input[0], call->input[0]);
    call->output[0] = gd_mul(y, gd_constant(ctx, GD_FLOAT64, GD_SHAPE(2), 1));
}

static void refusing_definition(const gd_call *call)
{
    gd_mul(call->input[0], call->input[0]);
    gd_call_fail(call, GD_ERROR_ARGUMENT, "x is wrong, wanted another");
}

/* Each output is a tensor of its own, and the input stays the user's. */
TEST(an_input_may_be_an_output)
{
    gd_op op = swish;
    op.signature = "x[...] -> y[...] z[...]";
    op.definition = copies_definition;
    gd_tensor *y[2];
    ck_assert_int_eq(gd_apply_multi(&op, &x, 1, NULL, y), GD_OK);
    ck_assert_ptr_ne(y[0], x);
    ck_assert_ptr_ne(y[0], y[1]);
    gd_backward(gd_sum_all(gd_add(y[0], gd_mul(y[1], y[1]))));
    assert_gradient(3, 5, 7);
}

TEST(what_a_definition_does_wrong_is_said)
{
    gd_op op = swish;
    op.signature = "x[...] -> y[...] z[...]";
    op.definition = forgetful_definition;
    gd_tensor *y[2];
    gd_apply_multi(&op, &x, 1, NULL, y);
    assert_error("swish: its definition did not set output 1");
    op = swish;
    op.definition = wrong_definition;
    ck_assert_ptr_null(run(&op));
    assert_error("swish: its definition made a tensor [], wanted [3]");
    op.definition = refusing_definition;
    ck_assert_ptr_null(run(&op));
    assert_error("swish: x is wrong, wanted another");
}

/* ---- Who is named ------------------------------------------------------------------------- */

TEST(messages_name_the_op_and_its_part)
{
    gd_op op = swish;
    op.definition = failing_definition;
    const int64_t before = gd_tape_length(ctx);
    ck_assert_ptr_null(run(&op));
    ck_assert_int_eq(gd_tape_length(ctx), before);
    assert_error("swish: mul: b is float64 [2], wanted a shape that broadcasts with a float64 [3]");

    gd_tensor *y = run(&swish); /* in the backward */
    gd_tensor_fill(x, 1);
    gd_backward(gd_sum_all(y));
    assert_error(
        "swish: mul: its backward needs the input [3] as it was in the forward, but that was "
        "overwritten since");

    gd_tensor_write_f64(x, (double[]){1, 2, NAN}, 3); /* in the search for a NaN, and in prints */
    char text[64];
    run(&swish);
    ck_assert_int_eq(gd_tape_find_nonfinite(ctx, text, sizeof text), 0);
    ck_assert_str_eq(text, "#0 swish: sigmoid [3]");
    FILE *file = tmpfile();
    char lines[1024];
    gd_tape_print(ctx, file);
    read_back(file, lines, sizeof lines);
    ck_assert_msg(!strncmp(lines, "#0 swish: sigmoid(", 18), "%s", lines);
    gd_step_end(ctx);
}

static void count_parts(void *user, const gd_call *call, bool backward, bool begins)
{
    int *calls = user;
    if (begins && call->part_of == &swish) calls[backward]++;
}

TEST(watchers_know_whose_part_a_call_is)
{
    int calls[2] = {0, 0};
    gd_watch_ops(ctx, count_parts, calls);
    gd_backward(gd_sum_all(run(&swish)));
    gd_watch_ops(ctx, NULL, NULL);
    ck_assert_int_eq(calls[0], 2);
    ck_assert_int_eq(calls[1], 2);
    gd_grad_clear(x);
    gd_step_end(ctx);
}

/* ---- Memory ------------------------------------------------------------------------------- */

static void long_definition(const gd_call *call)
{
    gd_tensor *t = gd_add_scalar(gd_neg(call->input[0]), 1); /* no backward reads these */
    call->output[0] = gd_mul(gd_add_scalar(gd_neg(gd_reshape(t, GD_SHAPE(1024))), 1), t);
}

static size_t kept_by(gd_tensor *in)
{
    const gd_op op = {
        .name = "long", .signature = "x[...] -> y[...]", .definition = long_definition};
    const size_t before = gd_memory(ctx).current_total;
    gd_apply(&op, &in, 1, NULL);
    ck_assert_no_error(ctx);
    return gd_memory(ctx).current_total - before;
}

/* Of 1024 numbers each: the output, and the two factors of the product. */
TEST(what_no_backward_reads_is_freed)
{
    gd_tensor *large = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(1024));
    gd_tensor_fill(large, 2);
    ck_assert_uint_eq(kept_by(large), 8192);
    gd_tensor_set_requires_grad(large, true);
    ck_assert_uint_eq(kept_by(large), 3 * 8192);
    gd_no_grad_begin(ctx);
    ck_assert_uint_eq(kept_by(large), 8192);
    gd_no_grad_end(ctx);
    gd_step_end(ctx);
    gd_tensor_free(large);
}

/* ---- Random numbers, segments, 16 bits ---------------------------------------------------- */

static gd_status drop_shape(const gd_call *call, gd_shapes *out)
{
    (void)call;
    out->random_words = 1 << 12;
    return GD_OK;
}

static void drop_definition(const gd_call *call)
{
    call->output[0] = gd_dropout(gd_mul(call->input[0], call->input[0]), 0.5);
}

static const gd_op drop = {.name = "drop",
                           .signature = "x[...] -> y[...]",
                           .random = true,
                           .shape = drop_shape,
                           .definition = drop_definition};

static gd_tensor *drop_segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(gd_apply(&drop, in, 1, NULL), in[0]);
}

static void gradient_of_drops(gd_tensor *in, bool recompute, double *dx)
{
    gd_random_set(ctx, (gd_random_state){.seed = 3});
    gd_tensor *y =
        recompute ? gd_recompute(ctx, drop_segment, NULL, &in, 1) : drop_segment(NULL, &in, 1);
    gd_backward(gd_sum_all(gd_mul(y, gd_dropout(y, 0.5))));
    ck_assert_no_error(ctx);
    gd_tensor_read_f64(gd_grad(in), dx, 64);
    gd_grad_clear(in);
    gd_step_end(ctx);
}

/* The stream goes on behind the words of the record, whatever the parts have drawn. */
TEST(random_words_repeat_in_a_segment)
{
    double plain[64], again[64], one[64];
    gd_tensor *many = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(64));
    gd_tensor_fill(many, 1);
    gd_tensor_set_requires_grad(many, true);
    gradient_of_drops(many, false, plain);
    gradient_of_drops(many, true, again);
    ck_assert_mem_eq(plain, again, sizeof plain);
    gd_random_set(ctx, (gd_random_state){.seed = 3});
    gd_tensor_read_f64(gd_apply(&drop, &many, 1, NULL), one, 64);
    ck_assert_uint_eq(gd_random_get(ctx).offset, 1 << 12);
    gd_random_set(ctx, (gd_random_state){.seed = 3});
    double *kernel = values_of(gd_dropout(many, 0.5));
    ck_assert_mem_eq(one, kernel, sizeof one);
    free(kernel);
    gd_step_end(ctx);
    gd_tensor_free(many);
}

/* Computed in float32, and rounded once; a parameter's gradient is not rounded at all. */
TEST(sixteen_bits_are_rounded_once)
{
    gd_params *params = gd_params_create(ctx, GD_BFLOAT16);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(3), 0);
    gd_params_finish(params);
    gd_tensor_write_f64(w, (double[]){0.375, 1.2265625, -0.7578125}, 3);
    gd_tensor *y = gd_keep(gd_apply(&swish, &w, 1, NULL));
    ck_assert_int_eq(gd_tensor_dtype(y), GD_BFLOAT16);
    gd_backward(gd_sum_all(gd_cast(y, GD_FLOAT32)));
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_tensor_dtype(gd_grad(w)), GD_FLOAT32);
    double *value = values_of(w), *got = values_of(y), *dw = values_of(gd_grad(w));
    for (int i = 0; i < 3; i++) {
        const double want = value[i] / (1 + exp(-value[i])), unit = ulp_of(want, GD_BFLOAT16);
        ck_assert_double_eq_tol(got[i], want, 0.5001 * unit);
        ck_assert_double_eq_tol(dw[i], swish_slope(value[i]), 1e-6);
    }
    free(value), free(got), free(dw);
    gd_step_end(ctx);
    gd_params_free(params);
}

/* ---- Beside kernels ----------------------------------------------------------------------- */

/* Every record that has both, without its kernels. */
static const gd_op *defined(gd_op *copy, const gd_op *op)
{
    *copy = *op;
    memset(copy->forward, 0, sizeof copy->forward);
    memset(copy->backward, 0, sizeof copy->backward);
    copy->derivative = NULL;
    copy->view = NULL;
    copy->mixed = 0; /* which is of the kernels */
    return copy;
}

/* In 16 bits but for ops whose backward reads an output: as the kernels have rounded it, while a
 * definition rounds no numbers in between. A definition of no numbers may be a constant. */
LOOP_TEST(definitions_agree_with_kernels, 4)
{
    static const gd_dtype dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_BFLOAT16, GD_FLOAT16};
    tally t = {0};
    const gd_op *op;
    gd_op copy;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        const bool both = op->definition && op->forward[GD_CPU] && !op->updates_inputs;
        const bool rounds = gd_dtype_size(dtypes[_i]) == 2 && op->backward_reads_outputs;
        for (int k = 0; k < op->case_count && both && !rounds; k++) {
            if (op->cases[k].may_be_empty) continue;
            problem p = {.op = op, .c = &op->cases[k], .seed = 11};
            outcome want, got;
            make_values(&p, ctx, dtypes[_i]);
            run_problem(&p, ctx, dtypes[_i], PACKED, &want);
            p.op = defined(&copy, op);
            run_problem(&p, ctx, dtypes[_i], PACKED, &got);
            ck_assert_msg(!got.refused[0], "%s: %s", p.c->name, got.refused);
            compare_outcomes(&p, dtypes[_i], "by definition", &got, &want, &t);
            free_outcome(&got);
            free_outcome(&want);
            free_values(&p);
        }
    }
    printf("%s: %d tensors compared, at most %.2f of the tolerance: %s\n",
           gd_dtype_name(dtypes[_i]), t.compared, t.worst, t.where);
    ck_assert_int_gt(t.compared, 100);
    ck_assert_int_eq(t.wrong, 0);
}

/* What a GPU runs: ignored rows and classes of weight 0 hold what they like, as for the
 * CPU's kernels. */
TEST(nll_loss_of_what_does_not_count)
{
    gd_op copy;
    defined(&copy, gd_find_op(ctx, "nll_loss"));
    const double rows[] = {NAN, NAN, -1, -2, -INFINITY, -3};
    gd_tensor *in[] = {gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3, 2), rows),
                       gd_tensor_from(ctx, GD_INT32, GD_SHAPE(3), (int32_t[]){-100, 1, 0}),
                       gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(2), (double[]){0, 0.5})};
    gd_cross_entropy_args args = {GD_MEAN, -100, true, {false}, 0};
    gd_tensor_set_requires_grad(in[0], true);
    gd_tensor *mean = gd_keep(gd_apply(&copy, in, 3, &args));
    gd_backward(mean);
    ck_assert_double_eq(gd_item(mean), 2);
    double *dx = values_of(gd_grad(in[0]));
    for (int i = 0; i < 6; i++) ck_assert_double_eq(dx[i], i == 3 ? -1 : 0);
    free(dx);
    gd_grad_clear(in[0]);
    gd_tensor_write(in[1], (int32_t[]){-100, -100, -100}, 3 * sizeof(int32_t));
    mean = gd_keep(gd_apply(&copy, in, 3, &args));
    gd_backward(mean);
    double none = 0;
    gd_tensor_read_f64(mean, &none, 1);
    ck_assert_double_nan(none);
    dx = values_of(gd_grad(in[0]));
    for (int i = 0; i < 6; i++) ck_assert_double_eq(dx[i], 0);
    free(dx);
    gd_step_end(ctx);
}

CHECK_MAIN_WITHIN("definitions", open_context, teardown)
