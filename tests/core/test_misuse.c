/* test_misuse.c - misuse of tensors between a forward and its backward, or at the wrong moment:
 * each is either an error, or harmless. */
#include "each_context.h"

#include <math.h>
#include <string.h>

static gd_tensor *x; /* [3]: 1, 2, 3 */

static void open_context(void)
{
    ctx = gd_context_create(NULL);
    x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
    gd_tensor_set_requires_grad(x, true);
    ck_assert_no_error(ctx);
}

static gd_tensor *total(gd_tensor *t)
{
    return gd_sum(t, NULL, 0, false);
}

/* ---- Written to ----------------------------------------------------------------------------- */

TEST(an_output_that_its_backward_needs)
{
    gd_tensor *y = gd_exp(x), *loss = total(y); /* dx = y dy */
    gd_tensor_fill(y, 0);
    gd_backward(loss);
    ck_assert_error(ctx, "exp: its backward needs the output [3] as it was in the forward, but");
    gd_step_end(ctx);

    y = gd_exp(x), loss = total(y);
    gd_tensor *window = gd_reshape(y, GD_SHAPE(3, 1));
    gd_tensor_free(y);
    gd_tensor_fill(window, 0);
    gd_backward(loss);
    ck_assert_error(ctx, "exp: its backward needs the output [3] as it was in the forward, but");
    gd_step_end(ctx);

    y = gd_neg(x), loss = total(y); /* dx = -dy */
    gd_tensor_fill(y, 0);
    gd_backward(loss);
    ck_assert_values(gd_grad(x), -1, -1, -1);
}

/* The backward of the outer product writes the gradient that the one of the inner product reads. */
TEST(a_gradient_that_a_backward_needs)
{
    gd_backward(total(gd_mul(x, x)));
    gd_step_end(ctx);
    gd_tensor *g = gd_detach(gd_grad(x));
    gd_grad_clear(x);
    gd_backward(total(gd_mul(gd_mul(x, g), x)));
    ck_assert_error(ctx,
                    "mul: its backward needs the input [3] as it was in the forward, but that");
    gd_step_end(ctx);

    gd_tensor *copy = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3));
    gd_tensor_write_f64(copy, (double[]){2, 4, 6}, 3);
    gd_grad_clear(x);
    gd_backward(total(gd_mul(gd_mul(x, copy), x)));
    ck_assert_values(gd_grad(x), 4, 16, 36);
    gd_step_end(ctx);

    gd_mul(x, gd_detach(gd_grad(x))); /* not what the next loss is made of */
    gd_backward(total(x));
    ck_assert_values(gd_grad(x), 5, 17, 37);
}

/* g = 2 x: the gradient of g + g x is 2 + 4 x, but would be g, as if g were a number. */
TEST(second_derivatives_are_refused)
{
    const char *words =
        "mul: a [3] is a gradient, or made of one, and how that was computed is not on the tape: "
        "use "
        "gd_gradients with differentiable, or give gd_detach of it if it is to be a constant";
    gd_backward(total(gd_mul(x, x)));
    gd_step_end(ctx);
    gd_tensor *g = gd_grad(x);
    REFUSED(gd_add(g, gd_mul(g, x)), words);
    ck_assert_ptr_null(gd_mul(gd_scale(gd_slice(g, 0, 0, 3), 2), x)); /* made of it */
    ck_assert_error(ctx, words);
    REFUSED(gd_mul(x, gd_add(g, x)), "add: a [3] is a gradient");
    gd_tensor *made_of_g = total(gd_mul(g, g)); /* a number, but not a loss */
    ck_assert_double_eq(gd_item(made_of_g), 4 + 16 + 36);
    gd_backward(made_of_g);
    ck_assert_error(ctx, "backward: output [] was made of a gradient, and how that was computed is "
                         "not on the tape; use gd_gradients with differentiable");
    ck_assert_ptr_nonnull(gd_mul(gd_cast(gd_gt(g, x), GD_FLOAT32), x)); /* as of a mask */

    gd_tensor *constant = gd_detach(g), *z = gd_add(constant, gd_mul(constant, x));
    gd_grad_clear(x);
    gd_backward(total(z));
    ck_assert_values(gd_grad(x), 2, 4, 6);
    gd_no_grad_begin(ctx);
    gd_tensor *made = gd_scale(gd_grad(x), 3);
    gd_no_grad_end(ctx);
    gd_grad_clear(x);
    gd_backward(total(gd_mul(made, x)));
    ck_assert_no_error(ctx);
    ck_assert_values(gd_grad(x), 6, 12, 18);
}

static gd_tensor *times_gradient(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_mul(in[0], gd_grad(user));
}

/* A segment's first run is not recorded: its second is. */
TEST(second_derivatives_are_refused_in_segments)
{
    gd_backward(total(gd_mul(x, x)));
    gd_step_end(ctx);
    gd_tensor *y = gd_recompute(ctx, times_gradient, x, &x, 1);
    if (y) gd_backward(total(y));
    ck_assert_error(ctx, "mul: b [3] is a gradient, or made of one");
}

/* da = g^T dy: the kernel may not add it to the memory in which it still reads g. */
TEST(a_gradient_that_its_own_backward_needs)
{
    enum { N = 200 };
    static double da[N * N];
    gd_tensor *a = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(N, N));
    gd_tensor_fill(a, 1);
    gd_tensor_set_requires_grad(a, true);
    gd_backward(total(gd_mul(a, a)));                        /* g = 2 */
    gd_backward(total(gd_matmul(gd_detach(gd_grad(a)), a))); /* and now the sum of a column of it */
    gd_tensor_read_f64(gd_grad(a), da, N * N);
    for (int i = 0; i < N * N; i++) ck_assert_double_eq(da[i], 2 + 2 * N);
    gd_step_end(ctx);
}

TEST(a_copy_onto_a_part_of_itself)
{
    enum { N = 5000 };
    static float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)i;
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(N), values);
    gd_tensor_copy(gd_slice(t, 0, 1, N), gd_slice(t, 0, 0, N - 1));
    gd_tensor_read(t, values, sizeof values);
    for (int i = 0; i < N; i++) ck_assert_float_eq(values[i], (float)(i ? i - 1 : 0));

    gd_tensor *m = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2, 2), (float[]){1, 2, 3, 4});
    gd_tensor_copy(m, gd_transpose(m, 0, 1));
    gd_tensor_read(m, values, 4 * sizeof *values);
    ck_assert_float_eq(values[1], 3);
    ck_assert_float_eq(values[2], 2);
    gd_step_end(ctx);
}

TEST(random_numbers_for_elements_that_share_memory)
{
    gd_random_state before = gd_random_get(ctx);
    gd_random_normal(gd_expand(x, GD_SHAPE(2, 3)), 0, 1);
    ck_assert_error(ctx, "random_normal: the tensor [2, 3] is an expanded view");
    ck_assert_uint_eq(gd_random_get(ctx).offset, before.offset);
    gd_step_end(ctx);
}

/* ---- At the wrong moment -------------------------------------------------------------------- */

TEST(tensors_of_a_step_that_has_ended)
{
    gd_tensor *loss = total(x), *view = gd_slice(x, 0, 0, 2);
    gd_backward(loss);
    gd_step_end(ctx);
    ck_assert(isnan(gd_item(loss)));
    ck_assert_error(ctx, "item: tensor [] belongs to a step that gd_step_end has ended");
    ck_assert_ptr_null(gd_tensor_data(view));
    gd_tensor_fill(view, 7);
    ck_assert_error(ctx, "tensor_fill: tensor [2] belongs to a step that gd_step_end has ended");
    ck_assert_values(x, 1, 2, 3);
}

/* The step's handles are not handed out again for two steps, with `poison` for a thousand, whatever
 * the steps between make: the kept one is never another tensor. */
TEST(tensors_of_earlier_steps)
{
    const int rests[] = {2, 1000};
    for (int poison = 0; poison < 2; poison++) {
        const gd_context_options options = {.threads = 1, .poison = poison};
        gd_context *c = gd_context_create(&options);
        gd_tensor *t = gd_tensor_from(c, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
        gd_tensor *kept = gd_add(t, t);
        gd_step_end(c);
        for (int step = 1; step <= rests[poison]; step++) {
            for (int i = 0; i < 1 + step % 7; i++) ck_assert_ptr_ne(gd_add(t, t), kept);
            ck_assert_ptr_null(gd_mul(t, kept));
            ck_assert_error(c, "mul: b [3] belongs to a step that gd_step_end has ended");
            gd_step_end(c);
        }
        gd_context_free(c);
    }
}

TEST(tensors_that_were_freed)
{
    gd_tensor *a = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3)), *y = gd_add(x, x);
    gd_tensor_free(a);
    gd_tensor_free(y);
    for (int step = 0; step < 2; step++) {
        REFUSED(gd_add(x, a), "add: b [3] was freed");
        gd_tensor_free(a);
        ck_assert_error(ctx, "tensor_free: the tensor [3] was freed already");
        if (step > 0) break;
        gd_tensor_free(y);
        ck_assert_error(ctx, "tensor_free: the tensor [3] was freed already");
        gd_step_end(ctx);
    }
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(3), 0);
    gd_params_finish(params);
    gd_params_free(params);
    REFUSED(gd_add(x, w), "add: b [3] was freed");
}

static gd_status ending_kernel(const gd_call *call)
{
    gd_step_end(call->context);
    return GD_OK;
}

static const gd_op ending = {
    .name = "ending",
    .inputs = 1,
    .outputs = 1,
    .shape = shape_like_x,
    .forward = {[GD_CPU] = ending_kernel},
};

static gd_status freeing_kernel(const gd_call *call)
{
    gd_tensor_free(call->input[0]);
    return GD_OK;
}

TEST(an_op_that_frees_its_input)
{
    gd_op op = ending;
    op.name = "freeing", op.forward[GD_CPU] = freeing_kernel;
    gd_tensor *y = gd_neg(x), *mine = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(2), (float[]){1, 2});
    REFUSED(gd_apply(&op, &y, 1, NULL), "freeing: its forward freed its input [3]");
    REFUSED(gd_apply(&op, &mine, 1, NULL),
            "tensor_free: called from inside an op, wanted a call after it");
    gd_tensor_free(mine);
}

/* What view() says of a window, and whether that lies in the 12 elements that there are. */
static struct {
    gd_spec output;
    int64_t strides[2], offset;
} window;

static gd_status window_shape(const gd_call *call, gd_shapes *out)
{
    (void)call;
    out->output[0] = window.output;
    return GD_OK;
}

static bool window_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    (void)call, (void)index;
    memcpy(strides, window.strides, sizeof window.strides);
    *offset = window.offset;
    return window.offset != 7; /* which no row has */
}

TEST(a_view_that_leaves_its_memory)
{
    static const struct {
        int64_t shape[2], strides[2], offset;
        gd_dtype dtype;
        bool fits;
    } rows[] = {
        {{3, 4}, {4, 1}, 0, GD_FLOAT32, true},
        {{3, 4}, {4, 1}, -1, GD_FLOAT32, false},
        {{3, 4}, {4, 1}, -5, GD_FLOAT32, false},
        {{3, 4}, {4, 1}, 1, GD_FLOAT32, false},
        {{3, 4}, {-4, -1}, 11, GD_FLOAT32, true},
        {{3, 4}, {-4, -1}, 10, GD_FLOAT32, false},
        {{3, 4}, {4, 2}, 0, GD_FLOAT32, false},
        {{9, 9}, {0, 0}, 11, GD_FLOAT32, true},
        {{9, 9}, {0, 0}, 12, GD_FLOAT32, false},
        {{0, 4}, {4, 1}, 12, GD_FLOAT32, true},
        {{3, 4}, {INT64_MAX, 1}, 0, GD_FLOAT32, false},
        {{3, 4}, {4, 1}, INT64_MAX, GD_FLOAT32, false},
        {{3, 4}, {4, 1}, 0, GD_FLOAT64, false},
    };
    gd_op op = ending;
    op.name = "window", op.shape = window_shape, op.view = window_view;
    gd_tensor *all = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(3, 4));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        window.output = gd_spec_like(all);
        window.output.dtype = rows[i].dtype;
        memcpy(window.output.shape, rows[i].shape, sizeof rows[i].shape);
        memcpy(window.strides, rows[i].strides, sizeof window.strides);
        window.offset = rows[i].offset;
        const bool made = gd_apply(&op, &all, 1, NULL) != NULL;
        ck_assert_msg(made == rows[i].fits, "row %zu", i);
        if (!made) ck_assert_error(ctx, "window: its view() of ");
    }
    window.offset = 7, op.forward[GD_CPU] = NULL;
    REFUSED(gd_apply(&op, &all, 1, NULL), "window: it has neither a view of x nor a forward");
    gd_step_end(ctx);
    gd_tensor_free(all);
}

/* A record that was never registered, and so not yet checked. */
TEST(records_that_contradict_themselves)
{
    gd_op op = ending;
    op.shape = NULL;
    REFUSED(gd_apply(&op, &x, 1, NULL),
            "apply: the record of \"ending\" is not usable: it has no shape()");
    op = ending, op.outputs = 0;
    REFUSED(gd_apply(&op, &x, 1, NULL), "it has no output");
    op = ending, op.name = NULL;
    REFUSED(gd_apply(&op, &x, 1, NULL), "apply: the record of \"\" is not usable: it has no name");
    ck_assert_ptr_null(gd_apply(&ending, &x, 1, &op)); /* the backward would get NULL */
    ck_assert_error(ctx, "ending: args is given, wanted the 0 bytes of args_size");
    REFUSED(gd_apply(gd_find_op(NULL, "softmax"), &x, 1, NULL), "softmax: args is NULL, wanted");
}

/* ---- Freed ---------------------------------------------------------------------------------- */

TEST(a_view_before_the_backward_and_its_leaf_after)
{
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
    gd_tensor_set_requires_grad(y, true);
    gd_tensor *view = gd_slice(y, 0, 0, 2), *other = gd_slice(y, 0, 1, 3);
    gd_tensor *loss = total(gd_mul(view, view));
    gd_tensor_free(view);
    gd_backward(loss);
    ck_assert_values(gd_grad(y), 2, 4, 0);
    gd_tensor_free(y);
    ck_assert_double_eq(gd_item(gd_slice(other, 0, 1, 2)), 3); /* `other` still looks at it */
    gd_step_end(ctx);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 3 * sizeof(float)); /* x */
}

TEST(a_group_before_its_optimizer)
{
    gd_params *params = gd_params_create(ctx, GD_BFLOAT16);
    gd_params_add(params, "w", GD_SHAPE(3), GD_DECAY);
    gd_params_finish(params);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    gd_params_free(params);
    gd_optimizer_free(adamw);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 3 * sizeof(float)); /* x */
}

/* A sum does not need the values of what it summed. */
TEST(leaves_whose_values_no_backward_needs)
{
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 1, 1});
    gd_tensor_set_requires_grad(y, true);
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(3), 0);
    gd_params_finish(params);

    gd_tensor *loss = total(gd_add(gd_add(x, y), w));
    gd_tensor_free(y);
    gd_params_free(params);
    gd_backward(loss);
    ck_assert_values(gd_grad(x), 1, 1, 1);
    gd_step_end(ctx);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 2 * 3 * sizeof(float)); /* x and its gradient */
}

CHECK_MAIN_WITHIN("misuse", open_context, teardown)
