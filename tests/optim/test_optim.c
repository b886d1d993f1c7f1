/* test_optim.c - optimizers, against the rules of optimizer_kinds.h; factors of a parameter, the
 * average, frozen parameters. Going on from a file is test_go_on.c's, what is refused that of
 * test_bad_calls.c, what happens without memory that of test_out_of_memory.c. */
#include "each_context.h"
#include "frozen_times.h"

/* ---- Optimizers against their rules -------------------------------------------------------- */

static bool decays(int element)
{
    for (int i = 0; i < PARAMETERS; i++) {
        int count = 1;
        for (int k = 0; k < parameter[i].ndim; k++) count *= (int)parameter[i].shape[k];
        if (element < count) return parameter[i].flags & GD_DECAY;
        element -= count;
    }
    return false;
}

enum { STEPS = 8 };

static void follow(gd_dtype dtype, int kind)
{
    gd_context *ctx = test_context(2);
    gd_params *params = group(ctx, dtype);
    gd_optimizer *optimizer = optimizer_of_kind(params, kind);
    double start[TOTAL], grads[TOTAL], got[TOTAL];
    optimized want[TOTAL] = {{0}};
    some_numbers(start, TOTAL, 10);
    write_all(params, start);
    for (int i = 0; i < TOTAL; i++) want[i].w = start[i];
    for (int step = 0; step < STEPS; step++) {
        const double lr = 0.05 / (1 + step), tolerance = dtype == GD_FLOAT32 ? 3e-6 : 1e-14;
        some_numbers(grads, TOTAL, step);
        for (int i = step % 5; i < TOTAL; i += 5) grads[i] = 0; /* which lazy ones leave alone */
        gd_params_clear_grads(params);
        give_all(params, grads);
        gd_optimizer_step(optimizer, lr);
        read_all(params, got);
        ck_assert_no_error(ctx);
        ck_assert_int_eq(gd_optimizer_steps(optimizer), step + 1);
        for (int i = 0; i < TOTAL; i++) {
            reference_update(&optimizer_rows[kind], &want[i], grads[i], decays(i), lr, step);
            ck_assert_double_eq_tol(got[i], want[i].w, tolerance);
        }
    }
    gd_optimizer_free(optimizer);
    gd_params_free(params);
    gd_context_free(ctx);
}

/* Muon's rule is PyTorch's (python/tests/test_optimizers.py). */
LOOP_TEST(optimizers_follow_their_formulas, OPTIMIZER_ROWS)
{
    if (optimizer_rows[_i].rule == OF_MUON) return;
    follow(GD_FLOAT32, _i);
    follow(GD_FLOAT64, _i);
}

/* The factors of two parameters are those of two groups with optimizers of their own, whether they
 * are set before the block is laid out or later, and in the order of the block. */
LOOP_TEST(factors_are_optimizers_of_their_own, 2)
{
    static const double rates[PARAMETERS] = {1, 3, 1, 0.5, 3};
    static const double decays[PARAMETERS] = {2, 1, 1, 0, 1};
    double start[TOTAL], grads[TOTAL], got[TOTAL];
    some_numbers(start, TOTAL, 3);
    gd_params *params = gd_params_create(ctx, GD_FLOAT64);
    for (int i = 0; i < PARAMETERS; i++) {
        gd_tensor *t = gd_params_add(params, parameter[i].name, parameter[i].ndim,
                                     parameter[i].shape, parameter[i].flags);
        if (_i) gd_params_set_factors(params, t, rates[i], decays[i]);
    }
    gd_params_finish(params);
    if (_i) /* b1 and b2, of one rate, are neighbours; scale comes behind them */
        ck_assert_ptr_eq((char *)gd_tensor_data(gd_params_at(params, 1)) + 64,
                         gd_tensor_data(gd_params_at(params, 4)));
    for (int i = 0; i < PARAMETERS && !_i; i++)
        gd_params_set_factors(params, gd_params_at(params, i), rates[i], decays[i]);
    write_all(params, start);
    gd_optimizer *adamw = gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.1});
    for (int step = 0; step < 3; step++) {
        some_numbers(grads, TOTAL, step);
        gd_params_clear_grads(params);
        give_all(params, grads);
        gd_optimizer_step(adamw, 0.01);
    }
    read_all(params, got);
    int element = 0;
    for (int i = 0; i < PARAMETERS; i++) {
        gd_params *alone = gd_params_create(ctx, GD_FLOAT64);
        gd_tensor *t = gd_params_add(alone, parameter[i].name, parameter[i].ndim,
                                     parameter[i].shape, parameter[i].flags);
        gd_params_finish(alone);
        gd_tensor_write_f64(t, start + element, gd_tensor_count(t));
        gd_optimizer *own = gd_adamw_create(
            alone, &(gd_adamw_options){.weight_decay = gd_literal(0.1 * decays[i])});
        for (int step = 0; step < 3; step++) {
            some_numbers(grads, TOTAL, step);
            gd_params_clear_grads(alone);
            give_grad(t, grads + element);
            gd_optimizer_step(own, 0.01 * rates[i]);
        }
        double want[TOTAL];
        read_all(alone, want);
        for (int64_t k = 0; k < gd_tensor_count(t); k++)
            ck_assert_double_eq_tol(got[element + k], want[k], 1e-15);
        element += (int)gd_tensor_count(t);
        gd_optimizer_free(own);
        gd_params_free(alone);
    }
    ck_assert_no_error(ctx);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

/* All states of both have the same bits. */
static void ck_assert_same_states(const gd_optimizer *one, const gd_optimizer *other)
{
    const gd_tensor *a;
    for (int i = 0; (a = gd_optimizer_state(one, i)); i++) {
        const int64_t n = gd_tensor_count(a);
        const size_t bytes = (size_t)n * sizeof(double);
        double *values[2] = {malloc(bytes), malloc(bytes)};
        ck_assert(values[0] && values[1]);
        gd_tensor_read_f64(a, values[0], n);
        gd_tensor_read_f64(gd_optimizer_state(other, i), values[1], n);
        ck_assert_msg(!memcmp(values[0], values[1], bytes), "%s differs", gd_tensor_name(a));
        free(values[0]), free(values[1]);
    }
}

/* ---- Averages, frozen parameters, threads -------------------------------------------------- */

/* Also of masters; and a second exchange brings the same bits back. */
LOOP_TEST(the_average_can_take_the_place_of_the_parameters, 4)
{
    const gd_dtype dtype = (gd_dtype)_i;
    gd_params *params = group(ctx, dtype);
    gd_optimizer *lion = gd_lion_create(params, NULL);
    gd_optimizer_average(lion, 0.75);
    const bool wide = dtype <= GD_FLOAT64;
    gd_tensor *average = gd_optimizer_state(lion, wide ? 1 : 2);
    ck_assert_str_eq(gd_tensor_name(average), "average");
    double want[TOTAL], grads[TOTAL], trained[TOTAL], got[TOTAL];
    for (int step = 0; step < 5; step++) {
        some_numbers(grads, TOTAL, step);
        gd_params_clear_grads(params);
        give_all(params, grads);
        gd_optimizer_step(lion, 0.25); /* exact in 16 bits */
        read_all(params, trained);
        for (int i = 0; i < TOTAL; i++)
            want[i] = step ? 0.75 * want[i] + 0.25 * trained[i] : trained[i];
    }
    gd_optimizer_swap_average(lion);
    read_all(params, got);
    const double tolerance = dtype == GD_BFLOAT16 ? 0.01 : 1e-3;
    for (int i = 0; i < TOTAL; i++)
        ck_assert_double_eq_tol(got[i], want[i], wide ? 1e-6 : tolerance);
    gd_optimizer_swap_average(lion);
    read_all(params, got);
    ck_assert_mem_eq(got, trained, sizeof got);
    gd_optimizer_step(lion, 0.25);
    ck_assert_no_error(ctx);
    gd_optimizer_free(lion);
    gd_params_free(params);
}

/* The average of what no update has changed is its value: frozen, written to later, or in a row of
 * a table that is not touched, after a first update that was withheld. */
LOOP_TEST(the_average_of_what_stays, 4)
{
    const gd_dtype dtype = (gd_dtype)_i;
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *table = gd_params_add(params, "table", GD_SHAPE(64, 1), 0);
    gd_tensor *frozen = gd_params_add(params, "frozen", GD_SHAPE(2), 0);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    gd_optimizer_average(sgd, 0.5);
    gd_tensor_fill(table, 1);
    gd_tensor_fill(frozen, 3);
    gd_tensor_set_requires_grad(frozen, false);
    for (int step = 0; step < 3; step++) {
        gd_tensor *rows = gd_embedding(table, gd_constant(ctx, GD_INT32, GD_SHAPE(1), step));
        gd_optimizer_set_rate(sgd, 0.25);
        gd_optimizer_backward(sgd, gd_sum_all(step ? rows : gd_scale(rows, INFINITY)), 1);
        gd_optimizer_update(sgd, 0);
        gd_update_report report;
        while (gd_optimizer_report(sgd, true, &report))
            ck_assert_int_eq(report.outcome, step ? GD_UPDATE_MADE : GD_UPDATE_NOT_FINITE);
        if (step == 0) gd_optimizer_continue(sgd);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    for (int turn = 0; turn < 4; turn++) {
        if (turn == 2) gd_tensor_fill(frozen, 5);
        gd_optimizer_swap_average(sgd);
        double w[64], f[2];
        gd_tensor_read_f64(table, w, 64);
        gd_tensor_read_f64(frozen, f, 2);
        ck_assert_double_eq(w[0], 1);
        ck_assert_double_eq(w[1], 0.75);
        ck_assert_double_eq(w[2], turn % 2 ? 0.75 : 0.875);
        ck_assert_double_eq(w[63], 1);
        ck_assert_double_eq(f[1], turn == 3 ? 5 : 3);
    }
    ck_assert_no_error(ctx);
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

/* A parameter that no longer requires a gradient is left alone, weight decay and all. */
TEST(frozen_parameters_stay)
{
    for (int frozen = 0; frozen < PARAMETERS; frozen++) {
        gd_context *ctx = test_context(1);
        gd_params *params = group(ctx, GD_FLOAT64);
        gd_optimizer *adamw = optimizer_of_kind(params, OPTIMIZER_ADAMW);
        double before[TOTAL], after[TOTAL], grads[TOTAL];
        some_numbers(before, TOTAL, 3);
        some_numbers(grads, TOTAL, 4);
        write_all(params, before);
        give_all(params, grads);
        gd_tensor_set_requires_grad(gd_params_at(params, frozen), false);
        gd_optimizer_step(adamw, 0.1);
        read_all(params, after);
        int element = 0;
        for (int i = 0; i < PARAMETERS; i++) {
            int64_t count = gd_tensor_count(gd_params_at(params, i));
            for (int64_t k = 0; k < count; k++, element++) {
                ck_assert((after[element] == before[element]) == (i == frozen));
            }
        }
        ck_assert_no_error(ctx);
        gd_optimizer_free(adamw);
        gd_params_free(params);
        gd_context_free(ctx);
    }
}

LOOP_TEST(what_is_frozen_for_a_while_goes_on_as_alone, 4 * OPTIMIZER_KINDS)
{
    ck_assert_frozen_as_alone(ctx, (gd_dtype)(_i % 4), _i / 4);
}

/* Adam's first move is lr for any gradient. There are as many different counts as parameters. */
TEST(parameters_are_unfrozen_one_by_one)
{
    enum { MANY = 150 };
    gd_params *params = gd_params_create(ctx, GD_FLOAT64);
    char name[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "w%d", i);
        gd_params_add(params, name, 0, NULL, 0);
    }
    gd_params_finish(params);
    gd_optimizer *adam = gd_adam_create(params, NULL);
    for (int i = 0; i < MANY; i++) gd_tensor_set_requires_grad(gd_params_at(params, i), false);
    for (int i = 0; i < MANY; i++) {
        gd_tensor *t = gd_params_at(params, i);
        gd_tensor_set_requires_grad(t, true);
        gd_params_clear_grads(params);
        for (int k = 0; k <= i; k++) give_grad(gd_params_at(params, k), &(double){i % 2 ? 3 : 7});
        gd_optimizer_step(adam, 0.01);
        ck_assert_double_eq_tol(gd_item(t), -0.01, 1e-9);
    }
    ck_assert_int_eq(gd_optimizer_steps(adam), MANY);
    for (int steps = 0; steps < 6; steps += 5) {
        gd_optimizer_set_steps(adam, steps); /* of all */
        for (int i = 0; i < MANY; i++) gd_tensor_fill(gd_params_at(params, i), 0);
        for (int i = 0; i < 2; i++) gd_tensor_fill(gd_optimizer_state(adam, i), 0);
        gd_optimizer_step(adam, 0.01);
        optimized want = {0};
        reference_update(&(optimizer_row){.rule = OF_ADAM}, &want, 3, false, 0.01, steps);
        for (int i = 0; i < MANY; i++)
            ck_assert_double_eq_tol(gd_item(gd_params_at(params, i)), want.w, 1e-9);
    }
    ck_assert_no_error(ctx);
    gd_optimizer_free(adam);
    gd_params_free(params);
}

LOOP_TEST(threads_change_nothing, 4 * OPTIMIZER_KINDS)
{
    enum { N = 100003 };
    static double values[2][N];
    gd_context *contexts[2] = {test_context(1), test_context(3)};
    gd_params *params[2];
    gd_optimizer *optimizer[2];
    for (int run = 0; run < 2; run++) {
        params[run] = gd_params_create(contexts[run], (gd_dtype)(_i % 4));
        gd_tensor *w = gd_params_add(params[run], "w", 1, (int64_t[]){N}, GD_DECAY);
        gd_params_finish(params[run]);
        gd_random_normal(w, 0, 1);
        optimizer[run] = optimizer_of_kind(params[run], _i / 4);
        for (int step = 0; step < 3; step++) {
            gd_backward_from(&w, 1, NULL);
            gd_tensor_copy(gd_grad(w), w);
            gd_params_scale_grads(params[run], 0.25);
            gd_clip_grad_norm(params[run], 1, NULL);
            gd_optimizer_step(optimizer[run], 0.1);
            gd_params_clear_grads(params[run]);
        }
        gd_tensor_read_f64(w, values[run], N);
        ck_assert_no_error(contexts[run]);
    }
    ck_assert_mem_eq(values[0], values[1], sizeof values[0]);
    ck_assert_same_states(optimizer[0], optimizer[1]);
    for (int run = 0; run < 2; run++) {
        gd_optimizer_free(optimizer[run]);
        gd_params_free(params[run]);
        gd_context_free(contexts[run]);
    }
}

/* An update between a forward and its backward would give gradients of another function. */
TEST(an_update_before_the_backward_is_noticed)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *table = gd_params_add(params, "w", 2, (int64_t[]){4, 4}, 0);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    gd_tensor *y = gd_swiglu(table, table); /* its backward reads its inputs */
    gd_backward_from(&table, 1, NULL);
    gd_optimizer_step(sgd, 0.1);
    ck_assert_int_eq(gd_backward_from(&y, 1, NULL), GD_ERROR_STATE);
    ck_assert_error(ctx, "overwritten since");
    gd_step_end(ctx);
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

CHECK_MAIN_WITHIN("optim", setup, teardown)
