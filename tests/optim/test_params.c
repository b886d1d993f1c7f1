/* test_params.c - a group of parameters is one block, decaying ones first; cleared gradients count
 * as zero; clipping by the norm, against loops; what is refused. */
#include "each_context.h"
#include "param_group.h"

/* ---- Groups ------------------------------------------------------------------------------- */

TEST(one_block_decayed_first)
{
    gd_params *params = group(ctx, GD_FLOAT32);
    ck_assert_no_error(ctx);
    ck_assert_int_eq(gd_params_count(params), PARAMETERS);
    ck_assert_int_eq(gd_params_elements(params), TOTAL);
    /* 21, 40 | 7, 1, 2 elements, each rounded up to 16 */
    static const uintptr_t places[PARAMETERS] = {0, 80, 96, 32, 112};
    uintptr_t block = (uintptr_t)gd_tensor_data(gd_params_find(params, "w1"));
    for (int i = 0; i < PARAMETERS; i++) {
        gd_tensor *t = gd_params_at(params, i);
        ck_assert_str_eq(gd_tensor_name(t), parameter[i].name);
        ck_assert_ptr_eq(gd_params_find(params, parameter[i].name), t);
        ck_assert_uint_eq(gd_params_flags(params, i), parameter[i].flags);
        ck_assert_uint_eq((uintptr_t)gd_tensor_data(t), block + 4 * places[i]);
        ck_assert_uint_eq((uintptr_t)gd_tensor_data(t) % 64, 0);
        ck_assert(gd_tensor_requires_grad(t));
        ck_assert_ptr_null(gd_grad(t));
    }
    ck_assert_ptr_null(gd_params_find(params, "w3"));
    ck_assert_ptr_null(gd_params_at(params, PARAMETERS));
    ck_assert_ptr_null(gd_params_at(params, -1));
    double values[TOTAL];
    read_all(params, values);
    for (int i = 0; i < TOTAL; i++) ck_assert(values[i] == 0);

    gd_memory_stats memory = gd_memory(ctx);
    ck_assert_uint_eq(memory.current[GD_MEMORY_PARAMETERS], 128 * 4);
    ck_assert_uint_eq(memory.current[GD_MEMORY_GRADIENTS], 128 * 4);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    ck_assert_uint_eq(gd_memory(ctx).current[GD_MEMORY_OPTIMIZER], 2 * 128 * 4);
    ck_assert_str_eq(gd_tensor_name(gd_optimizer_state(adamw, 1)), "v");
    ck_assert_ptr_null(gd_optimizer_state(adamw, 2));
    gd_optimizer_free(adamw);
    gd_params_free(params);
    ck_assert_uint_eq(gd_memory(ctx).current_total, 0);
}

/* A gradient that was cleared counts as zero, even where a new one never comes. */
TEST(cleared_gradients_do_not_come_back)
{
    gd_params *params = group(ctx, GD_FLOAT64);
    double grads[TOTAL], got[TOTAL], norm;
    some_numbers(grads, TOTAL, 1);
    give_all(params, grads);
    give_all(params, grads); /* accumulates */
    read_grads(params, got);
    for (int i = 0; i < TOTAL; i++) ck_assert(got[i] == 2 * grads[i]);

    gd_params_clear_grads(params);
    ck_assert_ptr_null(gd_grad(gd_params_at(params, 0)));
    give_grad(gd_params_find(params, "b2"), (double[]){3, 4});
    gd_clip_grad_norm(params, 0, &norm);
    ck_assert(norm == 5);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    gd_optimizer_step(sgd, 0.5);
    read_all(params, got);
    for (int i = 0; i < TOTAL - 2; i++) ck_assert(got[i] == 0);
    ck_assert(got[TOTAL - 2] == -1.5 && got[TOTAL - 1] == -2);
    ck_assert_no_error(ctx);
    gd_optimizer_free(sgd);
    gd_params_free(params);
}

TEST(a_group_without_elements)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "nothing", 2, (int64_t[]){0, 5}, GD_DECAY);
    gd_params_finish(params);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    double norm = 1;
    gd_clip_grad_norm(params, 1, &norm);
    gd_optimizer_step(adamw, 1);
    ck_assert_no_error(ctx);
    ck_assert(norm == 0);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

/* ---- Clipping ----------------------------------------------------------------------------- */

TEST(clipping)
{
    for (int dtype = GD_FLOAT32; dtype <= GD_FLOAT64; dtype++) {
        gd_context *ctx = test_context(1);
        gd_params *params = group(ctx, (gd_dtype)dtype);
        double tolerance = dtype == GD_FLOAT32 ? 1e-6 : 1e-15;
        double grads[TOTAL], got[TOTAL], norm = 0, wanted = 0;
        some_numbers(grads, TOTAL, 2);
        for (int i = 0; i < TOTAL; i++) wanted += grads[i] * grads[i];
        wanted = sqrt(wanted);
        give_all(params, grads);

        gd_clip_grad_norm(params, wanted * 1.01, &norm); /* short enough: left alone */
        ck_assert_double_eq_tol(norm, wanted, 1e-14 * wanted);
        read_grads(params, got);
        ck_assert_mem_eq(got, grads, sizeof got);

        gd_clip_grad_norm(params, 0.5, NULL);
        read_grads(params, got);
        for (int i = 0; i < TOTAL; i++) {
            ck_assert_double_eq_tol(got[i], grads[i] * 0.5 / (wanted + 1e-6), tolerance);
        }

        grads[5] = INFINITY; /* nothing finite to scale by: left alone */
        gd_params_clear_grads(params);
        give_all(params, grads);
        gd_clip_grad_norm(params, 1, &norm);
        ck_assert(isinf(norm));
        read_grads(params, got);
        ck_assert_mem_eq(got, grads, sizeof got);
        gd_params_free(params);
        gd_context_free(ctx);
    }
}

/* ---- Bad calls ---------------------------------------------------------------------------- */

TEST(bad_groups_are_refused)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", 1, (int64_t[]){3}, 0);
    gd_tensor_set_name(w, "optimizer.m.w");
    ck_assert_error(ctx,
                    "set_name: [3] \"w\" is of a group or another tensor, wanted one of yours");
    ck_assert_str_eq(gd_tensor_name(w), "w");
    char longer[129];
    snprintf(longer, sizeof longer, "%0128d", 0);
    const char *const names[][2] = {
        {"", "params_add: name is \"\", wanted 1 to 127 bytes"},
        {longer, "0\", wanted 1 to 127 bytes"},
        {"w", "params_add: name is \"w\", wanted one that the group does not have"},
        {"w\xc3", ", wanted UTF-8"},
        {"optimizer.m.w", "\"optimizer.m.w\", wanted one that does not begin with \"optimizer.\""},
        {"__metadata__", "name is \"__metadata__\", wanted one that safetensors files do not"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        REFUSED(gd_params_add(params, names[i][0], 0, NULL, 0), names[i][1]);
    REFUSED(gd_params_addf(params, 0, 0, NULL, (gd_init){0}, "optimizer.%s.w", "m"), names[4][1]);
    gd_params_clear_grads(params);
    ck_assert_error(ctx, "params_clear_grads: the parameters have no memory yet");
    double norm = 1;
    gd_clip_grad_norm(params, 1, &norm);
    ck_assert(isnan(norm));
    ck_assert_error(ctx, "clip_grad_norm: the parameters have no memory yet");
    ck_assert_int_eq(gd_params_finish(params), GD_OK);
    gd_clip_grad_norm(params, NAN, NULL);
    ck_assert_error(ctx, "clip_grad_norm: max_norm is nan");
    gd_params_free(params);

    params = gd_params_create(ctx, GD_FLOAT32);
    gd_params_add(params, "a", 1, (int64_t[]){INT64_C(1) << 60}, 0);
    gd_params_add(params, "b", 1, (int64_t[]){INT64_C(1) << 60}, 0);
    gd_params_finish(params);
    ck_assert_error(ctx, "params_finish: the parameters have more than");
    gd_params_free(params);
    gd_params_free(NULL);
    ck_assert_int_eq(gd_params_count(NULL), 0);
    ck_assert_int_eq(gd_params_finish(NULL), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_clip_grad_norm(NULL, 1, NULL), GD_ERROR_ARGUMENT);
}

CHECK_MAIN_WITHIN("params", setup, teardown)
