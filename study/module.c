/* module.c - what the pages of the study call: an op of the library run on numbers of the reader's
 * own, and gradcheck on planted bugs. Results are printed as JSON, one value a call; text goes in
 * through study_text(), numbers through the arrays that study_input() and study_cotangent() give.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "planted.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))

/* ---- JSON --------------------------------------------------------------------------------- */

static void print_number(double v)
{
    if (isfinite(v))
        printf("%.17g", v);
    else
        printf(isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"");
}

static void print_numbers(const double *v, int64_t count)
{
    putchar('[');
    for (int64_t i = 0; i < count; i++) {
        if (i) putchar(',');
        print_number(v[i]);
    }
    putchar(']');
}

static void print_text(const char *text)
{
    putchar('"');
    for (; text && *text; text++) {
        if (*text == '\n') {
            printf("\\n");
            continue;
        }
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void print_shape(int ndim, const int64_t *shape)
{
    putchar('[');
    for (int d = 0; d < ndim; d++) printf("%s%lld", d ? "," : "", (long long)shape[d]);
    putchar(']');
}

/* {"shape": [..], "values": [..]}, or null */
static void print_tensor(const gd_tensor *t)
{
    if (!t) {
        printf("null");
        return;
    }
    int64_t shape[GD_MAX_DIMS], count = gd_tensor_count(t);
    for (int d = 0; d < gd_tensor_ndim(t); d++) shape[d] = gd_tensor_dim(t, d);
    double *values = calloc((size_t)count + 1, sizeof *values);
    if (values) gd_tensor_read_f64(t, values, count);
    printf("{\"shape\":");
    print_shape(gd_tensor_ndim(t), shape);
    printf(",\"values\":");
    print_numbers(values, values ? count : 0);
    putchar('}');
    free(values);
}

static void print_tensors(const char *name, gd_tensor *const *list, int count)
{
    printf(",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        if (i) putchar(',');
        print_tensor(list[i]);
    }
    putchar(']');
}

/* ---- Text in ------------------------------------------------------------------------------ */

static char text[256];

EXPORT(study_text) char *study_text(void)
{
    return text;
}

/* ---- An op on the reader's numbers -------------------------------------------------------- */

enum { OUTPUTS = 4 };

/* One case of an op's record, at first with its own shapes. */
static struct {
    gd_context *ctx;
    const gd_op *op;
    gd_case check;
    double *input[GD_CASE_MAX_INPUTS], *cotangent[OUTPUTS];
    int outputs;
} now;

/* A copy of the record whose forward shows what it has saved. */
static struct {
    gd_op op;
    const gd_op *real;
} spy;

static gd_status spy_forward(const gd_call *call)
{
    gd_call real = *call;
    real.op = spy.real;
    gd_status status = real.op->forward[GD_CPU](&real);
    if (!status && call->saves && call->save[0]) print_tensors("saves", call->save, call->saves);
    return status;
}

static gd_status spy_backward(const gd_call *call)
{
    gd_call real = *call;
    real.op = spy.real;
    return real.op->backward[GD_CPU](&real);
}

static int64_t count_of(const gd_case_input *in)
{
    int64_t count = 1;
    for (int d = 0; d < in->ndim; d++) count *= in->shape[d];
    return count;
}

static void close_case(void)
{
    for (int i = 0; i < GD_CASE_MAX_INPUTS; i++) free(now.input[i]);
    for (int k = 0; k < OUTPUTS; k++) free(now.cotangent[k]);
    gd_context_free(now.ctx);
    memset(&now, 0, sizeof now);
}

/* Prints [{name, formula, cases: [{name, inputs: [{name, shape, fill, a, b, ...}]}]}]. */
EXPORT(study_ops) void study_ops(void)
{
    const gd_op *op;
    for (int i = 0; (op = gd_op_at(NULL, i)); i++) {
        printf("%s{\"name\":", i ? "," : "[");
        print_text(op->name);
        printf(",\"formula\":");
        print_text(op->formula);
        printf(",\"backward\":%s,\"cases\":[", op->backward[GD_CPU] ? "true" : "false");
        for (int c = 0; c < op->case_count; c++) {
            const gd_case *check = &op->cases[c];
            printf("%s{\"name\":", c ? "," : "");
            print_text(check->name);
            printf(",\"kinks\":%s,\"inputs\":[", check->kinks ? "true" : "false");
            for (int k = 0; k < check->inputs; k++) {
                const gd_case_input *in = &check->input[k];
                printf("%s{\"name\":", k ? "," : "");
                print_text(gd_input_name(op, k).text);
                printf(",\"absent\":%s,\"fixed\":%s,\"fill\":%d,\"a\":%g,\"b\":%g,\"shape\":",
                       in->absent ? "true" : "false", in->fixed ? "true" : "false", in->fill, in->a,
                       in->b);
                print_shape(in->ndim, in->shape);
                putchar('}');
            }
            printf("]}");
        }
        printf("]}");
    }
    puts("]");
}

/* Opens case `index` of the op named by study_text(). False: there is none. */
EXPORT(study_open) bool study_open(int index)
{
    close_case();
    now.op = gd_find_op(NULL, text);
    if (!now.op || index < 0 || index >= now.op->case_count) return false;
    now.check = now.op->cases[index];
    return true;
}

/* Gives an input another shape. */
EXPORT(study_shape) void study_shape(int input, int ndim, int d0, int d1, int d2, int d3)
{
    gd_case_input *in = &now.check.input[input];
    const int shape[] = {d0, d1, d2, d3};
    in->ndim = ndim;
    for (int d = 0; d < ndim; d++) in->shape[d] = shape[d];
}

/* Where the values of an input go, and dL/dy of an output of `count` elements (freed by the next
 * study_open). */
EXPORT(study_input) double *study_input(int input)
{
    free(now.input[input]);
    const size_t count = (size_t)count_of(&now.check.input[input]);
    return now.input[input] = calloc(count + 1, sizeof(double));
}

EXPORT(study_cotangent) double *study_cotangent(int output, int count)
{
    free(now.cotangent[output]);
    return now.cotangent[output] = calloc((size_t)count + 1, sizeof(double));
}

static gd_tensor *make_input(int i)
{
    const gd_case_input *in = &now.check.input[i];
    if (in->absent) return NULL;
    const bool whole = in->fill == GD_FILL_INDEX;
    gd_tensor *t = gd_tensor_create(now.ctx, whole ? GD_INT32 : GD_FLOAT64, in->ndim, in->shape);
    if (!t) return NULL;
    for (int64_t k = 0; now.input[i] && k < count_of(in); k++) {
        if (whole)
            ((int32_t *)gd_tensor_data(t))[k] = (int32_t)now.input[i][k];
        else
            ((double *)gd_tensor_data(t))[k] = now.input[i][k];
    }
    if (!whole && !in->fixed) gd_tensor_set_requires_grad(t, true);
    return t;
}

/* Forward, and backward from the cotangents that were given, in float64. Prints
 * {"saves": .., "outputs": .., "gradients": .., "error": ..}. */
EXPORT(study_run) void study_run(void)
{
    gd_context_free(now.ctx);
    now.ctx = gd_context_create(&(gd_context_options){.threads = 1});
    spy.real = now.op;
    spy.op = *now.op;
    spy.op.forward[GD_CPU] = spy_forward;
    if (now.op->backward[GD_CPU]) spy.op.backward[GD_CPU] = spy_backward;
    gd_tensor *input[GD_CASE_MAX_INPUTS] = {NULL}, *output[OUTPUTS] = {NULL};
    gd_tensor *gradient[GD_CASE_MAX_INPUTS] = {NULL}, *cotangent[OUTPUTS] = {NULL};
    printf("{\"op\":");
    print_text(now.op->name);
    for (int i = 0; i < now.check.inputs; i++) input[i] = make_input(i);
    gd_apply_multi(&spy.op, input, now.check.inputs, now.check.args, output);
    for (int k = 0; k < now.op->outputs && output[k]; k++) gd_keep(output[k]);
    for (int k = 0; k < now.op->outputs && output[k] && now.cotangent[k]; k++) {
        int64_t shape[GD_MAX_DIMS];
        for (int d = 0; d < gd_tensor_ndim(output[k]); d++) shape[d] = gd_tensor_dim(output[k], d);
        cotangent[k] = gd_tensor_from(now.ctx, gd_tensor_dtype(output[k]),
                                      gd_tensor_ndim(output[k]), shape, now.cotangent[k]);
    }
    print_tensors("outputs", output, now.op->outputs);
    if (now.op->backward[GD_CPU] && output[0])
        gd_backward_from(output, now.op->outputs, &(gd_backward_options){.cotangents = cotangent});
    for (int i = 0; i < now.check.inputs; i++) gradient[i] = input[i] ? gd_grad(input[i]) : NULL;
    print_tensors("gradients", gradient, now.check.inputs);
    printf(",\"error\":");
    print_text(gd_error(now.ctx));
    puts("}");
}

/* ---- Planted bugs ------------------------------------------------------------------------- */

static const planted_bug *const lists[] = {planted_spoilers, planted_norms, planted_heads,
                                           planted_parts, planted_elements};

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

static const gd_case *case_of(const planted_bug *bug, const gd_op *op)
{
    if (bug->own) return bug->own;
    for (int i = 0; bug->check && i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, bug->check)) return &op->cases[i];
    return &op->cases[0];
}

/* Prints [{"op", "what", "right": whether nothing is wrong}]. */
EXPORT(study_bugs) void study_bugs(void)
{
    const planted_bug *bug;
    for (int i = 0; (bug = bug_at(i)); i++) {
        printf("%s{\"op\":", i ? "," : "[");
        print_text(bug->op);
        printf(",\"what\":");
        print_text(bug->what);
        printf(",\"right\":%s}", bug->formula && !strcmp(bug->what, "nothing") ? "true" : "false");
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
    const gd_case *check = case_of(bug, p.real);
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
    const gd_op *op = gd_find_op(NULL, text);
    if (!op || index < 0 || index >= op->case_count) return;
    const planted_bug bug = {
        .op = op->name, .check = op->cases[index].name, .formula = reader_formula};
    check_bug(&bug, 0);
}
