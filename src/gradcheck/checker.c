/* checker.c - what all parts of a check use: leaves with values, cotangents, room for gradients, and
 * what a check says in its report. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gradcheck/check.h"

int gd_check_precision(gd_dtype dtype)
{
    static const int bits[GD_DTYPE_COUNT] = {
        [GD_FLOAT64] = 53, [GD_FLOAT32] = 24, [GD_FLOAT16] = 11, [GD_BFLOAT16] = 8};
    return bits[dtype];
}

gd_dtype gd_check_measured_dtype(gd_dtype dtype)
{
    return gd_check_precision(dtype) < 24 ? GD_FLOAT64 : dtype;
}

/* ---- Inputs ------------------------------------------------------------------------------- */

gd_status gd_check_make_leaf(gd_checker *c, gd_argument *a)
{
    a->leaf = gd_tensor_create(c->ctx, a->dtype, a->ndim, a->shape);
    if (!a->leaf) return gd_error_status(c->ctx);
    gd_status status = gd_tensor_set_name(a->leaf, a->name);
    if (!status) status = gd_tensor_write_f64(a->leaf, a->value, a->count);
    if (!status) status = gd_check_read_leaf(a);
    a->measured = a->leaf;
    if (status || !gd_dtype_is_real(a->dtype) || gd_check_measured_dtype(a->dtype) == a->dtype)
        return status;
    a->measured = gd_tensor_create(c->ctx, gd_check_measured_dtype(a->dtype), a->ndim, a->shape);
    if (!a->measured) return gd_error_status(c->ctx);
    return gd_tensor_write_f64(a->measured, a->value, a->count);
}

/* The spread of values around their mean: the curvature of a function of values near 1000 depends
 * on their differences, not on their size. A few values do not determine it. */
static double spread(const double *x, int64_t count)
{
    double mean = 0, sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) continue;
        n++;
        mean += (x[i] - mean) / (double)n;
        squares += x[i] * x[i];
    }
    for (int64_t i = 0; i < count; i++)
        if (isfinite(x[i])) sum += (x[i] - mean) * (x[i] - mean);
    double size = n ? sqrt(squares / (double)n) : 0;
    double scale = n < 8 ? size : fmax(sqrt(sum / (double)n), size / 100);
    return scale > 0 && isfinite(scale) ? scale : 1;
}

gd_status gd_check_read_leaf(gd_argument *a)
{
    gd_status status = gd_tensor_read_f64(a->leaf, a->value, a->count);
    a->scale = spread(a->value, a->count);
    return status;
}

/* The bytes from a tensor's first to its last element. False if it has none. */
static bool extent(const gd_tensor *t, uintptr_t *begin, uintptr_t *end)
{
    if (!t || !gd_tensor_data(t)) return false;
    int64_t last = 0;
    for (int axis = 0; axis < gd_tensor_ndim(t); axis++)
        last += (gd_tensor_shape(t)[axis] - 1) * gd_tensor_strides(t)[axis];
    *begin = (uintptr_t)gd_tensor_data(t);
    *end = *begin + ((size_t)last + 1) * gd_dtype_size(gd_tensor_dtype(t));
    return true;
}

bool gd_check_overlap(const gd_tensor *a, const gd_tensor *b)
{
    uintptr_t a_begin, a_end, b_begin, b_end;
    if (!extent(a, &a_begin, &a_end) || !extent(b, &b_begin, &b_end)) return false;
    return a_begin < b_end && b_begin < a_end;
}

gd_status gd_check_choose_input(gd_checker *c)
{
    const gd_gradcheck_options *o = &c->options;
    const char *what = c->report->op;
    const int64_t element = o->only_element == GD_ZERO ? 0 : o->only_element;
    bool found = false;
    for (int i = 0; i < c->inputs && o->only_input; i++) {
        gd_argument *a = &c->input[i];
        if (strcmp(a->name, o->only_input)) {
            a->wanted = false;
            continue;
        }
        found = true;
        if (o->only_element && (element < 0 || element >= a->count))
            return gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: %s: element %lld is not in %s %s",
                           what, (long long)element, a->name,
                           gd_check_shape(a->ndim, a->shape).text);
    }
    if (o->only_element && !o->only_input)
        return gd_fail(c->ctx, GD_ERROR_ARGUMENT,
                       "gradcheck: %s: only_element needs only_input as well", what);
    if (o->only_input && !found)
        return gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: %s has no input %s", what,
                       o->only_input);
    return GD_OK;
}

/* ---- Cotangents and gradients ------------------------------------------------------------- */

double *gd_check_cotangent(gd_checker *c, int output, uint64_t stream)
{
    const gd_result *r = &c->output[output];
    const double parts = gd_check_precision(r->dtype) < 24 ? 8 : 4096;
    double *u = gd_check_numbers(c, r->count);
    if (!u) return NULL;
    gd_check_normal(u, r->count, c->options.seed, stream);
    for (int64_t i = 0; r->dtype != GD_FLOAT64 && i < r->count; i++)
        u[i] = round(u[i] * parts) / parts;
    return u;
}

gd_status gd_check_make_gradients(gd_checker *c, double ***gradient)
{
    *gradient = gd_check_allocate(c, c->inputs, sizeof **gradient);
    for (int i = 0; i < c->inputs && *gradient; i++) {
        if (!c->input[i].wanted) continue;
        (*gradient)[i] = gd_check_numbers(c, c->input[i].count);
        if (!(*gradient)[i]) return GD_ERROR_MEMORY;
    }
    return *gradient ? GD_OK : GD_ERROR_MEMORY;
}

/* ---- What the report says ----------------------------------------------------------------- */

void gd_check_copy_name(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
    if (!from || strlen(from) < size) return;
    /* Cut off before a character of UTF-8, not inside. */
    size_t end = size - 1;
    while (end > 0 && ((unsigned char)from[end] & 0xC0) == 0x80) end--;
    to[end] = 0;
}

void gd_check_report_input(gd_checker *c, int input)
{
    const gd_argument *a = &c->input[input];
    gd_gradcheck_input *in = &c->report->input[c->report->inputs++];
    *in = (gd_gradcheck_input){.index = input,
                               .ndim = a->ndim,
                               .elements = a->count,
                               .worst = -1,
                               .ratio_median = NAN,
                               .ratio_spread = NAN};
    gd_check_copy_name(in->name, sizeof in->name, a->name);
    memcpy(in->shape, a->shape, (size_t)a->ndim * sizeof *a->shape);
}

/* The report on an input. */
static gd_gradcheck_input *report_on(const gd_checker *c, int input)
{
    gd_gradcheck_report *report = c->report;
    /* What is about an input that wants no gradient is reported with the first input that does. */
    gd_gradcheck_input *in = report->inputs ? &report->input[0] : NULL;
    for (int k = 0; k < report->inputs; k++)
        if (report->input[k].index == input) in = &report->input[k];
    return in;
}

void gd_check_complain(gd_checker *c, int input, const char *format, ...)
{
    gd_gradcheck_input *in = report_on(c, input);
    if (!in || in->behaviour[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(in->behaviour, sizeof in->behaviour, format, args);
    va_end(args);
}

void gd_check_remark(gd_checker *c, int input, const char *format, ...)
{
    gd_gradcheck_input *in = report_on(c, input);
    if (!in || in->remark[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(in->remark, sizeof in->remark, format, args);
    va_end(args);
}

void gd_check_say(gd_gradcheck_input *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t used = strlen(out->finding);
    vsnprintf(out->finding + used, sizeof out->finding - used, format, args);
    va_end(args);
}
