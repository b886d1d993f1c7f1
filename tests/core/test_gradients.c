/* test_gradients.c - gd_gradients: gradients as tensors, by the kernels and by ops. What each op's
 * derivative is worth is in test_gradients_ops.c. */
#include "each_context.h"

static gd_tensor *x; /* [3]: 1, 2, 3 */

static void open_context(void)
{
    ctx = test_context(1);
    x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){1, 2, 3});
    gd_tensor_set_requires_grad(x, true);
}

static const gd_gradients_options by_ops = {.differentiable = true};
static const gd_gradients_options keeping = {.keep_tape = true};
static const gd_gradients_options with_zeros = {.zeros = true, .keep_tape = true};

static gd_tensor *gradient(gd_tensor *y, gd_tensor *of, const gd_gradients_options *options)
{
    gd_tensor *g = NULL;
    gd_gradients(&y, 1, options, &of, 1, &g);
    return g;
}

static gd_tensor *cube(gd_tensor *t)
{
    return gd_mul(t, gd_mul(t, t));
}

/* ---- Orders ------------------------------------------------------------------------------- */

/* x^5: 5 x^4, 20 x^3, 60 x^2, 120 x, 120, 0 */
TEST(any_order)
{
    gd_tensor *g = gd_mul(cube(x), gd_mul(x, x));
    g = gradient(g, x, &by_ops);
    ck_assert_values(g, 5, 80, 405);
    g = gradient(g, x, &by_ops);
    ck_assert_values(g, 20, 160, 540);
    g = gradient(g, x, &by_ops);
    ck_assert_values(g, 60, 240, 540);
    g = gradient(g, x, &by_ops);
    ck_assert_values(g, 120, 240, 360);
    g = gradient(g, x, &by_ops);
    ck_assert_values(g, 120, 120, 120);
    const gd_gradients_options last = {.differentiable = true, .zeros = true};
    ck_assert_values(gradient(g, x, &last), 0, 0, 0);
    gd_step_end(ctx);
}

/* L = sum(g^2) + sum(x g) with g = 3 x^2: dL/dx = 36 x^3 + 9 x^2. Gradients of x add up, are told
 * to a hook once in each backward, and the last backward uses up the tape. */
static void count_hook(void *user, gd_tensor *leaf)
{
    (void)leaf;
    ++*(int *)user;
}

TEST(a_loss_that_contains_gradients)
{
    int told = 0;
    gd_on_gradient(ctx, count_hook, &told);
    for (int round = 1; round <= 2; round++) {
        gd_tensor *g = gradient(cube(x), x, &by_ops);
        ck_assert_int_eq(told, round - 1);
        gd_backward(gd_add(gd_sum_all(gd_mul(g, g)), gd_sum_all(gd_mul(x, g))));
        ck_assert_int_eq(told, round);
        ck_assert_values(gd_grad(x), round * 45, round * (288 + 36), round * (972 + 81));
        ck_assert_values(g, 3, 12, 27); /* can still be read */
        gd_step_end(ctx);
    }
    gd_on_gradient(ctx, NULL, &told);
}

/* ---- By the kernels ----------------------------------------------------------------------- */

TEST(nothing_else_is_touched)
{
    int told = 0;
    gd_on_gradient(ctx, count_hook, &told);
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){2, 2, 2});
    gd_tensor_set_requires_grad(w, true);
    gd_backward(gd_sum_all(gd_scale(x, 7)));
    ck_assert_int_eq(told, 1);
    gd_tensor *own = gd_grad(x), *y = gd_mul(w, cube(x));
    gd_tensor *g = gradient(y, x, &keeping);
    ck_assert_values(g, 6, 24, 54);
    ck_assert_ptr_ne(g, own);
    ck_assert_ptr_eq(gd_grad(x), own);
    ck_assert_values(own, 7, 7, 7);
    ck_assert_ptr_null(gd_grad(w));
    ck_assert_int_eq(told, 1);
    ck_assert_values(gradient(y, w, NULL), 1, 8, 27); /* uses up mul alone */
    ck_assert_int_eq(told, 1);
    REFUSED(gradient(y, x, NULL), "gradients: the tape of output [3] was used up");
    REFUSED(gd_mul(g, x), "mul: a [3] is a gradient, or made of one, and how");
    gd_on_gradient(ctx, NULL, &told);
    gd_step_end(ctx);
}

/* Of a kept tape the next backward tells hooks when the gradient is complete. */
TEST(uses_are_counted)
{
    int told = 0;
    gd_on_gradient(ctx, count_hook, &told);
    gd_tensor *y = gd_sum_all(cube(x));
    ck_assert_values(gradient(y, x, &keeping), 3, 12, 27);
    ck_assert_values(gradient(y, x, &by_ops), 3, 12, 27);
    gd_backward(y);
    ck_assert_int_eq(told, 1);
    ck_assert_values(gd_grad(x), 3, 12, 27);
    gd_on_gradient(ctx, NULL, &told);
    gd_step_end(ctx);
}

/* A hook is called when the gradient is complete, although a segment on the kept tape has
 * run again. */
typedef struct seen {
    double gradient;
    int told;
} seen;

static void look(void *user, gd_tensor *leaf)
{
    seen *s = user;
    double values[3];
    s->told++;
    gd_tensor_read_f64(gd_grad(leaf), values, 3);
    s->gradient = values[2];
}

static gd_tensor *cube_segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return cube(in[0]);
}

TEST(uses_are_counted_in_segments)
{
    seen s = {0, 0};
    gd_on_gradient(ctx, look, &s);
    gd_tensor *first = gd_exp(x), *h = gd_recompute(ctx, cube_segment, NULL, &x, 1);
    gd_tensor *y = gd_sum_all(gd_add(first, h));
    ck_assert_ptr_nonnull(gradient(y, x, &keeping));
    ck_assert_ptr_nonnull(gradient(y, x, &by_ops));
    gd_backward(y);
    ck_assert_int_eq(s.told, 1);
    ck_assert_double_eq_tol(s.gradient, exp(3) + 27, 1e-12);
    gd_on_gradient(ctx, NULL, &s);
    gd_step_end(ctx);
}

/* The gradient that is kept of an intermediate is neither returned nor added to. */
TEST(retained_gradients_are_not_touched)
{
    gd_tensor *h = gd_mul(x, x), *y = gd_sum_all(gd_mul(h, h));
    gd_retain_grad(h);
    ck_assert_values(gradient(y, x, &keeping), 4, 32, 108);
    ck_assert_ptr_null(gd_grad(h));
    gd_backward_from(&y, 1, &(gd_backward_options){.keep_tape = true});
    ck_assert_values(gradient(y, h, &keeping), 2, 8, 18);
    ck_assert_values(gradient(y, x, &by_ops), 4, 32, 108);
    ck_assert_values(gd_grad(h), 2, 8, 18);
    gd_step_end(ctx);
}

/* ---- Inputs and outputs ------------------------------------------------------------------- */

/* y = h^2 + h x with h = x^2: dy/dh = 2 h + x, dy/dx = 4 x^3 + 3 x^2. */
TEST(intermediates_repeats_and_views)
{
    for (int differentiable = 0; differentiable < 2; differentiable++) {
        const gd_gradients_options options = {.keep_tape = true, .differentiable = differentiable};
        gd_tensor *h = gd_mul(x, x), *view = gd_reshape(h, GD_SHAPE(3)), *g[4];
        gd_tensor *y = gd_add(gd_mul(h, h), gd_mul(view, x));
        gd_retain_grad(h);
        gd_gradients(&y, 1, &options, (gd_tensor *[]){h, x, view, h}, 4, g);
        ck_assert_values(g[0], 3, 10, 21);
        ck_assert_values(g[1], 7, 44, 135);
        ck_assert_values(g[2], 1, 2, 3); /* a tensor of its own */
        ck_assert_ptr_eq(g[3], g[0]);
        ck_assert_ptr_null(gd_grad(h));
        ck_assert_ptr_null(gd_grad(x));
        ck_assert_values(gradient(h, h, &options), 1, 1, 1);
        ck_assert_values(gradient(x, x, &options), 1, 1, 1);
        gd_tensor_free(g[1]);
        gd_backward(gd_sum_all(y));
        ck_assert_values(gd_grad(h), 3, 10, 21);
        gd_step_end(ctx);
        gd_grad_clear(x);
    }
}

/* Several outputs, of which one is listed twice, with and without cotangents. */
TEST(outputs_and_cotangents)
{
    gd_tensor *u = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){1, 10, 100});
    for (int differentiable = 0; differentiable < 2; differentiable++) {
        const gd_gradients_options options = {.cotangents = (gd_tensor *[]){u, NULL, u},
                                              .differentiable = differentiable};
        gd_tensor *y = gd_mul(x, x), *g;
        gd_gradients((gd_tensor *[]){y, gd_scale(x, 5), y}, 3, &options, &x, 1, &g);
        ck_assert_values(g, 4 + 5, 80 + 5, 1200 + 5);
        gd_step_end(ctx);
    }
    /* the gradient by the cotangent is the Jacobian: the trick of gd_jvp */
    gd_tensor_set_requires_grad(u, true);
    const gd_gradients_options first = {.cotangents = &u, .differentiable = true};
    gd_tensor *y = gd_mul(x, x), *g, *again;
    gd_gradients(&y, 1, &first, &x, 1, &g);
    gd_gradients(&g, 1, NULL, &u, 1, &again);
    ck_assert_values(again, 2, 4, 6);
    /* one that is the user's is not handed out as a gradient */
    gd_gradients(&x, 1, &first, &x, 1, &g);
    ck_assert_ptr_ne(g, u);
    ck_assert_ptr_ne(gd_tensor_data(g), gd_tensor_data(u));
    ck_assert_values(g, 1, 10, 100);
    gd_step_end(ctx);
}

TEST(what_nothing_reaches)
{
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){2, 2, 2}), *g[2];
    gd_tensor_set_requires_grad(w, true);
    for (int differentiable = 0; differentiable < 2; differentiable++) {
        gd_gradients_options options = {.differentiable = differentiable};
        gd_tensor *y = gd_floor(x), *h = gd_exp(w);
        ck_assert_int_ne(gd_gradients(&y, 1, &options, (gd_tensor *[]){x, w}, 2, g), GD_OK);
        ck_assert_error(ctx, "gradients: no output depends on input 1 [3]; set zeros if");
        ck_assert_ptr_null(g[0]);
        gd_step_end(ctx);
        y = gd_floor(x);
        ck_assert_values(gradient(y, x, &options), 0, 0, 0); /* it does, with slope 0 */
        gd_step_end(ctx);
        options.zeros = true;
        y = gd_mul(x, x);
        h = gd_exp(w);
        gd_gradients(&y, 1, &options, (gd_tensor *[]){w, h}, 2, g);
        ck_assert_values(g[0], 0, 0, 0);
        ck_assert_values(g[1], 0, 0, 0);
        ck_assert_ptr_null(gd_grad(w));
        gd_step_end(ctx);
    }
    /* an output that is a constant */
    gd_tensor *constant = gd_scale(gd_detach(x), 2);
    ck_assert_values(gradient(constant, x, &with_zeros), 0, 0, 0);
    REFUSED(gradient(constant, x, NULL), "gradients: output [3] does not depend on any tensor");
    gd_step_end(ctx);
}

/* The gradient of sum(w x) is w: a constant, unless w requires a gradient. */
TEST(constant_gradient)
{
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){4, 5, 6});
    gd_tensor *g = gradient(gd_sum_all(gd_mul(w, x)), x, &by_ops);
    ck_assert_values(g, 4, 5, 6);
    gd_backward(gd_sum_all(gd_mul(g, g)));
    ck_assert_error(ctx,
                    "backward: output [] does not depend on any tensor that requires a gradient: a "
                    "gradient that gd_gradients gave in this step is constant");
    ck_assert_values(gradient(gd_sum_all(g), x, &with_zeros), 0, 0, 0);
    gd_step_end(ctx);
    gd_backward(gd_sum_all(w)); /* in a step without gd_gradients */
    ck_assert_error(ctx, "what it is made of is neither a parameter");
    gd_step_end(ctx);
    gd_tensor_set_requires_grad(w, true);
    g = gradient(gd_sum_all(gd_mul(w, x)), x, &by_ops);
    gd_backward(gd_sum_all(gd_mul(g, g)));
    ck_assert_values(gd_grad(w), 8, 10, 12);
    ck_assert_ptr_null(gd_grad(x));
    gd_step_end(ctx);
    gd_tensor_free(w);
}

/* ---- Places ------------------------------------------------------------------------------- */

static gd_tensor *in_a_segment(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    gd_tensor *y = cube(in[0]);
    return gradient(y, in[0], &by_ops);
}

static void in_a_hook(void *user, gd_tensor *leaf)
{
    (void)user;
    gd_tensor *y = cube(leaf), *g;
    gd_gradients(&y, 1, NULL, &leaf, 1, &g);
}

TEST(where_it_is_refused)
{
    gd_recompute(ctx, in_a_segment, NULL, &x, 1);
    ck_assert_error(ctx, "gradients: called from inside a segment of gd_recompute");
    gd_step_end(ctx);
    gd_on_gradient(ctx, in_a_hook, NULL);
    gd_backward(gd_sum_all(cube(x)));
    ck_assert_error(ctx, "gradients: called from inside a backward");
    gd_on_gradient(ctx, NULL, NULL);
    gd_step_end(ctx);
}

TEST(without_recording)
{
    gd_tensor *y = cube(x);
    gd_no_grad_begin(ctx);
    gd_tensor *g = gradient(y, x, &by_ops), *none = gd_mul(g, g);
    gd_no_grad_end(ctx);
    ck_assert(gd_tensor_requires_grad(g));
    ck_assert(!gd_tensor_requires_grad(none));
    ck_assert_values(gradient(g, x, NULL), 6, 12, 18);
    gd_step_end(ctx);
}

#define BAD(words, ...)                                     \
    do {                                                    \
        ck_assert_int_ne(gd_gradients(__VA_ARGS__), GD_OK); \
        ck_assert_error(ctx, words);                        \
    } while (0)

TEST(bad_calls)
{
    gd_context *other = gd_context_create(NULL);
    gd_tensor *stranger = gd_tensor_create(other, GD_FLOAT64, GD_SHAPE(3));
    gd_tensor *y = cube(x), *g[2], *flat = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(2));
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(3)), *freed = gd_mul(x, x);
    gd_tensor_free(freed);
    ck_assert_int_eq(gd_gradients(NULL, 0, NULL, NULL, 0, NULL), GD_ERROR_ARGUMENT);
    BAD("gradients: there are no outputs", NULL, 1, NULL, &x, 1, g);
    BAD("gradients: there are no outputs", &y, 0, NULL, &x, 1, g);
    BAD("gradients: inputs is NULL", &y, 1, NULL, NULL, 1, g);
    BAD("gradients: there are no inputs", &y, 1, NULL, &x, 0, g);
    BAD("gradients: gradients is NULL", &y, 1, NULL, &x, 1, NULL);
    BAD("gradients: input 1 is NULL", &y, 1, NULL, ((gd_tensor *[]){x, NULL}), 2, g);
    BAD("gradients: input 0 is of another context", &y, 1, NULL, &stranger, 1, g);
    BAD("gradients: output 1 is of another context", ((gd_tensor *[]){y, stranger}), 2, NULL, &x, 1,
        g);
    BAD("gradients: input 0 is int32 [3], wanted a tensor that requires", &y, 1, &with_zeros, &ids,
        1, g);
    BAD("gradients: input 0 is float64 [2], wanted a tensor that requires", &y, 1, NULL, &flat, 1,
        g);
    BAD("gradients: input 0 is float64 [2], wanted a tensor that requires", &y, 1, &with_zeros,
        &flat, 1, g);
    BAD("gradients: input [3] was freed", &y, 1, NULL, &freed, 1, g);
    BAD("gradients: cotangent 0 is float64 [2], wanted", &y, 1,
        (&(gd_gradients_options){.cotangents = &flat}), &x, 1, g);
    gd_tensor *loss = gd_sum_all(y);
    gd_backward(loss);
    gd_tensor *number = gd_grad(x);
    BAD("gradients: the tape of output [] was used up", &loss, 1, NULL, &x, 1, g);
    y = cube(x);
    BAD("gradients: cotangent 0 is a gradient, or made of one", &y, 1,
        (&(gd_gradients_options){.cotangents = &number, .differentiable = true}), &x, 1, g);
    BAD("gradients: output [3] was made of a gradient", &number, 1, NULL, &x, 1, g);
    gd_step_end(ctx);
    gd_context_free(other);
}

/* ---- Values ------------------------------------------------------------------------------- */

/* log_softmax keeps y, exp(x) nothing of x: what is read again must be as it was. */
TEST(values_that_are_gone)
{
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){1, 2, 3});
    gd_tensor_set_requires_grad(w, true);
    gd_tensor *y = gd_layer_norm(w, NULL, NULL, 1e-5); /* which has no derivative */
    gd_tensor *z = gd_exp(w);
    gd_tensor_fill(w, 5);
    ck_assert_values(gradient(z, w, &by_ops), exp(1), exp(2), exp(3)); /* reads z alone */
    REFUSED(gradient(y, w, &by_ops),
            "layer_norm: its definition needs the input [3] as it was in the forward, but "
            "that was overwritten since");
    y = gd_mul(w, w);
    gd_tensor_fill(w, 4);
    REFUSED(gradient(y, w, &by_ops),
            "mul: its derivative needs the input [3] as it was in the forward");
    gd_step_end(ctx);

    gd_tensor *h = gd_mul(x, x), *read = gd_exp(h); /* h itself is not read by a backward */
    gd_tensor_free(h);
    ck_assert_values(gradient(gradient(read, x, &by_ops), x, NULL), 6 * exp(1), 18 * exp(4),
                     38 * exp(9));
    h = gd_mul(x, x);
    y = gd_mul(h, h);
    gd_tensor_free(h); /* but the tape keeps it */
    ck_assert_values(gradient(gradient(y, x, &by_ops), x, NULL), 12, 48, 108);
    REFUSED(gd_neg(h), "neg: x [3] was freed"); /* as before, though the derivative has read it */
    gd_step_end(ctx);
    h = gd_mul(x, x);
    y = gd_pad(h, &(gd_pad_options){.left = 1});
    gd_tensor_free(h);
    REFUSED(gradient(y, x, &by_ops), "pad: its definition needs the input [3], but that was freed");
    gd_step_end(ctx);
}

/* ---- Segments and random numbers ---------------------------------------------------------- */

/* w h(x) and dropout: the same function in a segment and outside. */
typedef struct layer {
    gd_tensor *w;
    double p;
    int runs;
} layer;

static gd_tensor *run_layer(void *user, gd_tensor *const *in, int count)
{
    layer *l = user;
    (void)count;
    l->runs++;
    return gd_dropout(gd_tanh(gd_mul(l->w, gd_mul(in[0], in[0]))), l->p);
}

TEST(segments_have_second_derivatives)
{
    layer l = {.w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), (double[]){0.1, 0.2, 0.3}),
               .p = 0.25};
    gd_tensor_set_requires_grad(l.w, true);
    double *right[3], *kernels = NULL;
    for (int segment = 0; segment < 2; segment++) {
        gd_random_set(ctx, (gd_random_state){5, 0});
        gd_tensor *y = segment ? gd_recompute(ctx, run_layer, &l, &x, 1) : run_layer(&l, &x, 1);
        gd_tensor *g[2], *first = gradient(y, l.w, &keeping); /* listed nowhere in the segment */
        gd_gradients(&y, 1, &by_ops, (gd_tensor *[]){x, l.w}, 2, g);
        ck_assert_ptr_null(gd_grad(l.w));
        gd_backward(gd_sum_all(gd_mul(g[0], gd_add(g[0], g[1]))));
        gd_tensor *got[3] = {g[0], gd_grad(x), gd_grad(l.w)};
        double *by_kernels = values_of(first);
        for (int i = 0; i < 3; i++) {
            double *values = values_of(got[i]);
            for (int k = 0; k < 3 && segment; k++) {
                ck_assert_double_eq_tol(values[k], right[i][k], 1e-14);
                ck_assert_double_eq_tol(by_kernels[k], kernels[k], 1e-14);
            }
            if (segment) free(right[i]);
            right[i] = values;
        }
        free(kernels);
        kernels = by_kernels;
        ck_assert_uint_eq(gd_random_get(ctx).offset, 4);
        gd_step_end(ctx);
        gd_grad_clear(x);
        gd_grad_clear(l.w);
    }
    for (int i = 0; i < 3; i++) free(right[i]);
    free(kernels);
}

/* ---- 16 bits ------------------------------------------------------------------------------ */

/* In bfloat16 the sum of many contributions is taken in float32, and rounded once. */
TEST(rounded_once)
{
    gd_tensor *h = gd_cast(x, GD_BFLOAT16), *sum = NULL, *g;
    for (int i = 0; i < 300; i++) {
        gd_tensor *part = gd_scale(h, i == 0 ? 256 : 1);
        sum = sum ? gd_add(sum, part) : part;
    }
    gd_gradients(&sum, 1, &by_ops, &h, 1, &g);
    ck_assert_int_eq(gd_tensor_dtype(g), GD_BFLOAT16);
    ck_assert_values(g, 556, 556, 556); /* in bfloat16 256 + 1 is 256 */
    gd_step_end(ctx);
}

/* The gradient of a parameter in 16 bits is a float32, as gd_grad's is. */
TEST(parameters_in_16_bits)
{
    gd_params *group = gd_params_create(ctx, GD_BFLOAT16);
    gd_tensor *w = gd_params_add(group, "w", GD_SHAPE(3), 0), *g;
    gd_params_finish(group);
    ck_assert_no_error(ctx);
    gd_tensor_fill(w, 1.5);
    for (int differentiable = 0; differentiable < 2; differentiable++) {
        gd_tensor *y = gd_scale(gd_mul(w, gd_mul(w, w)), 1.001);
        const gd_gradients_options options = {.differentiable = differentiable};
        gd_gradients(&y, 1, &options, &w, 1, &g);
        ck_assert_int_eq(gd_tensor_dtype(g), GD_FLOAT32);
        ck_assert_ptr_null(gd_grad(w));
        gd_step_end(ctx);
    }
    gd_tensor *h = gd_mul(w, gd_mul(w, w)), *twice = gradient(gradient(h, w, &by_ops), w, NULL);
    ck_assert_values(twice, 9, 9, 9);
    gd_step_end(ctx);
    gd_params_free(group);
}

/* ---- Ops of a user's ---------------------------------------------------------------------- */

static gd_status square_forward(const gd_call *call)
{
    const double *from = gd_tensor_data(call->input[0]);
    double *to = gd_tensor_data(call->output[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) to[i] = from[i] * from[i];
    return GD_OK;
}

static gd_status square_backward(const gd_call *call)
{
    const double *v = gd_tensor_data(call->input[0]), *dy = gd_tensor_data(call->doutput[0]);
    double *dx = gd_tensor_data(call->dinput[0]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++)
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + 2 * v[i] * dy[i];
    return GD_OK;
}

static void square_definition(const gd_call *call)
{
    call->output[0] = gd_mul(call->input[0], call->input[0]);
}

static void square_derivative(const gd_call *call)
{
    call->dinput[0] = gd_mul(call->doutput[0], gd_scale(call->input[0], 2));
}

static void nothing(const gd_call *call)
{
    (void)call;
}

static void wrong_shape(const gd_call *call)
{
    call->dinput[0] = call->output[0] = gd_sum_all(call->input[0]);
}

static void reads_too_much(const gd_call *call)
{
    call->dinput[0] = gd_mul(call->doutput[0], call->output[0]);
}

static void calls_gradients(const gd_call *call)
{
    call->output[0] = gradient(gd_mul(call->input[0], call->input[0]), call->input[0], NULL);
}

static void calls_backward(const gd_call *call)
{
    gd_backward(gd_sum_all(call->input[0]));
}

static void calls_step_end(const gd_call *call)
{
    gd_step_end(call->context);
}

static void frees_its_input(const gd_call *call)
{
    gd_tensor_free(call->input[0]);
}

static gd_status forward_calls_gradients(const gd_call *call)
{
    gradient(call->input[0], call->input[0], NULL);
    return square_forward(call);
}

TEST(ops_of_a_user)
{
    const gd_op plain = {.name = "my_square",
                         .signature = "x[...] -> y[...]",
                         .backward_reads_inputs = GD_BIT(0),
                         .forward = {[GD_CPU] = square_forward},
                         .backward = {[GD_CPU] = square_backward}};
    gd_op op = plain;
    const struct {
        gd_derivation definition, derivative;
        const char *words; /* NULL: it works */
    } cases[] = {
        {NULL, NULL,
         "my_square: its record has neither a definition nor a derivative, of which a "
         "differentiable gradient needs one"},
        {square_definition, NULL, NULL},
        {NULL, square_derivative, NULL},
        {wrong_shape, square_derivative, NULL},
        {nothing, NULL, "my_square: its definition did not set output 0"},
        {NULL, nothing, "my_square: its derivative did not set dinput of x"},
        {wrong_shape, NULL, "my_square: its definition made a tensor [], wanted [3]"},
        {NULL, wrong_shape, "my_square: its derivative made a tensor [], wanted [3]"},
        {NULL, reads_too_much, "mul: b [3]"},
        {calls_gradients, NULL, "gradients: called from inside a definition or derivative"},
        {calls_backward, NULL, "backward: called from inside a definition or derivative"},
        {frees_its_input, NULL, "tensor_free: called from inside a definition or derivative"},
        {calls_step_end, NULL, "step_end: called from inside a definition or derivative"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op.definition = cases[i].definition;
        op.derivative = cases[i].derivative;
        gd_tensor *y = gd_apply(&op, &x, 1, NULL), *g = gradient(y, x, &by_ops);
        if (cases[i].words) {
            ck_assert_ptr_null(g);
            ck_assert_error(ctx, cases[i].words);
        } else {
            gd_backward(gd_sum_all(gd_mul(g, y)));
            ck_assert_values(g, 2, 4, 6);
            ck_assert_values(gd_grad(x), 6, 24, 54);
        }
        gd_step_end(ctx);
        gd_grad_clear(x);
        /* nothing is left of a call that failed */
        ck_assert_values(gradient(cube(x), x, &by_ops), 3, 12, 27);
        gd_step_end(ctx);
    }
    op.forward[GD_CPU] = forward_calls_gradients;
    REFUSED(gd_apply(&op, &x, 1, NULL), "gradients: called from inside an op");
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* A step that repeats asks the system for nothing; the last backward gives back what it
 * has visited. */
TEST(no_growth)
{
    gd_tensor *w = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(16, 16)), *b;
    gd_tensor_set_requires_grad(w, true);
    b = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(8, 16));
    gd_tensor_set_requires_grad(b, true);
    gd_tensor_fill(w, 0.1);
    gd_tensor_fill(b, 0.2);
    gd_memory_stats before = {0};
    const int steps = test_brief() ? 300 : 10000;
    for (int step = 0; step < steps; step++) {
        gd_tensor *h = gd_tanh(gd_linear(b, w, NULL)), *y = gd_softmax(gd_linear(h, w, NULL), -1);
        gd_tensor *g = gradient(y, b, &by_ops), *numbers = gradient(y, w, &keeping);
        ck_assert_ptr_nonnull(numbers);
        gd_tensor *loss = gd_sum_all(gd_mul(g, g));
        const size_t recorded = gd_memory(ctx).current[GD_MEMORY_ACTIVATIONS];
        gd_backward(loss);
        if (step == 0)
            ck_assert_uint_lt(gd_memory(ctx).current[GD_MEMORY_ACTIVATIONS], recorded / 2);
        gd_step_end(ctx);
        if (step == 10) before = gd_memory(ctx);
    }
    const gd_memory_stats after = gd_memory(ctx);
    ck_assert_uint_eq(after.system_calls, before.system_calls);
    ck_assert_uint_eq(after.held, before.held);
}

CHECK_MAIN_WITHIN("gradients", open_context, teardown)
