/* test_optim16.c - parameters in 16 bits: gradients of float32, masters of float32, and what the
 * ops see of both. */
#include "each_context.h"
#include "optimizer_kinds.h"
#include "param_uses.h"

#include <math.h>
#include <string.h>

static const gd_dtype dtypes[2] = {GD_BFLOAT16, GD_FLOAT16};

/* A group of two parameters, "w" [n] which decays and "b" [3] which does not. */
enum { N = 37, GAP = 64, ALL = 96 }; /* w has 64 places, b 32 */

static gd_params *group(gd_context *ctx, gd_dtype dtype)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_params_add(params, "b", 1, (int64_t[]){3}, 0);
    gd_params_add(params, "w", 1, (int64_t[]){N}, GD_DECAY);
    gd_params_finish(params);
    ck_assert_no_error(ctx);
    return params;
}

/* Sets the gradient to `values`, which need not fit into 16 bits. */
static void give_grad(gd_tensor *t, const double *values)
{
    gd_backward_from(&t, 1, NULL);
    gd_tensor_write_f64(gd_grad(t), values, gd_tensor_count(t));
    ck_assert_no_error(gd_tensor_context(t));
}

static double noise(int i, int seed)
{
    return (double)(float)sin(12.9898 * i + 78.233 * seed);
}

/* ---- What there is ------------------------------------------------------------------------ */

LOOP_TEST(gradients_and_state_are_float32, 2)
{
    gd_params *params = group(ctx, dtypes[_i]);
    gd_tensor *w = gd_params_find(params, "w");
    gd_memory_stats memory = gd_memory(ctx);
    ck_assert_uint_eq(memory.current[GD_MEMORY_PARAMETERS], 2 * ALL);
    ck_assert_uint_eq(memory.current[GD_MEMORY_GRADIENTS], 4 * ALL);
    ck_assert_int_eq(gd_tensor_dtype(w), dtypes[_i]);
    gd_backward_from(&w, 1, NULL);
    ck_assert_int_eq(gd_tensor_dtype(gd_grad(w)), GD_FLOAT32);

    static const char *const names[3][4] = {{"m", "v", "master"}, {"v", "master"}, {"master"}};
    gd_optimizer *optimizers[3] = {gd_adamw_create(params, NULL),
                                   gd_sgd_create(params, &(gd_sgd_options){.momentum = 0.9}),
                                   gd_sgd_create(params, NULL)};
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_OPTIMIZER], (3 + 2 + 1) * 4 * ALL);
    for (int k = 0; k < 3; k++) {
        int i = 0;
        for (gd_tensor *state; (state = gd_optimizer_state(optimizers[k], i)); i++) {
            ck_assert_str_eq(gd_tensor_name(state), names[k][i]);
            ck_assert_int_eq(gd_tensor_dtype(state), GD_FLOAT32);
            ck_assert_int_eq(gd_tensor_count(state), ALL);
        }
        ck_assert_ptr_null(names[k][i]);
        gd_optimizer_free(optimizers[k]);
    }
    gd_params_free(params);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 0);
}

/* ---- Updates ------------------------------------------------------------------------------ */

static gd_tensor *master_of(const gd_optimizer *optimizer)
{
    gd_tensor *state, *last = NULL;
    for (int i = 0; (state = gd_optimizer_state(optimizer, i)); i++) last = state;
    return last;
}

/* The master goes where a float32 group goes from the same values and gradients, to the last bit,
 * and the parameters are the master rounded. */
LOOP_TEST(the_master_is_what_a_float32_group_would_be, 2 * OPTIMIZER_KINDS)
{
    const gd_dtype dtype = dtypes[_i % 2];
    gd_params *narrow = group(ctx, dtype), *wide = group(ctx, GD_FLOAT32);
    gd_optimizer *optimizers[2] = {optimizer_of_kind(narrow, _i / 2),
                                   optimizer_of_kind(wide, _i / 2)};
    gd_tensor *w = gd_params_find(narrow, "w"), *b = gd_params_find(narrow, "b");
    gd_random_normal(w, 0, 1);
    gd_random_normal(b, 0, 1);
    gd_tensor_copy(gd_params_find(wide, "w"), w);
    gd_tensor_copy(gd_params_find(wide, "b"), b);
    for (int step = 0; step < 12; step++) {
        double grads[N], master[ALL], want[N], got[N];
        for (int i = 0; i < N; i++) grads[i] = noise(i, step);
        for (int k = 0; k < 2; k++) {
            gd_params *params = k ? wide : narrow;
            gd_params_clear_grads(params);
            give_grad(gd_params_find(params, "w"), grads);
            give_grad(gd_params_find(params, "b"), grads + 5);
            gd_optimizer_step(optimizers[k], 1e-3);
        }
        gd_tensor_read_f64(master_of(optimizers[0]), master, ALL);
        gd_tensor_read_f64(gd_params_find(wide, "w"), want, N);
        ck_assert_mem_eq(master, want, sizeof want);
        gd_tensor_read_f64(gd_params_find(wide, "b"), want, 3);
        ck_assert_mem_eq(master + GAP, want, 3 * sizeof *want);
        for (int i = 0; i < ALL; i++) master[i] = rounded(master[i], dtype);
        gd_tensor_read_f64(w, got, N);
        ck_assert_mem_eq(got, master, sizeof got);
        gd_tensor_read_f64(b, got, 3);
        ck_assert_mem_eq(got, master + GAP, 3 * sizeof *got);
    }
    ck_assert_no_error(ctx);
    for (int k = 0; k < 2; k++) gd_optimizer_free(optimizers[k]);
    gd_params_free(narrow);
    gd_params_free(wide);
}

/* What is written to a parameter counts, whatever the master was; the others go on. */
LOOP_TEST(parameters_may_be_written, 2)
{
    gd_params *params = group(ctx, dtypes[_i]);
    gd_tensor *w = gd_params_find(params, "w");
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    double values[N], master[ALL], written[N];
    gd_tensor_fill(w, 1);
    gd_backward_from(&w, 1, NULL);
    gd_optimizer_step(sgd, 1e-4);
    gd_tensor_read_f64(w, written, N);
    written[3] = 5;
    written[4] = -0.0;
    written[5] = NAN;
    gd_tensor_write_f64(w, written, N);
    gd_optimizer_step(sgd, 1e-4);
    gd_tensor_read_f64(w, values, N);
    gd_tensor_read_f64(master_of(sgd), master, ALL);
    ck_assert(values[3] == 5 && master[3] == (float)(5 - (double)1e-4F));
    ck_assert(master[4] == -(double)1e-4F);
    ck_assert(isnan(values[5]) && isnan(master[5]));
    for (int i = 6; i < N; i++) ck_assert_double_eq_tol(master[i], 1 - 2e-4, 1e-7);
    for (int i = N; i < GAP; i++) ck_assert(master[i] == 0); /* the gap behind it */
    for (int i = 0; i < gd_params_count(params); i++)        /* frozen: nothing follows */
        gd_tensor_set_requires_grad(gd_params_at(params, i), false);
    gd_tensor_fill(w, 2);
    gd_optimizer_step(sgd, 1e-4);
    gd_tensor_read_f64(w, values, N);
    for (int i = 0; i < N; i++) ck_assert(values[i] == 2);
    ck_assert_no_error(ctx);
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

/* ---- Gradients ---------------------------------------------------------------------------- */

LOOP_TEST(scaling_gradients, 2)
{
    gd_params *params = group(ctx, dtypes[_i]);
    gd_tensor *w = gd_params_find(params, "w"), *b = gd_params_find(params, "b");
    double grads[N], got[N], norm;
    for (int i = 0; i < N; i++) grads[i] = noise(i, 1);
    give_grad(w, grads);
    give_grad(b, grads);
    gd_grad_clear(b); /* counts as zero */
    gd_params_scale_grads(params, 0x1p-20);
    gd_tensor_read_f64(gd_grad(w), got, N);
    for (int i = 0; i < N; i++) ck_assert(got[i] == grads[i] * 0x1p-20);
    gd_clip_grad_norm(params, 0, &norm);
    double squares = 0;
    for (int i = 0; i < N; i++) squares += grads[i] * grads[i];
    ck_assert_double_eq_tol(norm, 0x1p-20 * sqrt(squares), 1e-13 * norm);
    ck_assert_int_eq(gd_params_scale_grads(NULL, 1), GD_ERROR_ARGUMENT);
    ck_assert_no_error(ctx);
    gd_params_free(params);
}

/* The float32 gradients of a group, rounded, are the gradients of two leaves in 16 bits: on the CPU
 * they are computed in float32 and rounded at the end, where one comes alone. */
LOOP_TEST(every_op_gives_float32_gradients, 2 * PARAM_USES)
{
    const gd_dtype dtype = dtypes[_i % 2];
    const int op = _i / 2;
    const bool several = param_use_is_long(op);
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w[2] = {
        gd_params_add(params, "w", 2, (int64_t[]){PARAM_WIDTH, PARAM_WIDTH}, GD_DECAY)};
    gd_tensor *v[2] = {gd_params_add(params, "v", 1, (int64_t[]){PARAM_WIDTH}, 0)};
    gd_params_finish(params);
    gd_random_normal(w[0], 0, 1);
    gd_random_normal(v[0], 0, 1);
    w[1] = gd_tensor_create(ctx, dtype, 2, (int64_t[]){PARAM_WIDTH, PARAM_WIDTH});
    v[1] = gd_tensor_create(ctx, dtype, 1, (int64_t[]){PARAM_WIDTH});
    gd_tensor_copy(w[1], w[0]);
    gd_tensor_copy(v[1], v[0]);
    gd_tensor_set_requires_grad(w[1], true);
    gd_tensor_set_requires_grad(v[1], true);
    gd_tensor *x = gd_tensor_create(ctx, dtype, 2, (int64_t[]){PARAM_ROWS, PARAM_WIDTH});
    gd_tensor *ids = gd_tensor_create(ctx, GD_INT32, 1, (int64_t[]){PARAM_ROWS});
    gd_random_normal(x, 0, 1);
    gd_random_integers(ids, 0, PARAM_WIDTH);
    double wide[PARAM_WIDTH * PARAM_WIDTH], narrow[PARAM_WIDTH * PARAM_WIDTH];
    int reached = 0;
    for (int k = 0; k < 2; k++) {
        gd_tensor *y = param_use(ctx, op, w[k], v[k], x, ids);
        gd_backward(gd_sum(gd_mul(y, y), NULL, 0, false));
        gd_step_end(ctx);
        ck_assert_no_error(ctx);
    }
    for (int which = 0; which < 2; which++) {
        const gd_tensor *ours = gd_grad(which ? v[0] : w[0]), *leaf = gd_grad(which ? v[1] : w[1]);
        ck_assert((ours == NULL) == (leaf == NULL));
        if (!ours) continue;
        const int64_t n = gd_tensor_count(ours);
        double largest = 0;
        reached++;
        ck_assert_int_eq(gd_tensor_dtype(ours), GD_FLOAT32);
        ck_assert_int_eq(gd_tensor_dtype(leaf), dtype);
        gd_tensor_read_f64(ours, wide, n);
        gd_tensor_read_f64(leaf, narrow, n);
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(wide[i]));
        ck_assert(largest > 0);
        for (int64_t i = 0; i < n; i++) {
            if (several)
                ck_assert_double_eq_tol(wide[i], narrow[i], largest * 0x1p-7);
            else
                ck_assert_double_eq(narrow[i], rounded(wide[i], dtype));
        }
    }
    ck_assert_int_ge(reached, 1);
    gd_tensor_free(w[1]);
    gd_tensor_free(v[1]);
    gd_tensor_free(x);
    gd_tensor_free(ids);
    gd_params_free(params);
}

/* What is made of a matrix w [6, 8] by functions whose backward only moves dy or sums it. */
enum { MADE = 14 };
static gd_tensor *made_of(int which, gd_tensor *w, gd_dtype dtype)
{
    gd_tensor *parts[2];
    switch (which) {
    case 0:
        return gd_reshape(w, GD_SHAPE(12, 4));
    case 1:
        return gd_transpose(w, 0, 1);
    case 2:
        return gd_slice(w, 1, 2, 7);
    case 3:
        return gd_contiguous(gd_transpose(w, 0, 1));
    case 4:
        return gd_concat((gd_tensor *[]){w, gd_slice(w, 0, 1, 3)}, 2, 0);
    case 5:
        return gd_roll(w, 1, 3);
    case 6:
        return gd_flip(w, NULL, 0);
    case 7:
        return gd_squeeze(gd_unsqueeze(w, 1), 1);
    case 8:
        return gd_tril(w, 1);
    case 9:
        return gd_cast(gd_cast(w, GD_FLOAT32), dtype);
    case 10:
        return gd_reshape(gd_expand(gd_unsqueeze(w, 0), GD_SHAPE(3, 6, 8)), GD_SHAPE(18, 8));
    case 11:
        return gd_add(w, gd_neg(gd_flip(w, (int[]){0}, 1)));
    case 12:
        return gd_split(w, 0, 2, (int64_t[]){2, 4}, parts) ? NULL : parts[1];
    default:
        return gd_reshape(gd_stack((gd_tensor *[]){w, w}, 2, 0), GD_SHAPE(12, 8));
    }
}

/* The gradient of such a parameter as a layer's weight, by sums of 31 products, 20 times: float32
 * holds it, 16 bits do not. which = MADE: conv1d's. */
enum { BATCHES = 20 };
static void weight_gradient(gd_context *ctx, gd_dtype dtype, gd_dtype digits, int which, double *dw)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *w = gd_params_add(params, "w", 2, (int64_t[]){6, 8}, 0);
    double values[31 * 64];
    gd_params_finish(params);
    for (int i = 0; i < 48; i++) values[i] = rounded(noise(i, 3), digits);
    gd_tensor_write_f64(w, values, 48);
    gd_tensor *weight = which < MADE ? made_of(which, w, dtype) : gd_reshape(w, GD_SHAPE(3, 4, 4));
    const int64_t columns = which < MADE ? gd_tensor_dim(weight, 1) : 64;
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(31, columns));
    for (int i = 0; i < 31 * columns; i++) values[i] = rounded(noise(i, 5), digits);
    gd_tensor_write_f64(x, values, 31 * columns);
    gd_tensor *y = which < MADE ? gd_linear(x, weight, NULL)
                                : gd_conv1d(gd_reshape(x, GD_SHAPE(31, 4, 16)), weight, NULL, NULL);
    for (int i = 0; i < BATCHES; i++)
        gd_backward_from(&y, 1, &(gd_backward_options){.keep_tape = true});
    ck_assert_no_error(ctx);
    gd_tensor_read_f64(gd_grad(w), dw, 48);
    gd_step_end(ctx);
    gd_tensor_free(x);
    gd_params_free(params);
}

LOOP_TEST(gradients_pass_unrounded_through_what_moves_them, 2 * (MADE + 1))
{
    const gd_dtype dtype = dtypes[_i % 2];
    double dw[48], wanted[48];
    weight_gradient(ctx, dtype, dtype, _i / 2, dw);
    weight_gradient(ctx, GD_FLOAT64, dtype, _i / 2, wanted);
    for (int i = 0; i < 48; i++) ck_assert_double_eq_tol(dw[i], wanted[i], BATCHES * 2e-5);
}

/* In 16 bits a loss near 6 would be a multiple of 1/32 or of 1/256. */
LOOP_TEST(the_loss_is_float32, 2)
{
    enum { BATCH = 11, VOCAB = 400 };
    gd_tensor *logits = gd_tensor_create(ctx, dtypes[_i], 2, (int64_t[]){BATCH, VOCAB});
    gd_tensor *wide = gd_tensor_create(ctx, GD_FLOAT64, 2, (int64_t[]){BATCH, VOCAB});
    gd_tensor *targets = gd_tensor_create(ctx, GD_INT32, 1, (int64_t[]){BATCH});
    gd_random_normal(logits, 0, 1);
    gd_random_integers(targets, 0, VOCAB);
    gd_tensor_copy(wide, logits);
    gd_tensor_set_requires_grad(logits, true);
    gd_tensor *loss = gd_cross_entropy(logits, targets);
    ck_assert_int_eq(gd_tensor_dtype(loss), GD_FLOAT32);
    ck_assert_double_eq_tol(gd_item(loss), gd_item(gd_cross_entropy(wide, targets)), 1e-6);
    gd_backward(gd_scale(loss, 0x1p+10));
    ck_assert_int_eq(gd_tensor_dtype(gd_grad(logits)), dtypes[_i]);
}

CHECK_MAIN_WITHIN("optim16", setup, teardown)
