/* json.c - a report as one line of JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "files/json_text.h"
#include "gradcheck/check.h"
#include "platform/number.h"

/* Members of an object after its first. */
static void print_string(gd_json_text *to, const char *key, const char *text)
{
    gd_json_print(to, ", \"%s\": ", key);
    gd_json_print_string(to, text, NULL);
}

static void print_number(gd_json_text *to, const char *key, double value)
{
    gd_json_print(to, isfinite(value) ? ", \"%s\": %.17g" : ", \"%s\": null", key, value);
}

static void print_integer(gd_json_text *to, const char *key, int64_t value)
{
    gd_json_print(to, ", \"%s\": %lld", key, (long long)value);
}

static void print_list(gd_json_text *to, const char *key, int count, const double *value)
{
    gd_json_print(to, ", \"%s\": [", key);
    for (int i = 0; i < count; i++) {
        if (i) gd_json_print(to, ", ");
        gd_json_print(to, isfinite(value[i]) ? "%.17g" : "null", value[i]);
    }
    gd_json_print(to, "]");
}

static void print_input(gd_json_text *to, const gd_gradcheck_input *in)
{
    gd_json_print(to, "{\"name\": ");
    gd_json_print_string(to, in->name, NULL);
    gd_json_print(to, ", \"shape\": [");
    for (int axis = 0; axis < in->ndim; axis++)
        gd_json_print(to, "%s%lld", axis ? ", " : "", (long long)in->shape[axis]);
    gd_json_print(to, "]");
    print_string(to, "verdict", gd_verdict_name(in->verdict));
    print_integer(to, "elements", in->elements);
    print_integer(to, "compared", in->compared);
    print_integer(to, "kinks", in->kinks);
    print_integer(to, "wrong", in->wrong);
    print_integer(to, "inconclusive", in->inconclusive);
    print_integer(to, "directions", in->directions);
    print_integer(to, "worst", in->worst);
    print_number(to, "largest_error", in->largest_error);
    print_number(to, "largest_gradient", in->largest_gradient);
    print_number(to, "analytic", in->analytic);
    print_number(to, "numeric", in->numeric);
    print_string(to, "finding", in->finding);
    print_string(to, "behaviour", in->behaviour);
    print_string(to, "remark", in->remark);
    print_list(to, "sweep_step", in->sweeps, in->sweep_step);
    print_list(to, "sweep_numeric", in->sweeps, in->sweep_numeric);
    gd_json_print(to, ", \"sweep_stable\": %s}", in->sweep_stable ? "true" : "false");
}

static void print_report(gd_json_text *to, const gd_gradcheck_report *report)
{
    gd_json_print(to, "{\"op\": ");
    gd_json_print_string(to, report->op, NULL);
    print_string(to, "case", report->name);
    print_string(to, "verdict", gd_verdict_name(report->verdict));
    print_string(to, "device", report->device == GD_CPU ? "cpu" : "cuda");
    print_string(to, "dtype", gd_dtype_name(report->dtype));
    print_integer(to, "order", report->order);
    gd_json_print(to, ", \"seed\": %llu", (unsigned long long)report->seed);
    print_number(to, "step", report->step);
    print_number(to, "rtol", report->rtol);
    print_number(to, "atol", report->atol);
    print_string(to, "message", report->message);
    gd_json_print(to, ", \"inputs\": [");
    for (int k = 0; k < report->inputs; k++) {
        if (k) gd_json_print(to, ", ");
        print_input(to, &report->input[k]);
    }
    gd_json_print(to, "]}\n");
}

/* JSON needs a decimal point, whatever the program's locale. */
gd_status gd_gradcheck_print_json(const gd_gradcheck_report *report, FILE *file)
{
    if (!report || !file) return GD_ERROR_ARGUMENT;
    gd_os_locale locale;
    gd_json_text line = {0};
    gd_os_points_begin(&locale);
    print_report(&line, report);
    gd_os_points_end(&locale);
    if (!line.lacking) fputs(line.bytes, file);
    free(line.bytes);
    return line.lacking ? GD_ERROR_MEMORY : ferror(file) ? GD_ERROR_IO : GD_OK;
}
