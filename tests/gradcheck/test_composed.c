/* test_composed.c - gradcheck of the functions that are a few ops, each as a function of
 * a user's. */
#include "composed.h"

LOOP_TEST(its_gradients_are_right, COMPOSED_ROWS)
{
    const composed *c = &composed_table[_i];
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    gd_gradcheck_report report;
    gd_tensor *in[COMPOSED_INPUTS];
    for (int k = 0; k < c->count; k++) in[k] = composed_input(ctx, c, k, GD_FLOAT64, GD_FLOAT64);
    gd_tensor *y = c->function(NULL, in, c->count);
    ck_assert_no_error(ctx);
    const bool flat = gd_tensor_dtype(y) == GD_INT32; /* argmin */
    ck_assert_int_eq(gd_tensor_requires_grad(y), !flat);
    gd_step_end(ctx);
    if (!flat) {
        gd_gradcheck_function(ctx, c->name, c->function, NULL, in, c->count, NULL, &report);
        ck_assert_no_error(ctx);
        if (report.verdict != GD_VERDICT_PASS) gd_gradcheck_print(&report, stdout, true);
        ck_assert_msg(report.verdict == GD_VERDICT_PASS, "%s: %s", c->name,
                      gd_verdict_name(report.verdict));
        gd_gradcheck_report_free(&report);
    }
    for (int k = 0; k < c->count; k++) gd_tensor_free(in[k]);
    ck_assert_no_error(ctx);
    gd_context_free(ctx);
}

CHECK_MAIN("functions of a few ops")
