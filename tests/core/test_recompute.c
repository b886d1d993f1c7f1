/* test_recompute.c - segments of gd_recompute whose second run would not compute what the first
 * did: each is an error; and segments that look like it but are right. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <stdlib.h>
#include <unistd.h>

#include "each_context.h"
#include "op_cases.h"

static gd_tensor *x, *w, *other; /* [3] and [3], which require gradients; [3] */
static int runs;                 /* of the segment */

static void open_context(void)
{
    ctx = test_context(1);
    x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){1, 2, 3});
    w = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){5, 6, 7});
    other = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(3), (float[]){8, 8, 8});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor_set_requires_grad(w, true);
    runs = 0;
    ck_assert_no_error(ctx);
}

static gd_tensor *by_square(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_mul(in[0], gd_mul(user, user));
}

static gd_tensor *run(gd_segment segment, void *user)
{
    gd_tensor *y = gd_recompute(ctx, segment, user, &x, 1);
    ck_assert_no_error(ctx);
    return y;
}

/* ---- Overwritten -------------------------------------------------------------------------- */

static void write_bytes(gd_tensor *t)
{
    gd_tensor_write(t, (float[]){1, 1, 1}, 3 * sizeof(float));
}

static void write_numbers(gd_tensor *t)
{
    gd_tensor_write_f64(t, (double[]){1, 1, 1}, 3);
}

static void fill(gd_tensor *t)
{
    gd_tensor_fill(t, 1);
}

static void copy(gd_tensor *t)
{
    gd_tensor_copy(t, other);
}

static void copy_to_part(gd_tensor *t)
{
    gd_tensor_copy(gd_slice(t, 0, 1, 2), gd_slice(other, 0, 0, 1));
}

static void uniform(gd_tensor *t)
{
    gd_random_uniform(t, 0, 1);
}

static void normal(gd_tensor *t)
{
    gd_random_normal(t, 0, 1);
}

static void read_file(gd_tensor *t)
{
    char path[] = "/tmp/gradus_recompute_XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    const gd_named_tensor named = {"t", other};
    ck_assert_int_eq(gd_safetensors_write(ctx, path, &named, 1, NULL, 0), GD_OK);
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    ck_assert_int_eq(gd_safetensors_read(file, "t", t), GD_OK);
    gd_safetensors_close(file);
    unlink(path);
}

/* An op that updates its input. */
static gd_status updating_forward(const gd_call *call)
{
    float *t = gd_tensor_data(call->input[0]), *y = gd_tensor_data(call->output[0]);
    for (int i = 0; i < 3; i++) y[i] = t[i]++;
    return GD_OK;
}

static const gd_op updating = {.name = "updating",
                               .signature = "x[...] -> y[...]",
                               .updates_inputs = GD_BIT(0),
                               .forward = {[GD_CPU] = updating_forward}};

static void update_by_op(gd_tensor *t)
{
    gd_no_grad_begin(ctx);
    gd_apply(&updating, &t, 1, NULL);
    gd_no_grad_end(ctx);
}

static void (*const writers[])(gd_tensor *) = {
    write_bytes, write_numbers, fill, copy, copy_to_part, uniform, normal, update_by_op, read_file};
enum { WRITERS = sizeof writers / sizeof *writers };

static const char *const overwritten =
    "recompute: op 1 of the segment, mul: a float32 [3] is needed as it was in the first run, but "
    "that was overwritten since";

LOOP_TEST(a_tensor_that_the_segment_uses, WRITERS)
{
    gd_tensor *y = run(by_square, w);
    writers[_i](w);
    ck_assert_no_error(ctx);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

LOOP_TEST(one_of_whose_views_is_written_to, WRITERS)
{
    gd_tensor *view = gd_reshape(w, GD_SHAPE(3));
    gd_tensor *y = run(by_square, w);
    writers[_i](view);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

TEST(one_that_needs_no_gradient)
{
    gd_tensor *y = run(by_square, other);
    gd_tensor_fill(other, 1);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

TEST(one_made_by_an_op_that_needs_no_gradient)
{
    gd_tensor *made = gd_scale(other, 2), *y = run(by_square, made);
    gd_tensor_fill(made, 1);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

/* Before the first of them was needed again, after the last; and the other one stays right. */
TEST(one_of_two_segments)
{
    gd_tensor *y[] = {run(by_square, w), run(by_square, other)};
    gd_tensor_fill(other, 1);
    gd_backward_from(y, 1, NULL);
    ck_assert_no_error(ctx);
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    ck_assert(dx[0] == 25 && dx[1] == 36 && dx[2] == 49);
    gd_backward_from(y + 1, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

static gd_tensor *outer(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    gd_tensor *y = gd_recompute(ctx, by_square, user, in, 1);
    return gd_add(y, in[0]);
}

/* The segment inside writes nothing itself; the outer one notices in its own second run. */
TEST(one_in_a_nested_segment)
{
    gd_tensor *y = run(outer, w);
    gd_backward_from(&y, 1, NULL);
    ck_assert_no_error(ctx);
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    ck_assert(dx[0] == 26 && dx[1] == 37 && dx[2] == 50);
    y = run(outer, w);
    gd_tensor_fill(w, 1);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

static gd_tensor *nested_then_written(void *user, gd_tensor *const *in, int count)
{
    gd_tensor *y = outer(user, in, count);
    if (runs++ == 1) gd_tensor_fill(user, 1); /* after the outer one has run again */
    return y;
}

TEST(one_that_the_nested_segment_alone_needs_again)
{
    gd_tensor *y = run(nested_then_written, w);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

static gd_tensor *by_parameter(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_mul(in[0], user);
}

TEST(a_parameter_that_an_optimizer_updates)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *p = gd_params_add(params, "p", GD_SHAPE(3), 0);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    ck_assert_no_error(ctx);
    gd_tensor *y = run(by_parameter, p);
    gd_backward_from(&p, 1, NULL);
    gd_optimizer_step(sgd, 0.1);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, "is needed as it was in the first run, but that was overwritten since");
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

static gd_tensor *writes_after_reading(void *user, gd_tensor *const *in, int count)
{
    gd_tensor *y = by_square(user, in, count);
    gd_tensor_fill(user, 1);
    return y;
}

TEST(one_that_the_segment_writes_to_after_reading)
{
    gd_tensor *y = run(writes_after_reading, w);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, overwritten);
}

static gd_tensor *through_a_copy(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    gd_tensor_copy(other, user);
    return gd_mul(in[0], other);
}

TEST(one_that_the_segment_copies)
{
    gd_tensor *y = run(through_a_copy, w);
    gd_tensor_fill(w, 1);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, "op 1 of the segment, tensor_copy: src float32 [3] is needed as it was");
}

TEST(a_tensor_made_by_an_op_outside)
{
    gd_tensor *y = run(by_square, gd_exp(w));
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, "recompute: the segment uses a tensor [3] made by exp outside of it");
    REFUSED(gd_recompute(ctx, NULL, NULL, &x, 1), "recompute: segment is NULL");
}

/* ---- Another function --------------------------------------------------------------------- */

typedef gd_tensor *(*variant)(gd_tensor *in, bool again);

#define VARIANT(name, ...)                            \
    static gd_tensor *name(gd_tensor *in, bool again) \
    {                                                 \
        return __VA_ARGS__;                           \
    }

static gd_tensor *varies(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return (*(variant *)user)(in[0], runs++ > 0);
}

VARIANT(another_op, again ? gd_exp(in) : gd_tanh(in))

static gd_tensor *more_ops(gd_tensor *in, bool again)
{
    gd_tensor *y = gd_tanh(in);
    return again ? gd_tanh(y) : y;
}

VARIANT(fewer_ops, more_ops(in, !again))
VARIANT(another_order, again ? gd_tanh(gd_exp(in)) : gd_exp(gd_tanh(in)))
VARIANT(another_factor, gd_scale(in, again ? 3 : 2))
VARIANT(another_axis, gd_softmax(gd_mul(gd_reshape(in, GD_SHAPE(3, 1)), w), again ? 0 : 1))
VARIANT(another_probability, gd_dropout(in, again ? 0.25 : 0.5))

static gd_tensor *another_draw(gd_tensor *in, bool again)
{
    if (again) gd_random_set(ctx, (gd_random_state){.seed = 77});
    return gd_dropout(in, 0.5);
}

VARIANT(another_tensor, gd_mul(in, again ? other : w))
VARIANT(another_shape, gd_sum_all(gd_tanh(again ? gd_slice(in, 0, 0, 2) : gd_slice(in, 0, 0, 3))))

static gd_tensor *another_dtype(gd_tensor *in, bool again)
{
    static gd_tensor *wide;
    if (!again) wide = gd_tensor_create(ctx, GD_FLOAT64, GD_SHAPE(3));
    gd_tensor *half = gd_cast(again ? w : wide, GD_BFLOAT16);
    return gd_mul(in, gd_cast(half, GD_FLOAT32));
}

static gd_tensor *another_window(gd_tensor *in, bool again)
{
    gd_tensor *first = gd_slice(in, 0, 0, 1);
    return gd_mul(first, gd_slice(w, 0, again, again + 1));
}

static gd_tensor *another_result(gd_tensor *in, bool again)
{
    gd_tensor *a = gd_tanh(in), *b = gd_exp(in);
    return again ? a : b;
}

static gd_tensor *another_output(gd_tensor *in, bool again)
{
    gd_tensor *q, *k, *v;
    gd_tensor *heads = gd_reshape(gd_concat((gd_tensor *[]){in, in}, 2, 0), GD_SHAPE(1, 1, 3, 2));
    gd_rope_qkv(heads, 1, NULL, &q, &k, &v);
    return gd_tanh(again ? k : v);
}

VARIANT(another_optional, gd_rms_norm(in, again ? NULL : w, 1e-5))
VARIANT(another_count, gd_concat((gd_tensor *[]){in, in, in}, again ? 2 : 3, 0))

static gd_tensor *a_kept_value(gd_tensor *in, bool again)
{
    static gd_tensor *kept;
    if (!again) kept = gd_keep(gd_tanh(w));
    return gd_mul(in, kept);
}

static const struct {
    variant variant;
    const char *error;
} variants[] = {
    {another_op, "op 1 of the segment is exp in its second run, wanted tanh as in the first"},
    {more_ops, "op 2 of the segment is tanh in its second run, wanted the end as in the first"},
    {fewer_ops, "op 2 of the segment is the end in its second run, wanted tanh as in the first"},
    {another_order, "op 1 of the segment is exp in its second run, wanted tanh"},
    {another_factor, "op 1 of the segment, scale, has other arguments in its second run, wanted"},
    {another_axis, "op 3 of the segment, softmax, has other arguments"},
    {another_probability, "op 1 of the segment, dropout, has other arguments"},
    {another_draw, "op 1 of the segment, dropout, has other random numbers"},
    {another_tensor, "op 1 of the segment, mul: b float32 [3] is another tensor in its second run"},
    {another_shape, "op 1 of the segment, slice, has other arguments"},
    {another_dtype, "cast: x is float32 [3] in its second run, wanted float64 [3] as in the first"},
    {another_window, "op 2 of the segment, slice, has other arguments"},
    {another_result, "what the segment returns float32 [3] is another tensor"},
    {another_output, "op 4 of the segment, tanh: x float32 [1, 1, 1, 2] is another tensor"},
    {another_optional, "rms_norm: weight is (none) in its second run, wanted float32 [3]"},
    {another_count, "op 1 of the segment, concat, has another number of inputs"},
    {a_kept_value, "op 1 of the segment is mul in its second run, wanted tanh"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

LOOP_TEST(a_second_run_that_differs, VARIANTS)
{
    variant v = variants[_i].variant;
    gd_tensor *y = run(varies, &v);
    gd_backward_from(&y, 1, NULL);
    ck_assert_error(ctx, variants[_i].error);
    ck_assert_int_eq(runs, 2);
}

/* ---- Right ones --------------------------------------------------------------------------- */

static gd_tensor *writes_before_reading(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    gd_random_normal(user, 0, 1); /* the same numbers again */
    return gd_mul(in[0], user);
}

TEST(a_tensor_that_the_segment_itself_fills)
{
    double noise[2][3], dx[3];
    gd_tensor *y[2];
    for (int i = 0; i < 2; i++) { /* both use the same tensor */
        y[i] = run(writes_before_reading, other);
        gd_tensor_read_f64(other, noise[i], 3);
    }
    gd_tensor *sum = gd_add(y[0], y[1]);
    gd_backward_from(&sum, 1, NULL);
    ck_assert_no_error(ctx);
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    for (int i = 0; i < 3; i++) ck_assert_double_eq_tol(dx[i], noise[0][i] + noise[1][i], 1e-6);
}

TEST(without_gradients_nothing_is_compared)
{
    variant v = another_op;
    gd_no_grad_begin(ctx);
    gd_tensor *y = gd_mul(run(varies, &v), run(varies, &v));
    gd_no_grad_end(ctx);
    ck_assert(!gd_tensor_requires_grad(y));
    y = run(by_square, w); /* one in a backward, after its step */
    gd_backward_from(&y, 1, NULL);
    gd_step_end(ctx);
    gd_tensor_fill(w, 1);
    ck_assert_no_error(ctx);
}

TEST(a_view_made_inside_or_outside)
{
    gd_tensor *view = gd_reshape(gd_detach(w), GD_SHAPE(3));
    gd_tensor *y = run(by_square, view);
    gd_backward_from(&y, 1, &(gd_backward_options){.keep_tape = true});
    gd_backward_from(&y, 1, NULL); /* twice */
    ck_assert_no_error(ctx);
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    ck_assert(dx[0] == 50 && dx[1] == 72 && dx[2] == 98);
}

static gd_tensor *identity(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return in[0];
}

TEST(one_that_returns_its_input)
{
    gd_tensor *y = gd_mul(x, x);
    gd_backward(gd_sum_all(gd_recompute(ctx, identity, NULL, &y, 1)));
    double dx[3];
    gd_tensor_read_f64(gd_grad(x), dx, 3);
    ck_assert(dx[0] == 2 && dx[1] == 4 && dx[2] == 6);
}

static gd_tensor *all_of(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)count;
    return gd_sum_all(in[0]);
}

static gd_tensor *with_noise(void *user, gd_tensor *const *in, int count)
{
    (void)count;
    return gd_dropout(gd_mul(in[0], user), 0.5);
}

typedef struct step {
    gd_graph *graph;
    gd_params *params;
    gd_optimizer *sgd;
    gd_tensor *p;
} step;

static gd_status train(void *user)
{
    const step *s = user;
    gd_tensor *y = gd_recompute(ctx, with_noise, s->p, &x, 1);
    gd_optimizer_backward(s->sgd, gd_recompute(ctx, all_of, NULL, &y, 1), 1);
    gd_optimizer_update(s->sgd, 0);
    return gd_params_clear_grads(s->params);
}

TEST(training_steps_as_graphs)
{
    step s = {.graph = gd_graph_create(ctx, NULL), .params = gd_params_create(ctx, GD_FLOAT32)};
    s.p = gd_params_add(s.params, "p", GD_SHAPE(3), 0);
    gd_params_finish(s.params);
    s.sgd = gd_sgd_create(s.params, NULL);
    gd_optimizer_set_rate(s.sgd, 0.1);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(gd_graph_run(s.graph, train, &s), GD_OK);
    ck_assert_no_error(ctx);
    gd_optimizer_free(s.sgd);
    gd_params_free(s.params);
    gd_graph_free(s.graph);
}

/* ---- Every case of every op --------------------------------------------------------------- */

typedef struct call {
    const gd_op *op;
    const gd_case *c;
} call;

/* The sum of all outputs that have a gradient. */
static gd_tensor *apply(void *user, gd_tensor *const *in, int count)
{
    const call *a = user;
    gd_tensor *y[8], *sum = NULL;
    const int outputs = gd_op_count(a->op).outputs;
    ck_assert_int_le(outputs, 8);
    gd_apply_multi(a->op, in, count, a->c->args, y);
    for (int i = 0; i < outputs && !gd_error(ctx); i++) {
        gd_tensor *part = gd_sum_all(gd_mul(y[i], y[i]));
        sum = sum ? gd_add(sum, part) : part;
    }
    return sum;
}

static gd_tensor *nested(void *user, gd_tensor *const *in, int count)
{
    return gd_recompute(ctx, apply, user, in, count);
}

/* The gradients, one after the other. */
static double *gradients_of(call *a, gd_tensor **input, gd_segment segment, int64_t *size)
{
    gd_random_set(ctx, (gd_random_state){.seed = 3});
    gd_tensor *y = segment ? gd_recompute(ctx, segment, a, input, a->c->inputs)
                           : apply(a, input, a->c->inputs);
    gd_backward(y);
    double *all = NULL;
    *size = 0;
    for (int i = 0; i < a->c->inputs; i++) {
        gd_tensor *grad = input[i] ? gd_grad(input[i]) : NULL;
        if (!grad) continue;
        const int64_t count = gd_tensor_count(grad);
        all = realloc(all, (size_t)(*size + count + 1) * sizeof *all);
        gd_tensor_read_f64(grad, all + *size, count);
        *size += count;
        gd_grad_clear(input[i]);
    }
    gd_step_end(ctx);
    return all;
}

TEST(every_case_of_every_op)
{
    int cases = 0;
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        ck_assert_msg(op->plain_args || !op->args_size, "%s: its arguments are not compared",
                      op->name);
        for (int k = 0; k < op->case_count && gd_op_has_backward(op, GD_CPU); k++) {
            call a = {op, &op->cases[k]};
            problem p = {.op = op, .c = a.c, .seed = 1};
            gd_tensor *input[GD_CASE_MAX_INPUTS];
            int64_t size[2];
            make_values(&p, ctx, GD_FLOAT32);
            for (int j = 0; j < a.c->inputs; j++)
                input[j] = a.c->input[j].absent
                               ? NULL
                               : make_leaf(ctx, &a.c->input[j], GD_FLOAT32, PACKED, p.input[j]);
            double *plain = gradients_of(&a, input, NULL, &size[0]);
            double *again = gradients_of(&a, input, k % 2 ? nested : apply, &size[1]);
            ck_assert_msg(!gd_error(ctx), "%s, %s: %s", op->name, a.c->name, gd_error(ctx));
            ck_assert_int_eq(size[0], size[1]);
            ck_assert_msg(!size[0] || !memcmp(plain, again, (size_t)size[0] * sizeof *plain),
                          "%s, %s: other gradients", op->name, a.c->name);
            free(plain);
            free(again);
            for (int j = 0; j < a.c->inputs; j++) gd_tensor_free(input[j]);
            free_values(&p);
            cases++;
        }
    }
    ck_assert_int_gt(cases, 300);
}

CHECK_MAIN_WITHIN("recompute", open_context, teardown)
