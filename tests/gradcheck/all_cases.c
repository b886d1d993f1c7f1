/* all_cases.c - every case of every op of the library through gradcheck. */
#include "all_cases.h"

#include "check_main.h"

#include <stdio.h>
#include <string.h>

enum { INPUTS = 16 };

typedef struct idleness {
    bool compared[INPUTS], moved[INPUTS];
} idleness;

static void note(all_cases *all, const gd_gradcheck_report *report, const gd_case *c,
                 idleness *idle)
{
    bool fine = report->verdict == GD_VERDICT_PASS || report->verdict == GD_VERDICT_EMPTY;
    all->reports++;
    all->troubled += !fine;
    if (!fine) gd_gradcheck_print(report, stdout, true);
    for (int k = 0; k < report->inputs; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        if (in->index < INPUTS) {
            idle->compared[in->index] |= in->compared > 0;
            idle->moved[in->index] |= in->largest_gradient > 0;
        }
        if (c->kinks || !(in->largest_error > all->largest_smooth)) continue;
        all->largest_smooth = in->largest_error;
        snprintf(all->where, sizeof all->where, "%s, case %s, seed %d, %s", report->op,
                 report->name, (int)report->seed, in->name);
    }
}

static void check_op(all_cases *all, gd_context *ctx, const gd_op *op, gd_gradcheck_options options,
                     int seeds)
{
    idleness idle = {{false}, {false}};
    ck_assert_msg(op->case_count > 0, "%s has no cases", op->name);
    for (int i = 0; i < op->case_count; i++) {
        for (int seed = 0; seed < seeds; seed++) {
            gd_gradcheck_options now = options;
            gd_gradcheck_report report;
            now.seed += (uint64_t)seed;
            gd_gradcheck_case(ctx, op, &op->cases[i], &now, &report);
            ck_assert_no_error(ctx);
            note(all, &report, &op->cases[i], &idle);
            gd_gradcheck_report_free(&report);
        }
    }
    for (int i = 0; i < INPUTS; i++) {
        if (op->zero_gradient || !idle.compared[i] || idle.moved[i]) continue;
        printf("%s: the gradient of input %d is zero in every case\n", op->name, i);
        all->idle = true;
    }
}

all_cases all_cases_check(gd_dtype dtype, uint64_t first_seed, int seeds, int threads)
{
    all_cases all = {0};
    gd_context_options options = {.poison = true, .threads = threads};
    gd_context *ctx = gd_context_create(&options);
    ck_assert_no_error(ctx);
    gd_gradcheck_options check = {.dtype = &dtype, .seed = first_seed + test_seed()};
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(ctx, i)); i++) check_op(&all, ctx, op, check, seeds);
    gd_context_free(ctx);
    printf("%s: %d reports, %d troubled; largest error of smooth cases %.2e: %s\n",
           gd_dtype_name(dtype), (int)all.reports, (int)all.troubled, all.largest_smooth,
           all.where);
    fflush(stdout);
    return all;
}
