/* check.c - gradcheck on planted bugs, and on formulas of the reader's, for the pages that break and
 * write backwards.
 */
#include <math.h>
#include <stdio.h>

#include "gradus/gradus.h"
#include "planted.h"
#include "print.h"

/* ---- Planted bugs ------------------------------------------------------------------------- */

static const planted_bug *const lists[] = {planted_lines, planted_spoilers};

/* RMSNorm's backward by its formula, with the parts of `variant` changed. */
enum { WITHOUT_MEAN_TERM = 1, OTHER_SIGN = 2, WITHOUT_WEIGHT = 4, STALE_RSTD = 8 };

static void switched_norm(planted_math *m)
{
    static double rstd_before[16];
    const int64_t M = planted_rows(m->call->input[0]), N = planted_columns(m->call->input[0]);
    for (int64_t i = 0; i < M; i++) {
        const double *x = m->x[0] + i * N, *w = m->x[1], *dy = m->dy[0] + i * N;
        const double kept = m->save[0][i], before = i < 16 ? rstd_before[i] : 0;
        const double rstd = m->variant & STALE_RSTD && before != 0 ? before : kept;
        double mean = 0;
        for (int64_t k = 0; k < N; k++)
            mean += dy[k] * (m->variant & WITHOUT_WEIGHT ? 1 : w[k]) * x[k] * rstd / (double)N;
        if (m->variant & WITHOUT_MEAN_TERM) mean = 0;
        if (m->variant & OTHER_SIGN) mean = -mean;
        for (int64_t k = 0; k < N; k++) {
            const double h = dy[k] * (m->variant & WITHOUT_WEIGHT ? 1 : w[k]);
            m->g[0][i * N + k] = rstd * (h - x[k] * rstd * mean);
            m->g[1][k] += dy[k] * x[k] * rstd;
        }
        if (i < 16) rstd_before[i] = kept;
    }
}

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

/* gradcheck on a bug. Prints its words first, then one line of JSON: the report, and the gradients
 * by element where `grids` is not 0. */
static void check_bug(const planted_bug *bug, int grids)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.poison = true, .threads = 1});
    planted_op p;
    if (!bug || !planted_make(&p, ctx, bug)) {
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

EXPORT(study_switch) void study_switch(int parts)
{
    const planted_bug bug = {.op = "rms_norm",
                             .check = "rows4_cols64",
                             .formula = switched_norm,
                             .variant = parts,
                             .seeds = parts & STALE_RSTD ? 2 : 1};
    check_bug(&bug, 1);
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

/* gradcheck on the page's formula, in case `index` of the op named by study_text(). */
EXPORT(study_formula) void study_formula(int index)
{
    const gd_op *op = gd_find_op(NULL, study_text());
    if (!op || index < 0 || index >= op->case_count) return;
    const planted_bug bug = {
        .op = op->name, .check = op->cases[index].name, .formula = reader_formula};
    check_bug(&bug, 0);
}
