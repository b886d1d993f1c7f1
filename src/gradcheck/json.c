/* json.c - a report as one line of JSON. */
#include <math.h>
#include <stdio.h>

#include "gradcheck/check.h"
#include "platform/number.h"

static void print_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < ' ')
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

/* Members of an object after its first. */
static void print_string(FILE *file, const char *key, const char *text)
{
    fprintf(file, ", \"%s\": ", key);
    print_text(file, text);
}

static void print_number(FILE *file, const char *key, double value)
{
    fprintf(file, isfinite(value) ? ", \"%s\": %.17g" : ", \"%s\": null", key, value);
}

static void print_integer(FILE *file, const char *key, int64_t value)
{
    fprintf(file, ", \"%s\": %lld", key, (long long)value);
}

static void print_list(FILE *file, const char *key, int count, const double *value)
{
    fprintf(file, ", \"%s\": [", key);
    for (int i = 0; i < count; i++) {
        if (i) fputs(", ", file);
        fprintf(file, isfinite(value[i]) ? "%.17g" : "null", value[i]);
    }
    fputc(']', file);
}

static void print_input(FILE *file, const gd_gradcheck_input *in)
{
    fputs("{\"name\": ", file);
    print_text(file, in->name);
    fputs(", \"shape\": [", file);
    for (int axis = 0; axis < in->ndim; axis++)
        fprintf(file, "%s%lld", axis ? ", " : "", (long long)in->shape[axis]);
    fputc(']', file);
    print_string(file, "verdict", gd_verdict_name(in->verdict));
    print_integer(file, "elements", in->elements);
    print_integer(file, "compared", in->compared);
    print_integer(file, "kinks", in->kinks);
    print_integer(file, "wrong", in->wrong);
    print_integer(file, "inconclusive", in->inconclusive);
    print_integer(file, "directions", in->directions);
    print_integer(file, "worst", in->worst);
    print_number(file, "largest_error", in->largest_error);
    print_number(file, "largest_gradient", in->largest_gradient);
    print_number(file, "analytic", in->analytic);
    print_number(file, "numeric", in->numeric);
    print_number(file, "ratio_median", in->ratio_median);
    print_number(file, "ratio_spread", in->ratio_spread);
    print_string(file, "finding", in->finding);
    print_string(file, "behaviour", in->behaviour);
    print_string(file, "remark", in->remark);
    print_list(file, "sweep_step", in->sweeps, in->sweep_step);
    print_list(file, "sweep_numeric", in->sweeps, in->sweep_numeric);
    fprintf(file, ", \"sweep_stable\": %s}", in->sweep_stable ? "true" : "false");
}

static void print_report(const gd_gradcheck_report *report, FILE *file)
{
    fputs("{\"op\": ", file);
    print_text(file, report->op);
    print_string(file, "case", report->name);
    print_string(file, "verdict", gd_verdict_name(report->verdict));
    print_string(file, "device", report->device == GD_CPU ? "cpu" : "cuda");
    print_string(file, "dtype", gd_dtype_name(report->dtype));
    print_integer(file, "order", report->order);
    fprintf(file, ", \"seed\": %llu", (unsigned long long)report->seed);
    print_number(file, "step", report->step);
    print_number(file, "rtol", report->rtol);
    print_number(file, "atol", report->atol);
    print_string(file, "message", report->message);
    fputs(", \"inputs\": [", file);
    for (int k = 0; k < report->inputs; k++) {
        if (k) fputs(", ", file);
        print_input(file, &report->input[k]);
    }
    fputs("]}\n", file);
}

/* JSON needs a decimal point, whatever the program's locale. */
gd_status gd_gradcheck_print_json(const gd_gradcheck_report *report, FILE *file)
{
    if (!report || !file) return GD_ERROR_ARGUMENT;
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    print_report(report, file);
    gd_os_points_end(&locale);
    return ferror(file) ? GD_ERROR_IO : GD_OK;
}
