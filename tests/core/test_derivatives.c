/* test_derivatives.c - gd_jvp and gd_hvp beside derivatives written down by hand, and by
 * differences. */
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

static double dot(const gd_tensor *a, const gd_tensor *b)
{
    double *p = values_of(a), *q = values_of(b), sum = 0;
    for (int64_t i = 0; i < gd_tensor_count(a); i++) sum += p[i] * q[i];
    free(p);
    free(q);
    return sum;
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

/* A network: H is symmetric, and H v is the difference of gradients. */
static gd_tensor *network(gd_tensor *in, gd_tensor *weight, gd_tensor *targets)
{
    gd_tensor *h = gd_tanh(gd_linear(in, weight, NULL));
    gd_tensor *p = gd_log_softmax(gd_matmul(h, weight), -1);
    return gd_mean_all(gd_mul(p, targets));
}

TEST(hessian_of_a_network)
{
    enum { N = 5, ROWS = 7 };
    gd_tensor *in = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(ROWS, N));
    gd_tensor *targets = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(ROWS, N)), *part[3];
    uint64_t seed = 3;
    for (int i = 0; i < 3; i++) part[i] = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(N, N));
    gd_tensor *all[5] = {in, targets, part[0], part[1], part[2]};
    for (int i = 0; i < 5; i++) {
        double values[ROWS * N];
        for (int k = 0; k < ROWS * N; k++) values[k] = random_in(&seed, -1, 1);
        gd_tensor_write_f64(all[i], values, gd_tensor_count(all[i]));
    }
    gd_tensor *weight = part[0], *a = part[1], *b = part[2], *Ha, *Hb, *g[2];
    gd_tensor_set_requires_grad(weight, true);
    gd_tensor *loss = network(in, weight, targets);
    gd_hvp(loss, &weight, &a, 1, NULL, &Ha);
    gd_hvp(loss, &weight, &b, 1, NULL, &Hb);
    ck_assert_double_eq_tol(dot(b, Ha), dot(a, Hb), 1e-15);
    ck_assert_double_gt(fabs(dot(b, Ha)), 1e-3);
    double *product = values_of(Ha), *at = values_of(weight), *along = values_of(a);
    for (int side = 0; side < 2; side++) {
        double moved[N * N];
        for (int k = 0; k < N * N; k++) moved[k] = at[k] + (side ? 1e-5 : -1e-5) * along[k];
        gd_tensor_write_f64(weight, moved, N * N);
        loss = network(in, weight, targets);
        gd_gradients(&loss, 1, NULL, &weight, 1, &g[side]);
    }
    double *low = values_of(g[0]), *high = values_of(g[1]);
    for (int k = 0; k < N * N; k++)
        ck_assert_double_eq_tol(product[k], (high[k] - low[k]) / 2e-5, 1e-8);
    free(product), free(at), free(along), free(low), free(high);
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
