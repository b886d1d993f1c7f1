/* test_guard.c - gd_guard: memory that is overrun is named, and what does not overrun it computes
 * what it computes without. test_planted_sanitizers.c has what AddressSanitizer makes of it. */
#include "op_test.h"

#ifdef __SANITIZE_ADDRESS__
enum { ASAN = true };
#else
enum { ASAN = false };
#endif

static gd_context *guarded(gd_guard guard)
{
    gd_context *with = gd_context_create(&(gd_context_options){.guard = guard, .threads = 2});
    ck_assert_no_error(with);
    return with;
}

static gd_tensor *three(gd_context *with)
{
    return gd_tensor_create(with, GD_FLOAT32, GD_SHAPE(3));
}

static float *data_of(gd_tensor *t)
{
    return gd_tensor_data(t);
}

/* ---- Writes, which AddressSanitizer would end ------------------------------------------------ */

LOOP_TEST(a_write_behind_the_end_is_an_error_when_it_is_freed, !ASAN ? 1 : 0)
{
    gd_context *with = guarded(GD_GUARD_MARGINS);
    gd_tensor *t = three(with);
    data_of(t)[3] = 0;
    gd_tensor_free(t);
    ck_assert_str_eq(gd_error(with),
                     "tensor_create: its memory of 12 bytes was written to behind its end");
    ck_assert_int_eq(gd_error_status(with), GD_ERROR_STATE);
    gd_error_clear(with);
    gd_tensor_free(three(with));
    ck_assert_no_error(with);
    gd_context_free(with);
}

LOOP_TEST(a_write_before_the_beginning_is_an_error_when_the_context_waits, !ASAN ? 1 : 0)
{
    gd_context *with = guarded(GD_GUARD_MARGINS);
    gd_tensor *t = three(with);
    ((char *)gd_tensor_data(t))[-512] = 0;
    ck_assert_int_eq(gd_synchronize(with), GD_ERROR_STATE);
    ck_assert_str_eq(gd_error(with),
                     "tensor_create: its memory of 12 bytes was written to before its beginning");
    gd_error_clear(with);
    ck_assert_int_eq(gd_synchronize(with), GD_OK); /* the margin is whole again */
    gd_tensor_free(t);
    ck_assert_no_error(with);
    gd_context_free(with);
}

/* An op that writes `too_many` numbers past its output, and past its workspace. */
static int too_many_outputs, too_many_words;

static gd_status overrun_forward(const gd_call *call)
{
    float *y = gd_tensor_data(call->output[0]), *scratch = gd_call_scratch(call, 20);
    for (int i = 0; i < 3 + too_many_outputs; i++) y[i] = 1;
    for (int i = 0; i < 5 + too_many_words; i++) scratch[i] = 1;
    return GD_OK;
}

static const gd_op overrun = {
    .name = "overrun", .signature = "x[...] -> y[...]", .forward = {[GD_CPU] = overrun_forward}};

TEST(a_kernel_that_overruns_is_named)
{
    static const char *const errors[] = {
        NULL,
        "overrun: its memory of 20 bytes was written to behind its end",
        "overrun: its memory of 12 bytes was written to behind its end",
    };
    for (int k = 0; k < (ASAN ? 1 : 3); k++) {
        gd_context *with = guarded(GD_GUARD_MARGINS);
        gd_tensor *x = three(with);
        too_many_words = k == 1, too_many_outputs = k == 2;
        gd_apply(&overrun, &x, 1, NULL);
        gd_step_end(with);
        ck_assert_msg(errors[k] ? gd_error(with) && !strcmp(gd_error(with), errors[k])
                                : !gd_error(with),
                      "%d: %s", k, gd_error(with) ? gd_error(with) : "no error");
        gd_context_free(with);
    }
}

LOOP_TEST(a_read_past_the_end_is_nan, !ASAN ? 1 : 0)
{
    gd_context *with = guarded(GD_GUARD_MARGINS);
    gd_tensor *t = three(with);
    for (int i = 3; i < 3 + 128; i++) ck_assert(isnan(data_of(t)[i]));
    for (int i = -128; i < 0; i++) ck_assert(isnan(data_of(t)[i]));
    gd_context_free(with);
}

/* ---- What overruns nothing ------------------------------------------------------------------ */

static gd_status learn(void *user)
{
    gd_tensor **of = user;
    gd_tensor *h = gd_rms_norm(of[0], of[1], 1e-5);
    return gd_backward(gd_sum_all(gd_softmax(gd_matmul(h, gd_transpose(h, 0, 1)), -1)));
}

/* Steps in a graph and outside, with the gradients of the last. */
static double *gradients_with(gd_guard guard, int64_t *count)
{
    gd_context *with = guarded(guard);
    uint64_t numbers = 5;
    gd_tensor *of[2] = {random_leaf(with, GD_FLOAT32, 2, (int64_t[]){7, 33}, -1, 1, &numbers),
                        random_leaf(with, GD_FLOAT32, 1, (int64_t[]){33}, -1, 1, &numbers)};
    gd_graph *graph = gd_graph_create(with, NULL);
    for (int i = 0; i < 3; i++) gd_graph_run(graph, learn, of);
    learn(of);
    gd_step_end(with);
    gd_synchronize(with);
    ck_assert_no_error(with);
    double *all = zeros(8 * 33);
    gd_tensor_read_f64(gd_grad(of[0]), all, 7 * 33);
    gd_tensor_read_f64(gd_grad(of[1]), all + 7 * 33, 33);
    *count = 8 * 33;
    gd_graph_free(graph);
    gd_tensor_free(of[0]), gd_tensor_free(of[1]);
    gd_memory_trim(with);
    ck_assert_no_error(with);
    ck_assert_uint_eq(gd_memory(with).held, 0);
    gd_context_free(with);
    return all;
}

TEST(the_results_are_the_same)
{
    int64_t count;
    double *want = gradients_with(GD_GUARD_NONE, &count);
    for (int guard = GD_GUARD_MARGINS; guard <= GD_GUARD_EXACT; guard++) {
        double *got = gradients_with((gd_guard)guard, &count);
        ck_assert_mem_eq(got, want, (size_t)count * sizeof *got);
        free(got);
    }
    free(want);
}

/* Memory goes back to the system at once. */
TEST(nothing_is_kept_for_reuse)
{
    for (int guard = GD_GUARD_MARGINS; guard <= GD_GUARD_EXACT; guard++) {
        gd_context *with = guarded((gd_guard)guard);
        gd_tensor *t = three(with);
        ck_assert_uint_eq((uintptr_t)gd_tensor_data(t) % 64, 0);
        ck_assert_uint_eq(gd_memory(with).held, guard == GD_GUARD_MARGINS ? 12 + 1024 : 12);
        ck_assert_uint_eq(gd_memory(with).current_total, 12);
        gd_tensor_free(t);
        ck_assert_uint_eq(gd_memory(with).held, 0);
        gd_context_free(with);
    }
}

TEST(another_number_is_refused)
{
    gd_context *with = gd_context_create(&(gd_context_options){.guard = (gd_guard)3});
    ck_assert_error(with, "context: guard is 3, wanted GD_GUARD_NONE, GD_GUARD_MARGINS or "
                          "GD_GUARD_EXACT");
    gd_tensor_free(three(with)); /* as without */
    ck_assert_no_error(with);
    gd_context_free(with);
}

CHECK_MAIN("guard")
