/* report.c - a report as text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"
#include "platform/number.h"

const char *gd_verdict_name(gd_verdict verdict)
{
    static const char *const names[] = {
        [GD_VERDICT_PASS] = "PASS",
        [GD_VERDICT_FAIL] = "FAIL",
        [GD_VERDICT_KINK] = "KINK",
        [GD_VERDICT_VACUOUS] = "VACUOUS",
        [GD_VERDICT_EMPTY] = "EMPTY",
        [GD_VERDICT_INCONCLUSIVE] = "INCONCLUSIVE",
        [GD_VERDICT_UNSUPPORTED] = "UNSUPPORTED",
    };
    return (unsigned)verdict <= GD_VERDICT_UNSUPPORTED ? names[verdict] : "?";
}

void gd_gradcheck_report_free(gd_gradcheck_report *report)
{
    if (!report) return;
    free(report->input);
    report->input = NULL;
    report->inputs = 0;
}

/* ---- Parts of the text -------------------------------------------------------------------- */

gd_text gd_check_shape(int ndim, const int64_t *shape)
{
    gd_text text = {"["};
    for (int axis = 0; axis < ndim; axis++) {
        const size_t used = strlen(text.text);
        snprintf(text.text + used, sizeof text.text - used, axis ? ", %lld" : "%lld",
                 (long long)shape[axis]);
    }
    strcat(text.text, "]"); /* 8 sizes of at most 20 characters leave room */
    return text;
}

int64_t gd_check_index(const gd_spec *spec, int64_t element, int axis)
{
    for (int k = spec->ndim - 1; k > axis; k--) element /= spec->shape[k];
    return element % spec->shape[axis];
}

gd_text gd_check_indices(const gd_spec *spec, int64_t element)
{
    int64_t at[GD_MAX_DIMS];
    for (int axis = 0; axis < spec->ndim; axis++) at[axis] = gd_check_index(spec, element, axis);
    return spec->ndim ? gd_check_shape(spec->ndim, at) : (gd_text){""};
}

/* With enough digits to show the difference from 1: "0.5", "1.00004". */
static gd_text ratio_text(double ratio)
{
    gd_text text;
    const double apart = fabs(ratio - 1);
    const int digits = apart > 0 && apart < 0.01 ? 2 + (int)ceil(-log10(apart)) : 4;
    gd_os_print(text.text, sizeof text.text, "%.*g", digits < 16 ? digits : 16, ratio);
    return text;
}

/* Those of the worst element. */
static gd_text indices(const gd_gradcheck_input *in)
{
    gd_spec spec = {.ndim = in->ndim};
    memcpy(spec.shape, in->shape, sizeof spec.shape);
    return gd_check_indices(&spec, in->worst);
}

/* ---- One line per input ------------------------------------------------------------------- */

/* The verdict on an input, and the counts behind it. */
static void print_counts(const gd_gradcheck_input *in, FILE *file)
{
    fprintf(file, "%s", gd_verdict_name(in->verdict));
    if (in->elements) fprintf(file, "  %lld compared", (long long)in->compared);
    if (in->directions) fprintf(file, " and %d directions", in->directions);
    if (in->kinks) fprintf(file, ", %lld at kinks", (long long)in->kinks);
    if (in->wrong) fprintf(file, ", %lld wrong", (long long)in->wrong);
    if (in->inconclusive) fprintf(file, ", %lld inconclusive", (long long)in->inconclusive);
    if (in->compared) fprintf(file, ", largest error %.1e", in->largest_error);
}

static void print_lines(const gd_gradcheck_report *report, FILE *file)
{
    const char *name = report->name[0] ? report->name : "-";
    if (report->inputs == 0 || report->message[0])
        fprintf(file, "%-14s %-24s %-10s %-16s %s  %s\n", report->op, name, "-", "",
                gd_verdict_name(report->verdict), report->message);
    for (int k = 0; k < report->inputs && !report->message[0]; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        fprintf(file, "%-14s %-24s %-10s %-16s ", report->op, name, in->name,
                gd_check_shape(in->ndim, in->shape).text);
        print_counts(in, file);
        if (in->finding[0]) fprintf(file, ": %s", in->finding);
        if (in->behaviour[0]) fprintf(file, "; %s", in->behaviour);
        if (in->remark[0]) fprintf(file, "; remark: %s", in->remark);
        fputc('\n', file);
    }
}

/* ---- The full report ---------------------------------------------------------------------- */

static void print_sweep(const gd_gradcheck_input *in, FILE *file)
{
    fprintf(file, "    step sweep at %s%s:", in->name, indices(in).text);
    for (int i = 0; i < in->sweeps; i++)
        fprintf(file, "%s %.0e %.7g", i ? "," : "", in->sweep_step[i],
                gd_os_unsigned(in->sweep_numeric[i]));
    fprintf(file, ": %s\n",
            in->sweep_stable ? "numeric is stable, suspect the backward"
                             : "numeric is not stable, suspect the step");
}

static void print_worst(const gd_gradcheck_input *in, FILE *file)
{
    fprintf(file, "    worst %s%s  analytic %.7g  numeric %.7g", in->name, indices(in).text,
            gd_os_unsigned(in->analytic), gd_os_unsigned(in->numeric));
    if (in->numeric != 0) fprintf(file, "  ratio %s", ratio_text(in->analytic / in->numeric).text);
    fputc('\n', file);
}

/* Whether some elements of an input are wrong, or could not be judged. */
static bool troubled(const gd_gradcheck_input *in)
{
    return (in->wrong || in->inconclusive) && in->worst >= 0;
}

static void print_input(const gd_gradcheck_input *in, FILE *file)
{
    fprintf(file, "  %s %s: ", in->name, gd_check_shape(in->ndim, in->shape).text);
    print_counts(in, file);
    fputc('\n', file);
    if (troubled(in)) print_worst(in, file);
    if (in->finding[0]) fprintf(file, "    %s\n", in->finding);
    if (in->sweeps) print_sweep(in, file);
    if (in->behaviour[0]) fprintf(file, "    behaviour: %s\n", in->behaviour);
    if (in->remark[0]) fprintf(file, "    remark: %s\n", in->remark);
}

/* Whether gradus-gradcheck has this case, not only the program that prints the report. */
static bool program_knows(const gd_gradcheck_report *report)
{
    const gd_op *op = gd_find_op(NULL, report->op);
    for (int i = 0; op && i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, report->name)) return true;
    return false;
}

/* The command that repeats the check of the worst element, or of everything. */
static void print_again(const gd_gradcheck_report *report, FILE *file)
{
    const gd_gradcheck_input *worst = NULL;
    bool behaviour = false;
    for (int k = 0; k < report->inputs; k++) {
        const gd_gradcheck_input *in = &report->input[k];
        if (troubled(in) && (!worst || in->largest_error > worst->largest_error)) worst = in;
        behaviour = behaviour || in->behaviour[0];
    }
    if (!program_knows(report) || (!worst && !behaviour && report->verdict != GD_VERDICT_FAIL))
        return;
    fprintf(file, "  again: gradus-gradcheck %s --case %s --seed %llu", report->op, report->name,
            (unsigned long long)report->seed);
    if (report->dtype != GD_FLOAT64) fprintf(file, " --dtype %s", gd_dtype_name(report->dtype));
    if (report->device != GD_CPU) fprintf(file, " --device cuda");
    if (report->step_given) fprintf(file, " --step %g", report->step);
    if (report->order > 1) fprintf(file, " --order %d", report->order);
    if (worst) fprintf(file, " --input %s --at %lld", worst->name, (long long)worst->worst);
    fputc('\n', file);
}

static void print_all(const gd_gradcheck_report *report, FILE *file)
{
    fprintf(file, "gradcheck %s  %s", report->op, gd_verdict_name(report->verdict));
    if (report->name[0]) fprintf(file, "  case %s", report->name);
    fprintf(file, " seed %llu  %s %s  h %.0e central, rtol %.0e, atol %.0e\n",
            (unsigned long long)report->seed, report->device == GD_CPU ? "cpu" : "cuda",
            gd_dtype_name(report->dtype), report->step, report->rtol, report->atol);
    if (report->message[0]) fprintf(file, "  %s\n", report->message);
    for (int k = 0; k < report->inputs && !report->message[0]; k++)
        print_input(&report->input[k], file);
    print_again(report, file);
}

gd_status gd_gradcheck_print(const gd_gradcheck_report *report, FILE *file, bool verbose)
{
    if (!report || !file) return GD_ERROR_ARGUMENT;
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    (verbose ? print_all : print_lines)(report, file);
    gd_os_points_end(&locale);
    return ferror(file) ? GD_ERROR_IO : GD_OK;
}
