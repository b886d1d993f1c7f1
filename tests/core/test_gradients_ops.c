/* test_gradients_ops.c - every op's derivative and definition (gd_op in autograd.h), by
 * gradcheck of higher orders, for every case of its record. `gradus-gradcheck --order 3` looks
 * at more elements.
 *
 * GRADUS_TEST_OPS=softmax,max   checks these alone. */
#include "check_main.h"

#include <stdio.h>
#include <string.h>

#include "gradus/gradus.h"

static bool chosen(const char *name)
{
    const char *list = getenv("GRADUS_TEST_OPS");
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    return !list;
}

static void check_all(gd_dtype dtype, int order, int64_t elements, uint64_t seed)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    if (test_brief() && elements > 8) elements = 8;
    const gd_gradcheck_options options = {
        .dtype = &dtype, .order = order, .max_elements = elements, .directions = 1, .seed = seed};
    const gd_op *op;
    int checked = 0, wrong = 0;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) {
        for (int k = 0; k < op->case_count && chosen(op->name); k++, checked++) {
            gd_gradcheck_report report;
            ck_assert_int_eq(gd_gradcheck_case(ctx, op, &op->cases[k], &options, &report), GD_OK);
            const bool fine =
                report.verdict == GD_VERDICT_PASS || report.verdict == GD_VERDICT_EMPTY;
            if (!fine) gd_gradcheck_print(&report, stdout, true);
            wrong += !fine;
            gd_gradcheck_report_free(&report);
        }
    }
    printf("order %d: %d cases, %d wrong\n", order, checked, wrong);
    fflush(stdout);
    ck_assert_int_gt(checked, 0);
    ck_assert_int_eq(wrong, 0);
    gd_context_free(ctx);
}

TEST(second_order)
{
    check_all(GD_FLOAT64, 2, 64, 7 + test_seed());
}

TEST(third_order)
{
    check_all(GD_FLOAT64, 3, 8, 7 + test_seed());
}

TEST(second_order_in_float32)
{
    /* In these attention's sums round far more than their results, with AVX2 or with AVX-512. */
    check_all(GD_FLOAT32, 2, 8, 7 + test_seed());
    check_all(GD_FLOAT32, 2, 8, 18 + test_seed());
}

CHECK_MAIN("gradients_ops")
