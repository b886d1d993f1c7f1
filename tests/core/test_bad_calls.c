/* test_bad_calls.c - invalid calls, one a line, each with the words that its error must contain.
 * After each of them the context still works. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <math.h>
#include <string.h>

static gd_context *ctx, *other;
static gd_tensor *x, *x64, *w5, *ids, *matrix, *scalar, *elsewhere, *freed, *spent;

static gd_tensor *make(gd_context *in, gd_dtype dtype, int ndim, const int64_t *shape)
{
    gd_tensor *t = gd_tensor_create(in, dtype, ndim, shape);
    if (dtype != GD_INT32) gd_tensor_set_requires_grad(t, true);
    return t;
}

static void open_contexts(void)
{
    ctx = gd_context_create(NULL);
    other = gd_context_create(NULL);
    x = make(ctx, GD_FLOAT32, GD_SHAPE(3, 4));
    x64 = make(ctx, GD_FLOAT64, GD_SHAPE(3, 4));
    w5 = make(ctx, GD_FLOAT32, GD_SHAPE(5));
    ids = make(ctx, GD_INT32, GD_SHAPE(3));
    matrix = make(ctx, GD_FLOAT32, GD_SHAPE(6, 7));
    scalar = make(ctx, GD_FLOAT32, 0, NULL);
    elsewhere = make(other, GD_FLOAT32, GD_SHAPE(3, 4));
    freed = make(ctx, GD_FLOAT32, GD_SHAPE(3, 4));
    gd_neg(x); /* so that the headers of what is freed wait for the end of the step */
    gd_tensor_free(freed);
    spent = gd_sum(gd_mul(x, x), NULL, 0, false);
    gd_backward(spent);
    ck_assert_no_error(ctx);
}

static void close_contexts(void)
{
    ck_assert_no_error(ctx);
    gd_tensor *y = gd_sum(gd_mul(x64, x64), NULL, 0, false); /* all still works */
    ck_assert_int_eq(gd_backward(y), GD_OK);
    gd_context_free(ctx);
    gd_context_free(other);
}

/* `call` is evaluated, returns nothing, and sets an error with these words in ctx. */
#define BAD(call, words)                                                                  \
    do {                                                                                  \
        (void)(call);                                                                     \
        ck_assert_msg(gd_error(ctx) != NULL, #call ": no error");                         \
        ck_assert_msg(strstr(gd_error(ctx), words) != NULL,                               \
                      #call ": the error is\n  %s\nand not\n  %s", gd_error(ctx), words); \
        ck_assert_int_ne(gd_error_status(ctx), GD_OK);                                    \
        gd_error_clear(ctx);                                                              \
    } while (0)

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

TEST(tensors)
{
    const int64_t huge = INT64_C(1) << 62;
    float four[4] = {0};
    double wide[12] = {0};
    BAD(gd_tensor_create(ctx, (gd_dtype)77, 0, NULL), "tensor_create: dtype is 77");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, -1, NULL), "ndim is -1, wanted 0 to 8");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 9, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1)), "ndim is 9");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 2, NULL), "shape is NULL, wanted 2 dimensions");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 1, SHAPE(-3)), "shape is [-3]");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 1, &huge), "at most");
    BAD(gd_tensor_create(ctx, GD_FLOAT64, 2, SHAPE(huge, 4)), "at most");
    BAD(gd_tensor_create(ctx, GD_FLOAT32, 3, SHAPE(huge, 0, 8)), "at most");
    BAD(gd_tensor_from(ctx, GD_FLOAT32, 1, SHAPE(4), NULL), "tensor_from: data is NULL, wanted 4");
    BAD(gd_tensor_wrap(ctx, GD_FLOAT32, 1, SHAPE(4), NULL), "tensor_wrap: data is NULL");
    BAD(gd_tensor_wrap(ctx, GD_FLOAT32, 1, SHAPE(2), (char *)four + 1), "wanted a multiple of 4");
    BAD(gd_tensor_read(x, four, sizeof four),
        "tensor_read: given 16 bytes for float32 [3, 4], wanted 48");
    BAD(gd_tensor_read(x, NULL, 48), "host memory is NULL");
    BAD(gd_tensor_write(x, four, 16), "tensor_write: given 16 bytes");
    BAD(gd_tensor_read_f64(x, wide, 11),
        "tensor_read_f64: given 11 elements for [3, 4], wanted 12");
    BAD(gd_tensor_write_f64(x, NULL, 12), "at NULL");
    BAD(gd_tensor_write_f64(ids, (double[]){1, 2.5, 3}, 3),
        "element 1 is 2.5, wanted a whole number");
    BAD(gd_tensor_write_f64(ids, (double[]){1, 2, NAN}, 3), "element 2 is");
    BAD(gd_tensor_fill(ids, 1.5), "tensor_fill: value is 1.5, wanted a whole number");
    BAD(gd_tensor_fill(ids, 3e9), "tensor_fill: value is 3e+09, wanted a whole number");
    BAD(gd_tensor_fill(ids, NAN), "tensor_fill: value is nan");
    BAD(gd_tensor_fill(gd_expand(w5, 2, SHAPE(2, 5)), 1), "expanded view");
    BAD(gd_tensor_copy(x, w5), "tensor_copy: src is [5], wanted dst's shape [3, 4]");
    BAD(gd_tensor_copy(x, elsewhere), "of another context");
    BAD(gd_tensor_copy(x, NULL), "src is NULL");
    BAD(gd_item(x), "item: the tensor is [3, 4], wanted one element");
    BAD(gd_tensor_set_requires_grad(ids, true), "is int32, wanted a real dtype");
    BAD(gd_tensor_set_requires_grad(freed, true), "the tensor [3, 4] was freed");
    BAD(gd_tensor_set_requires_grad(gd_neg(x), false), "was made by an op");
    BAD((gd_tensor_free(gd_grad(x)), 0), "belongs to another object");
    BAD(gd_tensor_read(freed, four, 16), "tensor_read: tensor [3, 4] was freed");
}

TEST(the_tape)
{
    gd_backward_options wrong = {.cotangents = &w5};
    gd_tensor *y = gd_mul(x, x);
    gd_tensor *constant = gd_detach(y), *mixed[2] = {y, elsewhere}, *with_null[2] = {y, NULL};
    gd_op nameless = {.inputs = 1};
    BAD(gd_backward(y), "backward: loss is [3, 4], wanted one element");
    BAD(gd_backward(spent), "used up by an earlier backward");
    BAD(gd_backward(gd_sum(constant, NULL, 0, false)), "does not depend on any tensor");
    BAD(gd_backward_from(&y, 1, &wrong), "cotangent 0 is float32 [5], wanted");
    BAD(gd_backward_from(mixed, 2, NULL), "output 1 is of another context");
    BAD(gd_backward_from(with_null, 2, NULL), "output 1 is NULL");
    BAD(gd_retain_grad(constant), "retain_grad: the tensor [3, 4] depends on nothing");
    BAD(gd_keep(freed), "keep: tensor [3, 4] was freed");
    BAD(gd_detach(freed), "detach: tensor [3, 4] was freed");
    BAD((gd_no_grad_end(ctx), 0), "no_grad_end: there was no gd_no_grad_begin");
    BAD(gd_recompute(ctx, NULL, NULL, &x, 1), "recompute: segment is NULL");
    BAD(gd_register_op(ctx, NULL), "register_op: op is NULL");
    BAD(gd_register_op(ctx, &nameless), "it has no name");
    BAD(gd_register_op(ctx, gd_find_op(NULL, "softmax")), "the name \"softmax\" is taken");
    BAD(gd_apply(gd_find_op(NULL, "softmax"), (gd_tensor *[]){x, x}, 2, NULL),
        "softmax: given 2 inputs, wanted 1");
}

TEST(shapes)
{
    BAD(gd_reshape(x, 2, SHAPE(5, 2)),
        "reshape: x [3, 4] has 12 elements, which the shape does not have");
    BAD(gd_reshape(x, 2, SHAPE(-1, 5)), "do not divide");
    BAD(gd_reshape(x, 2, SHAPE(-1, -1)), "dimension 1 of the shape is -1");
    BAD(gd_reshape(x, 2, SHAPE(-2, 6)), "dimension 0 of the shape is -2");
    BAD(gd_reshape(x, 9, SHAPE(12)), "reshape: ndim is 9");
    BAD(gd_reshape(x, 1, NULL), "shape is NULL");
    BAD(gd_reshape(x, 3, SHAPE(INT64_C(1) << 40, INT64_C(1) << 40, 12)), "the shape does not have");
    const int64_t most = INT64_MAX; /* of nothing: the sizes' product would overflow */
    gd_tensor *nothing = gd_slice(x, 0, 0, 0);
    BAD(gd_reshape(nothing, 3, SHAPE(most, 2, 0)), "reshape: shape is [9223372036854775807, 2, 0]");
    BAD(gd_reshape(nothing, 3, SHAPE(most, 2, -1)),
        "reshape: shape is [9223372036854775807, 2, 0]");
    BAD(gd_permute(x, (int[]){0, 0}), "permute: axes[1] is 0, wanted each of the 2 dimensions");
    BAD(gd_permute(x, (int[]){0, 2}), "permute: axes[1] is 2");
    BAD(gd_permute(x, NULL), "permute: axes is NULL");
    BAD(gd_transpose(x, 0, 2), "transpose: axis is 2, wanted one of the 2 dimensions of x [3, 4]");
    BAD(gd_slice(x, 2, 0, 1), "slice: axis is 2");
    BAD(gd_slice(x, 1, 2, 5), "slice: start is 2 and end is 5, wanted 0 <= start <= end <= 4");
    BAD(gd_slice(x, 1, 3, 2), "slice: start is 3 and end is 2");
    BAD(gd_expand(x, 2, SHAPE(3, 5)), "expand: x [3, 4] does not broadcast");
    BAD(gd_expand(x, 1, SHAPE(4)), "expand: x [3, 4] does not broadcast");
    BAD(gd_concat(&x, 1, 7), "concat: axis is 7");
    gd_tensor *many[20];
    for (int i = 0; i < 20; i++) many[i] = x;
    many[18] = w5;
    BAD(gd_stack(many, 20, 0),
        "stack: x[18] is float32 [5], wanted [...] as in x[0] float32 [3, 4]");
    many[18] = NULL;
    BAD(gd_stack(many, 20, 0), "stack: x[18] is NULL, wanted a tensor");
    BAD(gd_stack((gd_tensor *[]){NULL, x}, 2, 0), "stack: x[0] is NULL, wanted a tensor");
    BAD(gd_stack((gd_tensor *[]){x, x64}, 2, 0), "stack: x[1] is float64 [3, 4], wanted float32");
    BAD(gd_stack(&x, 1, 3), "stack: axis is 3 and x is [3, 4], wanted a place");
    BAD(gd_unsqueeze(x, -4), "unsqueeze: axis is -4 and x is [3, 4], wanted a place");
    BAD(gd_narrow(x, 1, 2, 3),
        "narrow: start is 2 and length is 3, wanted at least 0 and together at most 4, the size of "
        "axis 1 of x [3, 4]");
    BAD(gd_narrow(x, 1, 2, -1), "narrow: start is 2 and length is -1");
    BAD(gd_narrow(x, 1, INT64_MAX, INT64_MAX), "narrow: start is 9223372036854775807 and length");
    BAD(gd_narrow(x, 2, 0, 1), "narrow: axis is 2");
    gd_tensor *long_ones[8], *long_one = make(ctx, GD_FLOAT32, GD_SHAPE(0, INT64_C(1) << 60));
    for (int i = 0; i < 8; i++) long_ones[i] = long_one;
    BAD(gd_concat(long_ones, 8, 1), "concat: the sizes along axis 1 overflow");
    BAD(gd_cast(x, (gd_dtype)12), "cast: dtype is 12");
}

TEST(ops)
{
    BAD(gd_layer_norm(freed, NULL, NULL, 1e-5), "layer_norm: x [3, 4] was freed");
    gd_tensor *deep = gd_reshape(ids, 8, SHAPE(1, 1, 1, 1, 1, 1, 1, 3));
    BAD(gd_embedding(matrix, deep), "embedding: y would have 9 dimensions, wanted at most 8");
    gd_tensor *sum = x; /* weights are not expanded */
    BAD(gd_rms_norm(x, gd_slice(w5, 0, 0, 1), 1e-5), "rms_norm: weight has shape [1], wanted");
    BAD(gd_rms_norm(x, gd_slice(x, 0, 0, 1), 1e-5), "rms_norm: weight has shape [1, 4], wanted");
    BAD(gd_add_rms_norm(x, x, scalar, NULL, NULL, &sum), "rms_norm: weight has shape [], wanted");
    ck_assert_ptr_null(sum);
    BAD(gd_softmax(scalar, 0), "softmax: axis is 0, wanted one of the 0 dimensions");
    BAD(gd_cross_entropy(scalar, ids), "cross_entropy: logits is float32 []");
}

TEST(elementwise_and_reductions)
{
    BAD(gd_maximum(x, freed), "maximum: b [3, 4] was freed");
    BAD(gd_gelu(freed), "gelu: x [3, 4] was freed");
    BAD(gd_sum(x, (int[]){2}, 1, false), "sum: axis is 2, wanted one of the 2 dimensions");
    BAD(gd_mean(x, (int[]){-3}, 1, false), "mean: axis is -3, wanted one of the 2 dimensions");
    BAD(gd_max(x, (int[]){0, -2}, 2, true), "is listed twice");
    BAD(gd_logsumexp(x, (int[]){0, 1, 0}, 3, true), "logsumexp: given 3 axes, but x [3, 4] has 2");
    const int many[100] = {0};
    BAD(gd_sum(x, many, 100, false), "sum: given 100 axes, but x [3, 4] has 2 dimensions");
    BAD(gd_sum(x, many, -1, false), "sum: given -1 axes, but x [3, 4] has 2 dimensions");
    BAD(gd_var(x, (int[]){2}, 1, 0, false), "var: axis is 2, wanted one of the 2 dimensions");
    BAD(gd_var(x, NULL, 0, NAN, false), "var: correction is nan, wanted a finite number");
}

TEST(losses)
{
    BAD(gd_kl_div(scalar, scalar, false, GD_BATCHMEAN),
        "kl_div: x is [], wanted a dimension for GD_BATCHMEAN");
}

TEST(optimizers)
{
    const gd_adamw_options beta = {.beta1 = 1.5};
    const gd_sgd_options nesterov = {.nesterov = true};
    const gd_sgd_options dampened = {.nesterov = true, .momentum = 1, .dampening = 0.5};
    const int64_t huge = INT64_C(1) << 62;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32),
              *empty = gd_params_create(ctx, GD_FLOAT64);
    gd_tensor *w = gd_params_add(params, "w", 1, SHAPE(4), 0);
    BAD(gd_params_create(ctx, GD_INT32), "params_create: dtype is int32, wanted a real one");
    BAD(gd_params_scale_grads(params, 2), "params_scale_grads: the parameters have no memory yet");
    BAD(gd_params_add(params, "w", 1, SHAPE(4), 0), "params_add: name is \"w\"");
    BAD(gd_params_add(params, NULL, 1, SHAPE(4), 0),
        "params_add: name is NULL, wanted 1 to 127 bytes");
    BAD(gd_params_add(params, "v", 1, SHAPE(4), 6),
        "params_add: flags is 0x6, wanted 0, GD_DECAY or GD_MUON");
    BAD(gd_params_add(params, "v", 1, SHAPE(4), GD_MUON),
        "params_add: \"v\" has GD_MUON and 1 dimensions, wanted a matrix");
    BAD(gd_params_set_factors(params, x, 1, 1), "params_set_factors: the tensor is no parameter");
    BAD(gd_params_set_factors(params, w, -1, 1), "params_set_factors: rate is -1");
    BAD(gd_params_set_factors(params, w, 1, NAN), "weight_decay nan, wanted finite numbers");
    BAD(gd_lion_create(params, NULL), "lion_create: the parameters have no memory yet");
    BAD(gd_params_add(params, "v", 1, SHAPE(-4), 0), "params_add: shape is [-4]");
    BAD(gd_params_add(params, "v", 1, &huge, 0), "at most");
    BAD(gd_tensor_fill(w, 1), "tensor_fill: tensor \"w\" has no memory yet, call gd_params_finish");
    BAD(gd_neg(w), "neg: x \"w\" has no memory yet");
    BAD(gd_adamw_create(params, NULL), "gd_params_finish");
    gd_params_finish(params);
    BAD(gd_params_finish(params), "params_finish: it was called before");
    BAD(gd_params_add(params, "late", 1, SHAPE(4), 0),
        "params_add: \"late\" was added after gd_params_finish");
    BAD(gd_params_scale_grads(params, INFINITY), "factor is inf, wanted a finite number");
    BAD(gd_adamw_create(params, &beta),
        "adamw_create: beta1 is 1.5, wanted at least 0 and less than 1");
    BAD(gd_adamw_create(params, &(gd_adamw_options){.beta2 = NAN}), "adamw_create: beta2 is nan");
    BAD(gd_adamw_create(params, &(gd_adamw_options){.eps = -1e-8}), "adamw_create: eps is -1e-08");
    ck_assert_ptr_null(gd_adamw_create(NULL, NULL));
    BAD(gd_sgd_create(params, &nesterov), "sgd_create: nesterov with momentum 0 and dampening 0");
    BAD(gd_sgd_create(params, &dampened), "wanted some momentum and no dampening");
    BAD(gd_sgd_create(params, &(gd_sgd_options){.momentum = -1}),
        "sgd_create: momentum is -1, wanted a finite number of at least 0");
    BAD(gd_sgd_create(params, &(gd_sgd_options){.weight_decay = INFINITY}),
        "sgd_create: weight_decay is inf");
    BAD((gd_tensor_free(w), 0), "belongs to another object");
    BAD(gd_adam_create(params, &(gd_adam_options){.eps = -1}), "adam_create: eps is -1");
    BAD(gd_rmsprop_create(params, &(gd_rmsprop_options){.alpha = 1}),
        "rmsprop_create: alpha is 1, wanted at least 0 and less than 1");
    BAD(gd_rmsprop_create(params, &(gd_rmsprop_options){.momentum = -1}),
        "rmsprop_create: momentum is -1");
    BAD(gd_adagrad_create(params, &(gd_adagrad_options){.initial = -1}),
        "adagrad_create: initial is -1");
    BAD(gd_adagrad_create(params, &(gd_adagrad_options){.rate_decay = INFINITY}),
        "adagrad_create: rate_decay is inf");
    BAD(gd_lion_create(params, &(gd_lion_options){.beta2 = 1}), "lion_create: beta2 is 1");
    BAD(gd_muon_create(params, &(gd_muon_options){.momentum = 1}), "muon_create: momentum is 1");
    BAD(gd_muon_create(params, &(gd_muon_options){.adamw = {.beta1 = 1}}),
        "muon_create: beta1 is 1");
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    BAD(gd_optimizer_step(sgd, NAN), "optimizer_step: lr is nan");
    BAD(gd_optimizer_step(sgd, -0.1), "optimizer_step: lr is -0.1");
    BAD(gd_optimizer_set_steps(sgd, -1), "optimizer_set_steps: steps is -1");
    BAD(gd_optimizer_set_steps(sgd, (INT64_C(1) << 53) + 1),
        "optimizer_set_steps: steps is 9007199254740993, wanted at least 0 and at most 2^53");
    ck_assert_int_eq(gd_optimizer_steps(sgd), 0);
    ck_assert_int_eq(gd_optimizer_set_steps(sgd, INT64_C(1) << 53), GD_OK);
    ck_assert_int_eq(gd_optimizer_steps(sgd), INT64_C(1) << 53);
    ck_assert_int_eq(gd_optimizer_set_steps(sgd, 0), GD_OK);
    BAD(gd_optimizer_average(sgd, 1), "optimizer_average: decay is 1");
    BAD(gd_optimizer_swap_average(sgd), "optimizer_swap_average: there is no average");
    gd_optimizer_average(sgd, 0.9);
    BAD(gd_optimizer_average(sgd, 0.9), "optimizer_average: it was called before");
    BAD(gd_optimizer_swap_average(sgd), "wanted an update before");
    gd_tensor *first = gd_params_at(params, 0);
    gd_backward_from(&first, 1, NULL);
    gd_optimizer_step(sgd, 1);
    gd_optimizer_swap_average(sgd);
    BAD(gd_optimizer_step(sgd, 1), "optimizer_update: the parameters are their average");
    gd_optimizer_free(sgd);
    sgd = gd_sgd_create(params, NULL);
    gd_optimizer_step(sgd, 1);
    BAD(gd_optimizer_average(sgd, 0.9), "optimizer_average: an update was made");
    gd_optimizer_free(sgd);
    gd_params_free(empty);
    gd_params_free(params);
}

TEST(updates)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    gd_tensor *elsewhere_sum = gd_sum_all(gd_mul(elsewhere, elsewhere));
    gd_update_report report;
    BAD(gd_optimizer_set_rate(sgd, -1), "optimizer_set_rate: lr is -1, wanted");
    BAD(gd_optimizer_set_rate(sgd, NAN), "optimizer_set_rate: lr is nan");
    BAD(gd_optimizer_update(sgd, NAN), "optimizer_update: max_norm is nan");
    BAD(gd_optimizer_backward(sgd, x, 1),
        "optimizer_backward: loss is [3, 4] and fraction 1, wanted one element");
    BAD(gd_optimizer_backward(sgd, gd_sum_all(gd_mul(x, x)), INFINITY),
        "optimizer_backward: loss is [] and fraction inf, wanted");
    BAD(gd_optimizer_backward(sgd, scalar, 1),
        "optimizer_backward: loss is [] and fraction 1, wanted one element, made");
    BAD(gd_optimizer_backward(sgd, elsewhere_sum, 1),
        "optimizer_backward: loss is [] of another context");
    BAD(gd_optimizer_set_loss_scale(sgd, (gd_loss_scale){.adapts = true, .factor = 3}),
        "optimizer_set_loss_scale: factor is 3 and good 0, wanted a power of two");
    BAD(gd_optimizer_set_loss_scale(sgd, (gd_loss_scale){.factor = 2}),
        "optimizer_set_loss_scale: factor is 2");
    BAD(gd_optimizer_set_loss_scale(sgd, (gd_loss_scale){.factor = 1, .good = -1}),
        "optimizer_set_loss_scale: factor is 1 and good -1");
    BAD(gd_optimizer_set_loss_scale(
            sgd, (gd_loss_scale){.adapts = true, .factor = 1024, .good = INT64_MAX}),
        "factor is 1024 and good 9223372036854775807, wanted a power of two (1 if it does not "
        "adapt) and 0 to 2^53");
    ck_assert_int_eq(gd_optimizer_backward(sgd, NULL, 1), GD_OK); /* quietly */
    ck_assert_int_eq(gd_optimizer_step(NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_optimizer_update(NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_optimizer_set_rate(NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_optimizer_continue(NULL), GD_ERROR_ARGUMENT);
    ck_assert(!gd_optimizer_report(NULL, true, &report));
    gd_optimizer_free(NULL);
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

TEST(random_numbers)
{
    BAD(gd_random_uniform(ids, 0, 1),
        "random_uniform: the tensor is int32 [3], wanted a real dtype");
    BAD(gd_random_uniform(x, 1, 0), "random_uniform: low is 1 and high is 0");
    BAD(gd_random_uniform(x, 0, NAN), "random_uniform: low is 0 and high is nan");
    BAD(gd_random_uniform(x, -3e38, 3e38), /* a difference that float32 cannot hold */
        "random_uniform: low is -3e+38 and high is 3e+38, wanted low <= high, both finite and at "
        "most 3.40282e+38 apart");
    BAD(gd_random_normal(x, 0, -1), "random_normal: mean is 0 and stddev is -1");
    BAD(gd_random_normal(gd_expand(w5, 2, SHAPE(2, 5)), 0, 1), "expanded");
    ck_assert_int_eq(gd_random_uniform(NULL, 0, 1), GD_ERROR_ARGUMENT);
    BAD(gd_random_normal(freed, 0, 1), "random_normal: tensor [3, 4] was freed");
    BAD(gd_random_integers(x, 0, 1), "random_integers: the tensor is float32 [3, 4], wanted int32");
    BAD(gd_random_integers(ids, 5, 5), "low is 5 and high is 5, wanted low < high");
    BAD(gd_random_integers(ids, 0, INT64_C(1) << 40), "within int32");
    BAD(gd_random_permutation(make(ctx, GD_INT32, GD_SHAPE(2, 2))),
        "random_permutation: the tensor is [2, 2]");
}

/* A function for gradcheck, which is not called. */
static gd_tensor *none(void *user, gd_tensor *const *in, int count)
{
    (void)user, (void)in, (void)count;
    return NULL;
}

/* ---- Options of garbage --------------------------------------------------------------------- */

/* Every option struct, filled with 0xff: all numbers are NaN or -1, all pointers the last address
 * (and each bool true: C has no other). Each call is a sentence, or works. */
#define FILLED(type, name) \
    type name;             \
    memset(&name, 0xff, sizeof name)

TEST(options_filled_with_ones)
{
    FILLED(gd_context_options, context);
    FILLED(gd_backward_options, backward);
    FILLED(gd_rms_norm_options, norm);
    FILLED(gd_rope_options, rope);
    FILLED(gd_attention_options, attention);
    FILLED(gd_cross_entropy_options, entropy);
    FILLED(gd_batch_norm_options, batch);
    FILLED(gd_conv_options, conv);
    FILLED(gd_pool_options, pool);
    FILLED(gd_pad_options, pad);
    FILLED(gd_replicate_options, replicate);
    FILLED(gd_sgd_options, sgd);
    FILLED(gd_adamw_options, adamw);
    FILLED(gd_rmsprop_options, rmsprop);
    FILLED(gd_adagrad_options, adagrad);
    FILLED(gd_lion_options, lion);
    FILLED(gd_muon_options, muon);
    FILLED(gd_gradcheck_options, check);
    FILLED(gd_group_options, group);
    FILLED(gd_graph_options, graph);
    FILLED(gd_loss_scale, scale);
    FILLED(gd_schedule, schedule);
    context.poison = context.tf32 = backward.keep_tape = norm.round_before_weight = true;
    rope.interleaved = attention.causal = sgd.nesterov = adamw.lazy = muon.adamw.lazy =
        rmsprop.centered = muon.plain = muon.match_adamw = check.only_numbers = true;
    batch.evaluate = true;
    graph.off = scale.adapts = true;
    gd_tensor *heads = make(ctx, GD_FLOAT32, GD_SHAPE(1, 3, 3, 4)), *y = gd_mul(x, x), *q, *k, *v;
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_finish(params);
    BAD(gd_params_replicate(params, NULL, &replicate), "params_replicate: bucket_bytes is -1");
    gd_optimizer *optimizer = gd_sgd_create(params, NULL);
    gd_gradcheck_report report;
    ck_assert_no_error(ctx);

    BAD(gd_backward_from(&y, 1, &backward), "backward: cotangents is ");
    BAD(gd_rms_norm_with(x, NULL, NULL, &norm), "rms_norm: eps is ");
    BAD(gd_rope(heads, &rope), "rope: base is ");
    BAD(gd_rope_qkv(heads, 1, &rope, &q, &k, &v), "rope_qkv: base is ");
    BAD(gd_attention(heads, heads, heads, &attention), "attention: mask is at ");
    BAD(gd_rope_attention(heads, 1, NULL, &attention), "rope_attention: options->mask is given");
    BAD(gd_cross_entropy_with(x, ids, &entropy), "cross_entropy: weight is at ");
    BAD(gd_linear_cross_entropy(x, x, ids, &entropy),
        "linear_cross_entropy: options->weight is at ");
    BAD(gd_batch_norm(x, NULL, NULL, &batch), "batch_norm: mean is at ");
    BAD(gd_conv2d(heads, heads, NULL, &conv), "conv2d: stride[1] is -1");
    BAD(gd_conv2d(heads, heads, NULL, &(gd_conv_options){.output_padding = {1}}),
        "conv2d: output_padding[0] is 1, wanted 0: it is of conv_transpose2d");
    BAD(gd_conv1d(gd_unsqueeze(x, 0), gd_unsqueeze(x, 0), NULL, &conv), "conv1d: stride[0] is -1");
    BAD(gd_conv1d(gd_unsqueeze(x, 0), gd_unsqueeze(x, 0), NULL,
                  &(gd_conv_options){.stride = {1, 2}}),
        "conv1d: stride[1] is 2, wanted 0: there is one axis");
    BAD(gd_conv_transpose2d(heads, gd_transpose(heads, 0, 1), NULL, &conv),
        "conv_transpose2d: stride[1] is -1");
    BAD(gd_unfold(heads, 2, 2, &conv), "unfold: stride[1] is -1");
    BAD(gd_fold(gd_unsqueeze(x, 0), 2, 2, 2, 2, &conv), "fold: stride[1] is -1");
    BAD(gd_max_pool2d(x, &pool), "max_pool2d: stride[1] is -1");
    BAD(gd_avg_pool2d(x, &pool), "avg_pool2d: stride[1] is -1");
    BAD(gd_pad(x, &pad), "pad: mode is ");
    attention.mask = entropy.weight = batch.mean = batch.var = NULL;
    batch.evaluate = false;
    BAD(gd_batch_norm(x, NULL, NULL, &batch), "batch_norm: eps is ");
    BAD(gd_attention(heads, heads, heads, &attention), "attention: scale is ");
    BAD(gd_cross_entropy_with(x, ids, &entropy), "cross_entropy: reduction is -1");
    BAD(gd_sgd_create(params, &sgd), "sgd_create: momentum is ");
    BAD(gd_adamw_create(params, &adamw), "adamw_create: beta1 is ");
    BAD(gd_adam_create(params, &adamw), "adam_create: beta1 is ");
    BAD(gd_rmsprop_create(params, &rmsprop), "rmsprop_create: momentum is ");
    BAD(gd_adagrad_create(params, &adagrad), "adagrad_create: initial is ");
    BAD(gd_lion_create(params, &lion), "lion_create: beta1 is ");
    BAD(gd_muon_create(params, &muon), "muon_create: momentum is ");
    BAD(gd_optimizer_set_loss_scale(optimizer, scale), "factor is -1 and good -1");
    BAD(gd_group_create(ctx, &group), "group_create: folder of the options is no text");
    BAD(gd_mul((gd_tensor *)UINTPTR_MAX, x), "mul: a is at ");
    gd_step_end(ctx);
    const gd_op *mul = gd_find_op(NULL, "mul");
    BAD(gd_gradcheck_case(ctx, mul, mul->cases, &check, &report), "gradcheck: step is ");
    BAD(gd_gradcheck_function(ctx, "f", none, NULL, NULL, 0, &check, &report),
        "gradcheck: step is ");
    check = (gd_gradcheck_options){.dtype = check.dtype};
    BAD(gd_gradcheck_case(ctx, mul, mul->cases, &check, &report), "gradcheck: dtype is at ");
    BAD(gd_gradcheck_function(ctx, "f", none, NULL, NULL, 0, &check, &report),
        "gradcheck: dtype is at ");
    gd_gradcheck_report_free(&report);
    ck_assert(isnan(gd_schedule_rate(&schedule, 3)));
    gd_graph_free(gd_graph_create(ctx, &graph));

    gd_context *bad = gd_context_create(&context);
    ck_assert_error(bad, "context: device is -1");
    gd_context_free(bad);
    context.device = GD_CPU;
    context.threads = 1;
    bad = gd_context_create(&context);
    ck_assert_error(bad, "context: the allocator's functions are at ");
    gd_context_free(bad);
    gd_optimizer_free(optimizer);
    gd_params_free(params);
    gd_tensor_free(heads);
}

TEST(records_and_scratch)
{
    gd_op op = *gd_find_op(NULL, "scale");
    const double factor[2] = {2};
    for (size_t size = SIZE_MAX; size > SIZE_MAX / 8; size /= 2) {
        op.args_size = size;
        BAD(gd_apply(&op, &x, 1, factor), "scale\" is not usable: its args_size is more than");
    }
    const gd_call call = {.context = ctx, .op = &op};
    ck_assert_ptr_null(gd_call_scratch(NULL, 8));
    BAD(gd_call_scratch(&call, 8), "scale: temporary memory of 8 bytes was asked for outside of");
    ck_assert_int_eq(gd_call_fail(NULL, GD_ERROR_ARGUMENT, "nobody"), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_spec_like(NULL).ndim, 0);
    ck_assert_text_eq(gd_input_name(NULL, 3), "input 3");
}

CHECK_MAIN_WITHIN("bad calls", open_contexts, close_contexts)
