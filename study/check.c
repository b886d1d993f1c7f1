/* check.c - gradcheck on planted bugs, and on formulas of the reader's, for the pages that break
 * and write backwards.
 */
#include <math.h>
#include <stdio.h>

#include "gradus/gradus.h"
#include "planted.h"
#include "print.h"

/* ---- Planted bugs ------------------------------------------------------------------------- */

static const planted_bug *const lists[] = {planted_lines, planted_spoilers};

static const planted_bug *bug_at(int index)
{
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const planted_bug *bug = lists[l]; bug->op; bug++)
            if (index-- == 0) return bug;
    return NULL;
}

/* Prints [{"op", "what"}]. */
EXPORT(study_bugs) void study_bugs(void)
{
    const planted_bug *bug;
    for (int i = 0; (bug = bug_at(i)); i++) {
        printf("%s{\"op\":", i ? "," : "[");
        print_text(bug->op);
        printf(",\"what\":");
        print_text(bug->what);
        putchar('}');
    }
    puts("]");
}

/* The gradients element by element: analytic and numeric, each checked alone. */
static void print_grids(gd_context *ctx, planted_op *p, const gd_case *check, uint64_t seed,
                        const gd_gradcheck_report *report)
{
    for (int k = 0; k < report->inputs; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        printf("%s{\"name\":", k ? "," : "");
        print_text(in->name);
        printf(",\"shape\":");
        print_shape(in->ndim, in->shape);
        printf(",\"analytic\":[");
        double numeric[256];
        const int64_t count = in->elements < 256 ? in->elements : 256;
        for (int64_t e = 0; e < count; e++) {
            gd_gradcheck_options one = {.seed = seed,
                                        .only_input = in->name,
                                        .only_element = e ? e : GD_ZERO,
                                        .cotangents = 1};
            gd_gradcheck_report r;
            double analytic = numeric[e] = NAN;
            if (!gd_gradcheck_case(ctx, &p->op, check, &one, &r)) {
                if (r.inputs) analytic = r.input[0].analytic, numeric[e] = r.input[0].numeric;
                gd_gradcheck_report_free(&r);
            }
            gd_error_clear(ctx);
            if (e) putchar(',');
            print_number(analytic);
        }
        printf("],\"numeric\":");
        print_numbers(numeric, count);
        putchar('}');
    }
}

extern gd_op written_op;

/* gradcheck on a bug. Prints its words first, then one line of JSON: the report, and the gradients
 * by element where `grids` is not 0. */
static void check_bug(const planted_bug *bug, int grids)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    planted_op p;
    if (!bug || (bug->own && gd_register_op(ctx, &written_op)) || !planted_make(&p, ctx, bug)) {
        gd_context_free(ctx);
        return;
    }
    const gd_case *check = planted_case(bug, p.real);
    for (int n = 0, seeds = bug->seeds ? bug->seeds : 1; n < seeds; n++) {
        gd_gradcheck_options options = {.seed = 11 + (uint64_t)n};
        gd_gradcheck_report report;
        if (gd_gradcheck_case(ctx, &p.op, check, &options, &report)) break;
        if (report.verdict == GD_VERDICT_PASS && n + 1 < seeds) {
            gd_gradcheck_report_free(&report);
            continue;
        }
        gd_gradcheck_print(&report, stdout, true);
        printf("\n{\"report\":");
        gd_gradcheck_print_json(&report, stdout);
        printf(",\"grids\":[");
        if (grids) print_grids(ctx, &p, check, options.seed, &report);
        puts("]}");
        gd_gradcheck_report_free(&report);
        break;
    }
    gd_context_free(ctx);
}

EXPORT(study_break) void study_break(int index, int grids)
{
    check_bug(bug_at(index), grids);
}

/* ---- A formula of the reader's --------------------------------------------------------------- */

/* The page computes: it reads and writes what `writing` has, through study_part(). */
__attribute__((import_module("page"), import_name("backward"))) void page_backward(void);

static const planted_math *writing;

static void reader_formula(planted_math *m)
{
    writing = m;
    page_backward();
    writing = NULL;
}

static const gd_tensor *written_tensor(int kind, int index)
{
    return kind == 'x' || kind == 'g' ? writing->call->input[index] : writing->call->output[index];
}

/* The values of input ('x'), output ('y'), its cotangent ('d') or gradient ('g') `index`, in
 * float64; only while page_backward() runs. */
EXPORT(study_part) double *study_part(int kind, int index)
{
    double *const *lists[] = {writing->x, writing->y, writing->dy, writing->g};
    return lists[kind == 'x' ? 0 : kind == 'y' ? 1 : kind == 'd' ? 2 : 3][index];
}

/* Its number of axes, and the size of one. */
EXPORT(study_part_axes) int study_part_axes(int kind, int index)
{
    return gd_tensor_ndim(written_tensor(kind, index));
}

EXPORT(study_part_size) int study_part_size(int kind, int index, int axis)
{
    return (int)gd_tensor_dim(written_tensor(kind, index), axis);
}

/* A loss that the page computes, too: its signature is study_text(), "w[] x[N] -> loss[]". */
__attribute__((import_module("page"), import_name("forward"))) void page_forward(void);

static gd_status written_forward(const gd_call *call)
{
    planted_math m = {.call = call, .y = {gd_tensor_data(call->output[0])}};
    for (int i = 0; i < call->inputs; i++) m.x[i] = gd_tensor_data(call->input[i]);
    writing = &m;
    page_forward();
    writing = NULL;
    return GD_OK;
}

static gd_case written_case = {.name = "written"};
gd_op written_op = {.name = "written",
                    .formula = "of the page",
                    .forward = {[GD_CPU] = written_forward},
                    .backward = {[GD_CPU] = planted_true},
                    .cases = &written_case,
                    .case_count = 1};

/* Input `i` has no axis, or one of that size. */
EXPORT(study_written_input) void study_written_input(int i, int fixed, int axes, int size)
{
    written_case.input[i] = (gd_case_input){.fixed = fixed, .ndim = axes, .shape = {size}};
}

/* gradcheck on the page's formula for that loss. */
EXPORT(study_written) void study_written(int inputs)
{
    written_case.inputs = inputs;
    written_op.signature = study_text();
    const planted_bug bug = {.op = "written", .own = &written_case, .formula = reader_formula};
    check_bug(&bug, 0);
}

/* gradcheck on the page's formula, in case `index` of the op named by study_text(). */
EXPORT(study_formula) void study_formula(int index)
{
    const gd_op *op = gd_find_op(NULL, study_text());
    if (!op || index < 0 || index >= op->case_count) return;
    const planted_bug bug = {
        .op = op->name, .check = op->cases[index].name, .formula = reader_formula};
    check_bug(&bug, 0);
}
