/* json.c - a report as one line of JSON. */
#include <math.h>
#include <stdio.h>

#include "gradcheck/check.h"
#include "platform/number.h"

static void print_string(FILE *file, const char *key, const char *text)
{
    fprintf(file, "\"%s\": \"", key);
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

static void print_number(FILE *file, const char *key, double value)
{
    fprintf(file, isfinite(value) ? "\"%s\": %.17g" : "\"%s\": null", key, value);
}

static void print_integer(FILE *file, const char *key, int64_t value)
{
    fprintf(file, "\"%s\": %lld", key, (long long)value);
}

static void print_list(FILE *file, const char *key, int count, const double *value)
{
    fprintf(file, "\"%s\": [", key);
    for (int i = 0; i < count; i++) {
        if (i) fputs(", ", file);
        fprintf(file, isfinite(value[i]) ? "%.17g" : "null", value[i]);
    }
    fputc(']', file);
}

static void print_input(FILE *file, const gd_gradcheck_input *in)
{
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"elements", in->elements},
                  {"compared", in->compared},
                  {"kinks", in->kinks},
                  {"wrong", in->wrong},
                  {"inconclusive", in->inconclusive},
                  {"directions", in->directions},
                  {"worst", in->worst}};
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"largest_error", in->largest_error}, {"largest_gradient", in->largest_gradient},
                   {"analytic", in->analytic},           {"numeric", in->numeric},
                   {"ratio_median", in->ratio_median},   {"ratio_spread", in->ratio_spread}};
    fputc('{', file);
    print_string(file, "name", in->name);
    fputs(", \"shape\": [", file);
    for (int axis = 0; axis < in->ndim; axis++)
        fprintf(file, "%s%lld", axis ? ", " : "", (long long)in->shape[axis]);
    fputs("], ", file);
    print_string(file, "verdict", gd_verdict_name(in->verdict));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fputs(", ", file);
        print_integer(file, counts[i].key, counts[i].value);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fputs(", ", file);
        print_number(file, numbers[i].key, numbers[i].value);
    }
    fputs(", ", file);
    print_string(file, "finding", in->finding);
    fputs(", ", file);
    print_string(file, "behaviour", in->behaviour);
    fputs(", ", file);
    print_string(file, "remark", in->remark);
    fputs(", ", file);
    print_list(file, "sweep_step", in->sweeps, in->sweep_step);
    fputs(", ", file);
    print_list(file, "sweep_numeric", in->sweeps, in->sweep_numeric);
    fprintf(file, ", \"sweep_stable\": %s}", in->sweep_stable ? "true" : "false");
}

static void print_report(const gd_gradcheck_report *report, FILE *file)
{
    fputc('{', file);
    print_string(file, "op", report->op);
    fputs(", ", file);
    print_string(file, "case", report->name);
    fputs(", ", file);
    print_string(file, "verdict", gd_verdict_name(report->verdict));
    fputs(", ", file);
    print_string(file, "device", report->device == GD_CPU ? "cpu" : "cuda");
    fputs(", ", file);
    print_string(file, "dtype", gd_dtype_name(report->dtype));
    fprintf(file, ", \"seed\": %llu, ", (unsigned long long)report->seed);
    print_number(file, "step", report->step);
    fputs(", ", file);
    print_number(file, "rtol", report->rtol);
    fputs(", ", file);
    print_number(file, "atol", report->atol);
    fputs(", ", file);
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
