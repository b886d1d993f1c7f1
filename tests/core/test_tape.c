/* test_tape.c - the tape and its backward, on three small ops of the test's own, so that nothing
 * here depends on the library's. */
#include "each_context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- The ops: square(x), plus(a, b), one without a backward, and one whose backward fails ---- */

static double get(const gd_tensor *t, int64_t i)
{
    return gd_tensor_dtype(t) == GD_FLOAT64 ? ((double *)gd_tensor_data(t))[i]
                                            : (double)((float *)gd_tensor_data(t))[i];
}

static void put(gd_tensor *t, int64_t i, double value, bool add)
{
    if (gd_tensor_dtype(t) == GD_FLOAT64) {
        double *d = gd_tensor_data(t);
        d[i] = add ? d[i] + value : value;
    } else {
        float *f = gd_tensor_data(t);
        f[i] = (float)(add ? (double)f[i] + value : value);
    }
}

static gd_status square_forward(const gd_call *call)
{
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        double x = get(call->input[0], i);
        put(call->output[0], i, x * x, false);
    }
    return GD_OK;
}

static gd_status square_backward(const gd_call *call)
{
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        double dx = 2 * get(call->input[0], i) * get(call->doutput[0], i);
        put(call->dinput[0], i, dx, call->accumulate[0]);
    }
    return GD_OK;
}

static gd_status plus_forward(const gd_call *call)
{
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        put(call->output[0], i, get(call->input[0], i) + get(call->input[1], i), false);
    }
    return GD_OK;
}

static gd_status plus_backward(const gd_call *call)
{
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; call->dinput[k] && i < gd_tensor_count(call->dinput[k]); i++) {
            put(call->dinput[k], i, get(call->doutput[0], i), call->accumulate[k]);
        }
    }
    return GD_OK;
}

static gd_status failing_backward(const gd_call *call)
{
    return gd_call_fail(call, GD_ERROR_STATE, "this backward always fails");
}

static const gd_op square = {.name = "square",
                             .formula = "y = x^2",
                             .signature = "x[...] -> y[...]",
                             .backward_reads_inputs = 1,
                             .forward = {square_forward},
                             .backward = {square_backward}};
static const gd_op plus = {.name = "plus",
                           .formula = "y = a + b",
                           .signature = "a[...] b[...] -> y[...]",
                           .dinput_over_doutput = 3,
                           .forward = {plus_forward},
                           .backward = {plus_backward}};
static const gd_op one_way = {.name = "one_way",
                              .formula = "y = x^2",
                              .signature = "x[...] -> y[...]",
                              .forward = {square_forward}};
static const gd_op broken = {.name = "broken",
                             .formula = "y = x^2",
                             .signature = "x[...] -> y[...]",
                             .forward = {square_forward},
                             .backward = {failing_backward}};

static gd_tensor *do_square(gd_tensor *x)
{
    return gd_apply(&square, &x, 1, NULL);
}

static gd_tensor *do_plus(gd_tensor *a, gd_tensor *b)
{
    return gd_apply(&plus, (gd_tensor *[]){a, b}, 2, NULL);
}

/* ---- Fixture ------------------------------------------------------------------------------ */

static void open_context(void)
{
    gd_context_options options = {.poison = true, .seed = 5};
    ctx = gd_context_create(&options);
}

static gd_tensor *leaf(double value)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT64, 0, NULL);
    gd_tensor_fill(t, value);
    gd_tensor_set_requires_grad(t, true);
    return t;
}

static gd_tensor *large_leaf(int64_t count, double value)
{
    gd_tensor *t = gd_tensor_create(ctx, GD_FLOAT32, 1, &count);
    gd_tensor_fill(t, value);
    gd_tensor_set_requires_grad(t, true);
    return t;
}

/* ---- Gradients ---------------------------------------------------------------------------- */

TEST(gradients_add_up_where_paths_meet)
{
    gd_tensor *x = leaf(3);
    gd_tensor *s = do_square(x);                            /* x^2 */
    gd_tensor *loss = do_plus(do_square(s), do_plus(s, x)); /* x^4 + x^2 + x */
    ck_assert_double_eq(gd_item(loss), 93);
    ck_assert_int_eq(gd_tape_length(ctx), 4);
    ck_assert_int_eq(gd_backward(loss), GD_OK);
    ck_assert_double_eq(gd_item(gd_grad(x)), 4 * 27 + 6 + 1);
    ck_assert_double_eq(gd_item(loss), 93); /* a loss stays readable */
    gd_step_end(ctx);
    ck_assert_int_eq(gd_tape_length(ctx), 0);
    ck_assert_double_eq(gd_item(gd_grad(x)), 115); /* a leaf's gradient outlives the step */
}

TEST(the_same_tensor_twice_in_one_call)
{
    gd_tensor *x = leaf(3);
    gd_backward(do_plus(x, x));
    ck_assert_double_eq(gd_item(gd_grad(x)), 2);
    gd_grad_clear(x);
    ck_assert_ptr_null(gd_grad(x));
    gd_tensor *s = do_square(x);
    gd_backward(do_plus(s, s));
    ck_assert_double_eq(gd_item(gd_grad(x)), 12);
}

TEST(gradients_accumulate_over_backwards)
{
    gd_tensor *x = leaf(3);
    for (int i = 0; i < 4; i++) {
        gd_backward(do_square(x));
        gd_step_end(ctx);
    }
    ck_assert_double_eq(gd_item(gd_grad(x)), 24);
}

TEST(cotangents_weight_the_outputs)
{
    gd_tensor *x = leaf(3), *u = gd_tensor_create(ctx, GD_FLOAT64, 0, NULL);
    gd_tensor_fill(u, 10);
    gd_tensor *outputs[2] = {do_square(x), do_plus(x, x)};
    gd_tensor *cotangents[2] = {u, NULL};
    gd_backward_options options = {.cotangents = cotangents, .keep_tape = true};
    ck_assert_int_eq(gd_backward_from(outputs, 2, &options), GD_OK);
    ck_assert_double_eq(gd_item(gd_grad(x)), 10 * 6 + 2);
    ck_assert_int_eq(gd_backward_from(outputs, 2, &options), GD_OK); /* the tape was kept */
    ck_assert_double_eq(gd_item(gd_grad(x)), 2 * (10 * 6 + 2));
    for (int i = 0; i < 2; i++) { /* s is released by the walk: its backward does not read it */
        gd_tensor *s = do_square(x), *y = do_plus(s, s);
        gd_grad_clear(x);
        gd_backward_from(&y, 1, &(gd_backward_options){.cotangents = i ? &s : &u});
        ck_assert_double_eq(gd_item(gd_grad(x)), 2 * (i ? 9 : 10) * 6);
    }
    ck_assert_double_eq(gd_item(u), 10);
}

/* A kept tape is walked three times: each walk passes on its own gradients, and not those that the
 * ones before left in the retained gradient. */
TEST(retained_gradients_add_up_and_are_passed_on_once)
{
    gd_tensor *x = leaf(3);
    gd_tensor *s = gd_retain_grad(do_square(x)), *loss = do_square(s), *sum = do_plus(s, x);
    const gd_backward_options keep = {.keep_tape = true};
    ck_assert_int_eq(gd_backward_from(&loss, 1, &keep), GD_OK);
    gd_tensor *grad = gd_grad(s);
    ck_assert_double_eq(gd_item(grad), 18);
    ck_assert_double_eq(gd_item(gd_grad(x)), 108);
    ck_assert_int_eq(gd_backward_from(&loss, 1, &keep), GD_OK);
    ck_assert_double_eq(gd_item(gd_grad(s)), 2 * 18);
    ck_assert_double_eq(gd_item(gd_grad(x)), 2 * 108);
    ck_assert_int_eq(gd_backward_from(&sum, 1, &keep), GD_OK);
    ck_assert_double_eq(gd_item(gd_grad(s)), 2 * 18 + 1);
    ck_assert_double_eq(gd_item(gd_grad(x)), 2 * 108 + 6 + 1);
    ck_assert_ptr_eq(gd_grad(s), grad); /* the same memory */
    ck_assert_int_eq(gd_backward_from(&s, 1, &keep), GD_OK);
    ck_assert_double_eq(gd_item(grad), 2 * 18 + 2);
    ck_assert_double_eq(gd_item(gd_grad(x)), 2 * 108 + 2 * 6 + 1);
    ck_assert_int_eq(gd_grad_clear(s), GD_OK);
    ck_assert_ptr_null(gd_grad(s));
    ck_assert_int_eq(gd_backward_from(&loss, 1, &keep), GD_OK);
    ck_assert_double_eq(gd_item(gd_grad(s)), 18);
    ck_assert_double_eq(gd_item(gd_grad(x)), 3 * 108 + 2 * 6 + 1);
}

TEST(detach_and_no_grad_stop_gradients)
{
    gd_tensor *x = leaf(3);
    gd_tensor *loss = do_plus(do_square(gd_detach(x)), x);
    gd_backward(loss);
    ck_assert_double_eq(gd_item(gd_grad(x)), 1);
    gd_no_grad_begin(ctx);
    gd_no_grad_begin(ctx);
    gd_no_grad_end(ctx);
    ck_assert(!gd_grad_enabled(ctx));
    gd_tensor *y = do_square(x);
    gd_no_grad_end(ctx);
    ck_assert(gd_grad_enabled(ctx));
    ck_assert(!gd_tensor_requires_grad(y));
    gd_backward(y);
    ck_assert_error(ctx, "does not depend on any tensor that requires a gradient");
    gd_no_grad_end(ctx);
    ck_assert_error(ctx, "no_grad_end");
}

/* ---- What a backward refuses --------------------------------------------------------------- */

TEST(a_second_backward_is_refused)
{
    gd_tensor *x = leaf(3), *s = do_square(x), *loss = do_square(s);
    gd_backward(loss);
    gd_backward(loss);
    ck_assert_error(ctx, "used up by an earlier backward");
    gd_tensor *other = do_plus(loss, x); /* the loss itself was kept */
    gd_backward(other);
    ck_assert_error(ctx, "used up by an earlier backward");
    do_square(s);
    ck_assert_error(ctx,
                    "square: the memory of x [], made by square, was reused after gd_backward");
}

TEST(a_missing_backward_is_named_with_its_path)
{
    gd_tensor *x = leaf(3);
    gd_tensor *y = gd_apply(&one_way, &x, 1, NULL);
    gd_backward(do_plus(do_square(y), x));
    ck_assert_error(ctx, "one_way: it has no backward on cpu");
    gd_step_end(ctx);
    y = gd_apply(&one_way, &x, 1, NULL);
    gd_backward(do_plus(do_square(y), x));
    ck_assert_error(ctx, "(from the loss: plus <- square <- one_way)");
    gd_step_end(ctx);
    gd_backward(do_square(gd_detach(gd_apply(&one_way, &x, 1, NULL))));
    ck_assert_error(ctx, "does not depend");
}

TEST(a_failing_backward_leaves_a_usable_context)
{
    gd_tensor *x = leaf(3);
    gd_backward(do_square(gd_apply(&broken, &x, 1, NULL)));
    ck_assert_error(ctx, "broken: this backward always fails");
    gd_step_end(ctx);
    gd_grad_clear(x);
    gd_backward(do_square(x));
    ck_assert_double_eq(gd_item(gd_grad(x)), 6);
}

TEST(changed_and_freed_inputs_are_noticed)
{
    gd_tensor *x = leaf(3);
    gd_tensor *loss = do_square(x);
    gd_tensor_fill(x, 4);
    gd_backward(loss);
    ck_assert_error(ctx, "square: its backward needs the input [] as it was in the forward");
    gd_step_end(ctx);
    loss = do_square(x);
    gd_tensor_free(x);
    gd_backward(loss);
    ck_assert_error(ctx, "square: its backward needs the input [], but that was freed");
    do_square(x);
    ck_assert_error(ctx, "square: x [] was freed");
    gd_step_end(ctx);
}

/* ---- Memory ------------------------------------------------------------------------------- */

static size_t activations(void)
{
    return gd_memory(ctx).current[GD_MEMORY_ACTIVATIONS];
}

TEST(memory_returns_at_its_last_use)
{
    const int64_t n = 1000;
    gd_tensor *x = large_leaf(n, 1.5), *y = x;
    for (int i = 0; i < 8; i++) y = do_plus(y, x);
    ck_assert_uint_eq(activations(), 8 * 4000);
    gd_backward_from(&y, 1, NULL);
    ck_assert_uint_eq(activations(), 4000); /* the output alone */
    /* one gradient of an intermediate at a time besides the leaf's, thanks to dx over dy */
    ck_assert_uint_le(gd_memory(ctx).peak[GD_MEMORY_GRADIENTS], 2 * 4000);
    double dx[1000];
    gd_tensor_read_f64(gd_grad(x), dx, n);
    ck_assert_double_eq(dx[999], 9);
    gd_step_end(ctx);
    ck_assert_uint_eq(activations(), 0);
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_WORKSPACE], 0);
}

TEST(freeing_an_op_tensor_waits_for_its_readers)
{
    gd_tensor *x = large_leaf(1000, 1.5);
    gd_tensor *s = do_square(x), *t = do_square(s), *u = do_plus(t, x);
    gd_tensor_free(s); /* the backward of the second square reads it */
    ck_assert_uint_eq(activations(), 3 * 4000);
    gd_tensor_free(t); /* nobody does */
    ck_assert_uint_eq(activations(), 2 * 4000);
    gd_backward_from(&u, 1, NULL);
    double dx[1000];
    gd_tensor_read_f64(gd_grad(x), dx, 1000);
    ck_assert_double_eq(dx[3], 4 * 1.5 * 1.5 * 1.5 + 1);
    ck_assert_uint_eq(activations(), 4000);
}

TEST(a_warm_step_asks_the_system_for_nothing)
{
    gd_tensor *x = large_leaf(1000, 0.5);
    uint64_t calls = 0;
    for (int step = 0; step < 5; step++) {
        gd_tensor *y = x;
        for (int i = 0; i < 5; i++) y = do_square(y);
        gd_backward_from(&y, 1, NULL);
        gd_step_end(ctx);
        if (step == 1) calls = gd_memory(ctx).system_calls;
    }
    ck_assert_uint_eq(gd_memory(ctx).system_calls, calls);
}

/* ---- Pictures ----------------------------------------------------------------------------- */

static void print_to(char *text, size_t size, gd_status (*print)(gd_context *, FILE *))
{
    FILE *file = tmpfile();
    ck_assert_int_eq(print(ctx, file), GD_OK);
    read_back(file, text, size);
}

TEST(the_tape_can_be_printed)
{
    char text[4096];
    gd_tensor *x = leaf(3);
    gd_tensor_set_name(x, "x \"quoted\"");
    gd_tape_record_norms(ctx, true);
    gd_tensor *loss = do_plus(do_square(x), x);
    print_to(text, sizeof text, gd_tape_print);
    ck_assert_str_eq(text, "#0 square(x \"quoted\" []) -> []  saved 8 bytes\n"
                           "#1 plus(#0 [], x \"quoted\" []) -> []  saved 0 bytes\n");
    gd_backward(loss);
    print_to(text, sizeof text, gd_tape_print);
    ck_assert_ptr_nonnull(strstr(text, "used up  |grad| 1\n"));
}

/* Also after the forward, before the backward. */
TEST(norms_may_be_asked_for_later)
{
    char text[4096];
    gd_tensor *loss = do_square(do_square(leaf(3)));
    gd_tape_record_norms(ctx, true);
    gd_backward(loss);
    gd_tape_record_norms(ctx, false);
    print_to(text, sizeof text, gd_tape_print);
    ck_assert_ptr_nonnull(strstr(text, "|grad| 18\n"));
    gd_step_end(ctx);
    gd_backward(do_square(do_square(leaf(3))));
    print_to(text, sizeof text, gd_tape_print);
    ck_assert_ptr_null(strstr(text, "|grad|"));
}

/* The whole graph: no address is in it, the gradients come back, and x, which two ops read, is
 * drawn once. */
TEST(the_graph_of_a_tape)
{
    char text[4096];
    gd_tensor *x = leaf(3);
    gd_tensor_set_name(x, "x \"quoted\"");
    gd_tape_record_norms(ctx, true);
    gd_backward(do_plus(do_square(x), x));
    print_to(text, sizeof text, gd_tape_print_dot);
    ck_assert_str_eq(text,
                     "digraph tape {\n"
                     "    rankdir=TB;\n"
                     "    node [shape=box, fontname=monospace];\n"
                     "    n0 [id=\"n0\", label=\"#0 square\\n[] |grad| 1\\nsaved 8 bytes\"];\n"
                     "    t0_0 [id=\"t0_0\", shape=ellipse, style=filled, "
                     "label=\"x \\\"quoted\\\"\\n[]\\n|grad| 7\"];\n"
                     "    t0_0 -> n0 [id=\"t0_0_n0_0\", label=\"[]\"];\n"
                     "    n0 -> t0_0 [id=\"n0_0_t0_0\", style=dashed, constraint=false];\n"
                     "    n1 [id=\"n1\", label=\"#1 plus\\n[] |grad| 1\\nsaved 0 bytes\"];\n"
                     "    n0 -> n1 [id=\"n0_n1_0\", label=\"[]\"];\n"
                     "    n1 -> n0 [id=\"n1_0_n0\", style=dashed, constraint=false];\n"
                     "    t0_0 -> n1 [id=\"t0_0_n1_1\", label=\"[]\"];\n"
                     "    n1 -> t0_0 [id=\"n1_1_t0_0\", style=dashed, constraint=false];\n"
                     "}\n");
}

/* ---- Ops of one's own ---------------------------------------------------------------------- */

TEST(ops_can_be_registered)
{
    ck_assert_int_eq(gd_register_op(ctx, &square), GD_OK);
    ck_assert_ptr_eq(gd_find_op(ctx, "square"), &square);
    ck_assert_ptr_null(gd_find_op(NULL, "square"));
    gd_register_op(ctx, &square);
    ck_assert_error(ctx, "register_op: the name \"square\" is taken");
    gd_op bad = square;
    bad.name = "bad";
    bad.signature = NULL;
    gd_register_op(ctx, &bad);
    ck_assert_error(ctx, "it has no shape()");
    gd_register_op(ctx, NULL);
    ck_assert_error(ctx, "op is NULL");
}

TEST(the_first_output_that_is_not_finite_is_found)
{
    const float values[] = {1, 0, 4};
    char text[64] = "";
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), values);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *y = gd_exp(x);
    ck_assert_int_eq(gd_tape_find_nonfinite(ctx, text, sizeof text), -1);
    gd_tensor *z = gd_log(gd_mul(x, x)); /* log 0 */
    gd_tensor_free(y);
    gd_sum(gd_mul(z, z), NULL, 0, false);
    ck_assert_int_eq(gd_tape_find_nonfinite(ctx, text, sizeof text), 2);
    ck_assert_str_eq(text, "#2 log [3]");
    ck_assert_int_eq(gd_tape_find_nonfinite(ctx, NULL, 0), 2);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_tape_find_nonfinite(NULL, text, sizeof text), -1);
    gd_step_end(ctx);
    ck_assert_int_eq(gd_tape_find_nonfinite(ctx, text, sizeof text), -1);
    gd_tensor_free(x);
}

CHECK_MAIN_WITHIN("tape", open_context, teardown)
