/* test_planted_bugs.c - gradcheck finds every planted bug, of each op that has a backward, and
 * nothing where none is planted. */
#include "axis/axis.h"
#include "check_main.h"
#include "planted.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const planted_bug *const lists[] = {planted_lines, planted_spoilers};

/* The number of no row: the lines are as they should be. */
enum { NOTHING = -1 };

/* Whether the report says the words, in a finding or on behaviour. Copies all that it says. */
static bool says(const gd_gradcheck_report *report, const char *words, char *said, size_t size)
{
    bool found = false;
    said[0] = 0;
    for (int k = 0; k < report->inputs; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        const char *texts[] = {in->finding, in->behaviour};
        for (int i = 0; i < 2; i++) {
            if (!texts[i][0]) continue;
            found = found || (words && strstr(texts[i], words));
            size_t used = strlen(said);
            snprintf(said + used, size - used, "%s%s: %s", used ? "\n        " : "", in->name,
                     texts[i]);
        }
    }
    return found;
}

typedef struct outcome {
    gd_verdict verdict;
    bool named;    /* the words that were expected are there */
    bool misnamed; /* there are words, but not those */
    char said[1600];
} outcome;

static outcome run_bug(const planted_bug *bug)
{
    outcome result = {.verdict = GD_VERDICT_UNSUPPORTED};
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    planted_op p;
    ck_assert_no_error(ctx);
    ck_assert_msg(planted_make(&p, ctx, bug), "there is no op %s", bug->op);
    const gd_case *c = planted_case(bug, p.real);
    ck_assert_msg(c != NULL, "%s has no case %s", bug->op, bug->check);
    for (int seed = 0; seed < (bug->seeds ? bug->seeds : 1); seed++) {
        gd_gradcheck_options options = {.seed = 11 + (uint64_t)seed};
        gd_gradcheck_report report;
        gd_gradcheck_case(ctx, &p.op, c, &options, &report);
        ck_assert_no_error(ctx);
        result.verdict = report.verdict;
        result.named = says(&report, bug->finding, result.said, sizeof result.said);
        result.misnamed = !result.named && result.said[0];
        if (bug->seeds && report.verdict == GD_VERDICT_PASS && seed + 1 < bug->seeds) {
            gd_gradcheck_report_free(&report);
            continue;
        }
        if (bug->line == NOTHING && report.verdict != GD_VERDICT_PASS)
            gd_gradcheck_print(&report, stdout, true);
        gd_gradcheck_report_free(&report);
        break;
    }
    gd_context_free(ctx);
    return result;
}

TEST(every_planted_bug_is_caught)
{
    int planted = 0, caught = 0, to_name = 0, named = 0, misnamed = 0, ops = 0;
    const char *seen[128];
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (const planted_bug *bug = lists[l]; bug->op; bug++) {
            outcome o = run_bug(bug);
            ck_assert_msg(!strstr(o.said, "instead of nan"), "%s: %s", bug->op, o.said);
            bool fails = o.verdict == GD_VERDICT_FAIL;
            planted++;
            caught += fails;
            to_name += bug->finding != NULL;
            named += o.named;
            misnamed += o.misnamed;
            bool known = false;
            for (int i = 0; i < ops; i++) known = known || !strcmp(seen[i], bug->op);
            if (!known) seen[ops++] = bug->op;
            printf("%-13s %-50s %-7s %s\n", bug->op, bug->what,
                   fails ? "caught" : gd_verdict_name(o.verdict), o.said);
            if (bug->finding && !o.named) printf("    expected: %s\n", bug->finding);
        }
    }
    printf("planted bugs: %d of %d caught, in %d ops; %d named, %d misnamed\n", caught, planted,
           ops, named, misnamed);
    fflush(stdout);
    ck_assert_int_eq(caught, planted);
    ck_assert_int_ge(named, 130);
    ck_assert_int_eq(misnamed, 0);
    /* A cause is told from numbers that rounding moves: on another processor one may go unnamed. */
    ck_assert_int_ge(20 * named, 19 * to_name);
    for (int i = 0; gd_op_at(NULL, i); i++) {
        const gd_op *op = gd_op_at(NULL, i);
        bool known = !gd_op_has_backward(op, GD_CPU);
        for (int k = 0; k < ops; k++) known = known || !strcmp(seen[k], op->name);
        ck_assert_msg(known, "%s has a backward, but no planted bug", op->name);
    }
}

/* The dy of other elements has the right factor, 1: that is no cause, and the search goes on. */
TEST(a_factor_of_one_is_no_finding)
{
    for (const planted_bug *bug = planted_lines; bug->op; bug++) {
        if (strcmp(bug->what, "without the element itself")) continue; /* cumsum */
        const outcome o = run_bug(bug);
        ck_assert_msg(o.named, "it says %s, wanted %s", o.said, bug->finding);
        return;
    }
    ck_abort_msg("the bug is not planted");
}

/* By the kernels that faults are planted into, on the same cases. */
TEST(without_a_fault_the_same_lines_pass)
{
    for (const planted_bug *bug = planted_lines; bug->op; bug++) {
        planted_bug none = *bug;
        none.line = NOTHING;
        const outcome o = run_bug(&none);
        ck_assert_msg(o.verdict == GD_VERDICT_PASS && !o.said[0], "%s: %s %s", bug->op,
                      gd_verdict_name(o.verdict), o.said);
    }
}

/* ---- What is nearly so is not so ---------------------------------------------------------- */

/* Values that look random, between -1 and 1. */
static double noise(int64_t i)
{
    return sin(78.233 * (double)(i + 1));
}

EACH(times_factor, was[i] * s->factor)
EACH(times_row_nearly, was[i] * (1 + (double)(i / s->columns) + s->factor * noise(i)))
EACH(plus_nearly, was[i] + s->factor * (1 + 0.05 * noise(i)))
EACH(further_nearly, i ? was[i - 1] : was[s->n - 1] * (1 + s->factor))
EACH(anything, was[i] * (1.5 + noise(i)))

/* One element of each row is off, and in the first `variant` rows the next one by the opposite. */
static void one_of_each_row(const planted_gradient *s)
{
    for (int64_t row = 0; row < s->n / s->columns; row++) {
        s->g[row * s->columns + 1] += s->factor;
        if (row < s->p->bug->variant) s->g[row * s->columns + 2] -= s->factor;
    }
}

/* cumsum: what comes from the dy of later elements has a factor. Its column for the last dy is the
 * longest, so the factor is known most accurately there. */
EACH(later_times_factor, was[i] - (i + 1 < s->n ? (1 - s->factor) * was[i + 1] : 0))

static const gd_axis_args along = {.axis = 0};
static const gd_case line = {"line", &along, GD_INPUTS({GD_DIMS(64)})};
static const gd_case three_rows = {"three_rows", NULL, GD_INPUTS({GD_DIMS(3, 5)})};
static const gd_case two_rows = {"two_rows", NULL, GD_INPUTS({GD_DIMS(2, 5)})};

static const struct {
    planted_bug bug;
    const char *never; /* words that would be false; NULL: any are */
} nearly[] = {
    {{"softmax", "rows5_cols17", NULL, "factor 0.70001", .spoil = times_factor, .factor = 0.70001},
     "7/10"},
    {{"neg", "odd", NULL, "factor -1.0001", .spoil = times_factor, .factor = -1.0001}, "the sign"},
    {{"layer_norm", "rows4_cols64", NULL, "factor 0.015627", .spoil = times_factor,
      .factor = 0.015627},
     "the size of axis"},
    {{"linear", "rows4_5_to_7", NULL, "factor 26.4637", .spoil = times_factor, .factor = 26.4637},
     "factor 26.5"},
    {{"rms_norm", "rows4_cols64", NULL, NULL, .spoil = times_row_nearly, .factor = 1e-3}, NULL},
    {{"mul", "same", NULL, NULL, .spoil = times_row_nearly, .factor = 1e-4}, NULL},
    {{"attention", NULL, NULL, NULL, .spoil = plus_nearly, .factor = 1e-5}, "a constant"},
    {{"gelu", "odd", NULL, NULL, .spoil = further_nearly, .factor = 1e-3}, "places: "},
    {{"tanh", "odd", NULL, NULL, .spoil = anything}, NULL},
    {{"softmax", "rows5_cols17", NULL, NULL, .spoil = anything}, "factor"},
    {{"linear", "rows4_5_to_7", NULL, NULL, .spoil = anything, .input = 1}, NULL},
    {{"cumsum", NULL, NULL, "the dy of other elements has an extra factor 0.7000006", .own = &line,
      .spoil = later_times_factor, .factor = 0.7000006},
     "7/10"},
    {{"neg", NULL, NULL, "one element of each row is off, each by 0.5", .own = &three_rows,
      .spoil = one_of_each_row, .factor = 0.5},
     "opposite"},
    {{"neg", NULL, NULL, "and the next by the opposite", .own = &three_rows,
      .spoil = one_of_each_row, .factor = 0.5, .variant = 3},
     "column"},
    {{"neg", NULL, NULL, NULL, .own = &three_rows, .spoil = one_of_each_row, .factor = 0.5,
      .variant = 2},
     "one element"},
    {{"neg", NULL, NULL, "all in column 1", .own = &two_rows, .spoil = one_of_each_row,
      .factor = 0.5},
     "one element"},
};

LOOP_TEST(near_misses_give_no_finding, sizeof nearly / sizeof *nearly)
{
    const planted_bug *bug = &nearly[_i].bug;
    const outcome o = run_bug(bug);
    ck_assert_int_eq(o.verdict, GD_VERDICT_FAIL);
    ck_assert_msg(!bug->finding || o.named, "%s: %s instead of %s", bug->op, o.said, bug->finding);
    ck_assert_msg(nearly[_i].never ? !strstr(o.said, nearly[_i].never) : !o.said[0], "%s: %s",
                  bug->op, o.said);
}

/* ---- Errors near the tolerance ------------------------------------------------------------ */

EACH(times_each_nearly, was[i] * (1 + s->factor * noise(i)))

static const char *const many_ops[] = {
    "softmax",   "neg",        "layer_norm", "linear",        "rms_norm", "mul",
    "attention", "gelu",       "tanh",       "cumsum",        "matmul",   "conv2d",
    "silu",      "swiglu",     "add",        "cross_entropy", "exp",      "sigmoid",
    "div",       "batch_norm", "group_norm", "rope",          "lstm",     "log_softmax"};
static const double near_one[] = {1.0000015, 1.000003, 0.999997, 1.00001, 1.0001, 0.9999, 1.001};

/* A factor of all elements is named, though only some of them are off by more than the
 * tolerance. */
LOOP_TEST(a_factor_near_one_is_named, test_rounds(sizeof near_one / sizeof *near_one))
{
    for (size_t i = 0; i < sizeof many_ops / sizeof *many_ops; i++) {
        const planted_bug bug = {
            many_ops[i],           NULL, "factor", "a constant factor ", .spoil = times_factor,
            .factor = near_one[_i]};
        const outcome o = run_bug(&bug);
        ck_assert_msg(o.verdict == GD_VERDICT_FAIL && o.named && !strstr(o.said, "element"),
                      "%s times %.7g: %s '%s'", bug.op, bug.factor, gd_verdict_name(o.verdict),
                      o.said);
    }
}

/* Where all elements are off, most within the tolerance, it is not a single one, nor one factor. */
LOOP_TEST(errors_of_all_elements_are_not_those_of_one,
          test_rounds(sizeof near_one / sizeof *near_one))
{
    for (size_t i = 0; i < sizeof many_ops / sizeof *many_ops; i++) {
        const planted_bug bug = {many_ops[i],
                                 NULL,
                                 "factors",
                                 NULL,
                                 .spoil = times_each_nearly,
                                 .factor = near_one[_i] - 1};
        const outcome o = run_bug(&bug);
        ck_assert_msg(!strstr(o.said, "single") && !strstr(o.said, "constant"),
                      "%s times 1 + %.2g: %s", bug.op, bug.factor, o.said);
    }
}

CHECK_MAIN("planted bugs")
