/* test_derivatives.c - gd_jvp and gd_hvp beside derivatives written down by hand. */
#include "each_context.h"

static gd_tensor *x, *w, *v, *u; /* [3]: 1, 2, 3; 0.5, 1, 2, both with a gradient; directions */

static gd_tensor *three(double a, double b, double c)
{
    return gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){a, b, c});
}

static void open_context(void)
{
    ctx = test_context(1);
    x = three(1, 2, 3);
    w = three(0.5, 1, 2);
    v = three(1, -1, 2);
    u = three(3, 0.5, -2);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(w, true);
}

/* ---- J v ---------------------------------------------------------------------------------- */

/* y = x^2 w and z = sum(x): dy = 2 x w vx + x^2 vw, dz = sum(vx). */
TEST(jacobian)
{
    gd_tensor *y[2] = {gd_mul(gd_mul(x, x), w), gd_sum_all(x)}, *Jv[2];
    ck_assert_int_eq(gd_jvp(y, 2, (gd_tensor *[]){x, w}, (gd_tensor *[]){v, u}, 2, NULL, Jv),
                     GD_OK);
    ck_assert_values(Jv[0], 1 + 3, -4 + 2, 24 - 18);
    ck_assert_double_eq(gd_item(Jv[1]), 2);
    ck_assert_int_eq(gd_jvp(y, 2, &w, &u, 1, NULL, Jv), GD_OK);
    ck_assert_values(Jv[0], 3, 2, -18);
    ck_assert_double_eq(gd_item(Jv[1]), 0); /* it does not depend on w */
    gd_backward(y[1]);
    ck_assert_values(gd_grad(x), 1, 1, 1);
    gd_step_end(ctx);
}

/* Differentiated by x, where y = x^3 and so J v = 3 x^2 v: 6 x v. */
TEST(a_jacobian_product_is_a_function)
{
    const gd_product_options options = {.differentiable = true};
    gd_tensor *y = gd_mul(x, gd_mul(x, x)), *Jv;
    gd_jvp(&y, 1, &x, &v, 1, &options, &Jv);
    ck_assert_values(Jv, 3, -12, 54);
    gd_backward(gd_sum_all(Jv));
    ck_assert_values(gd_grad(x), 6, -12, 36);
    gd_step_end(ctx);
}

/* ---- H v ---------------------------------------------------------------------------------- */

/* L = sum(x^3 w): Hxx = 6 x w, Hxw = 3 x^2, Hww = 0. */
TEST(hessian)
{
    gd_tensor *loss = gd_sum_all(gd_mul(gd_mul(x, gd_mul(x, x)), w)), *Hv[2];
    const int64_t length = gd_tape_length(ctx);
    ck_assert_int_eq(gd_hvp(loss, (gd_tensor *[]){x, w}, (gd_tensor *[]){v, u}, 2, NULL, Hv),
                     GD_OK);
    ck_assert_values(Hv[0], 3 + 9, -12 + 6, 72 - 54);
    ck_assert_values(Hv[1], 3, -12, 54);
    gd_hvp(loss, &w, &v, 1, NULL, Hv);
    ck_assert_values(Hv[0], 0, 0, 0);
    ck_assert_int_eq(gd_tape_length(ctx), length); /* nothing is left */
    ck_assert_ptr_null(gd_grad(x));
    gd_backward(loss);
    ck_assert_values(gd_grad(x), 1.5, 12, 54);
    gd_step_end(ctx);
}

/* ---- Memory ------------------------------------------------------------------------------- */

static void count_hook(void *user, gd_tensor *leaf)
{
    (void)leaf;
    ++*(int *)user;
}

/* Many products in one step need no more memory than one, in a segment, too; and the backward after
 * them tells hooks as if there had been none. */
static gd_tensor *segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(gd_tanh(gd_mul(in[0], w)), in[0]);
}

TEST(many_products_in_a_step)
{
    int told = 0;
    gd_on_gradient(ctx, count_hook, &told);
    gd_tensor *loss = gd_sum_all(gd_recompute(ctx, segment, NULL, &x, 1)), *Hv, *Jv;
    size_t before = 0;
    for (int i = 0; i < 100; i++) {
        gd_hvp(loss, &x, &v, 1, NULL, &Hv);
        gd_jvp(&loss, 1, &x, &v, 1, NULL, &Jv);
        ck_assert_no_error(ctx);
        gd_tensor_free(Hv);
        gd_tensor_free(Jv);
        const gd_memory_stats stats = gd_memory(ctx);
        size_t used = 0;
        for (int c = 0; c < GD_MEMORY_CLASS_COUNT; c++) used += stats.current[c];
        if (i == 0) before = used;
        ck_assert_uint_eq(used, before);
    }
    gd_backward(loss);
    ck_assert_int_eq(told, 2);
    gd_on_gradient(ctx, NULL, &told);
    gd_step_end(ctx);
}

/* ---- Errors ------------------------------------------------------------------------------- */

static gd_tensor *cube_of(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_mul(gd_mul(in[0], in[0]), in[0]);
}

/* The calls in a segment that read c when it required a gradient do not count for those
 * that did not. */
TEST(by_a_constant_of_a_segment)
{
    gd_tensor *c = three(1, 2, 3);
    gd_tensor_set_requires_grad(c, true);
    gd_tensor *y = gd_recompute(ctx, cube_of, NULL, &c, 1);
    gd_tensor_set_requires_grad(c, false);
    gd_add(y, gd_mul(c, w));
    gd_tensor_set_requires_grad(c, true);
    ck_assert_error(ctx, "set_requires_grad: mul of this step has read the tensor [3] when it "
                         "required no gradient");
    gd_step_end(ctx);
}

/* y = e^c w + c w: of c, which requires no gradient, the tape has c w alone. */
TEST(by_a_constant)
{
    gd_tensor *c = three(1, 2, 3), *y, *g;
    for (int turn = 0; turn < 2; turn++) {
        y = gd_add(gd_mul(gd_exp(c), w), gd_mul(c, w));
        if (turn) {
            gd_tensor_set_requires_grad(c, true);
            ck_assert_error(ctx,
                            "set_requires_grad: mul of this step has read the tensor [3] when it "
                            "required no gradient");
        }
        gd_jvp(&y, 1, &c, &v, 1, NULL, &g);
        ck_assert_error(ctx, "gradients: input 0 is float64 [3], wanted a tensor that requires");
        gd_hvp(gd_sum_all(y), &c, &v, 1, NULL, &g);
        ck_assert_error(ctx, "gradients: input 0 is float64 [3], wanted a tensor that requires");
        ck_assert_ptr_null(g);
    }
    gd_step_end(ctx);
    y = gd_mul(gd_exp(c),
               w); /* exp is not recorded: a constant, also of a c that requires one later */
    gd_tensor_set_requires_grad(c, true);
    gd_gradients(&y, 1, &(gd_gradients_options){.zeros = true, .keep_tape = true}, &c, 1, &g);
    ck_assert_values(g, 0, 0, 0);
    gd_gradients(&y, 1, NULL, &c, 1, &g);
    ck_assert_error(ctx, "gradients: no output depends on input 0 [3]; set zeros");
    gd_step_end(ctx);
    y = gd_mul(c, c);
    gd_tensor_set_requires_grad(c, false);
    gd_tensor_set_requires_grad(c, true); /* all that read it are on the tape */
    gd_jvp(&y, 1, &c, &v, 1, NULL, &g);
    ck_assert_values(g, 2, -4, 12);
    gd_step_end(ctx);
}

TEST(bad_calls)
{
    gd_tensor *two = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2)), *g, *none = NULL;
    gd_tensor *y = gd_mul(x, w), *loss = gd_sum_all(y);
    ck_assert_int_eq(gd_jvp(NULL, 0, &x, &v, 1, NULL, &g), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_hvp(NULL, &x, &v, 1, NULL, &g), GD_ERROR_ARGUMENT);
    gd_jvp(&y, 1, &x, &two, 1, NULL, &g);
    ck_assert_error(ctx,
                    "jvp: vector 0 is float64 [2], wanted a real tensor of the input's shape [3]");
    gd_hvp(loss, &x, &none, 1, NULL, &g);
    ck_assert_error(ctx, "hvp: vector 0 is NULL, wanted a real tensor");
    gd_hvp(loss, &x, NULL, 1, NULL, &g);
    ck_assert_error(ctx, "hvp: vector 0 is NULL");
    gd_hvp(y, &x, &v, 1, NULL, &g);
    ck_assert_error(ctx, "hvp: loss is [3], wanted one element");
    ck_assert_ptr_null(g);
    gd_hvp(loss, &x, &v, 1, NULL, NULL);
    ck_assert_error(ctx, "gradients: gradients is NULL");
    gd_hvp(loss, NULL, &v, 1, NULL, &g);
    ck_assert_error(ctx, "gradients: inputs is NULL");
    gd_jvp((gd_tensor *[]){y, NULL}, 2, &x, &v, 1, NULL, (gd_tensor *[2]){NULL});
    ck_assert_error(ctx, "gradients: output 1 is NULL");
    gd_step_end(ctx);
}

CHECK_MAIN_WITHIN("derivatives", open_context, teardown)
