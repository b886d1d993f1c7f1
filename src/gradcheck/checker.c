/* checker.c - what all parts of a check use: memory, leaves with values, cotangents, and what a
 * check says in its report. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"
#include "platform/number.h"

/* The step balances the truncation error of a central difference against rounding, h^3 ~ eps;
 * docs/numerics.md shows both. */
const gd_accuracy gd_check_accuracy[GD_DTYPE_COUNT] = {
    [GD_FLOAT64] = {0x1p-53, 1e-12, 1e-5, 1e-6, 1e-9, 0, 0},
    [GD_FLOAT32] = {0x1p-24, 3e-5, 1e-2, 1e-3, 1e-4, 0, 0},
    [GD_FLOAT16] = {0x1p-11, 8e-3, 0.1, 3e-2, 1e-2, 1e-2, 1e-3},
    [GD_BFLOAT16] = {0x1p-8, 6e-2, 0.2, 0.15, 5e-2, 0.1, 1e-2},
};

gd_dtype gd_check_measured_dtype(gd_dtype dtype)
{
    return gd_dtype_size(dtype) == 2 ? GD_FLOAT64 : dtype;
}

/* ---- Memory ------------------------------------------------------------------------------- */

typedef struct gd_block {
    struct gd_block *next;
    max_align_t memory[];
} gd_block;

void *gd_check_allocate(gd_checker *c, int64_t count, size_t size)
{
    size_t limit = (SIZE_MAX - sizeof(gd_block)) / size;
    gd_block *block = NULL;
    if ((uint64_t)count < limit) block = calloc(1, sizeof *block + (size_t)count * size);
    if (!block) {
        gd_fail(c->ctx, GD_ERROR_MEMORY, "gradcheck: out of memory: %lld numbers",
                (long long)count);
        return NULL;
    }
    block->next = c->blocks;
    c->blocks = block;
    return block->memory;
}

double *gd_check_numbers(gd_checker *c, int64_t count)
{
    return gd_check_allocate(c, count, sizeof(double));
}

double *gd_check_gradient(gd_checker *c)
{
    return gd_check_numbers(c, c->length);
}

void gd_check_free(gd_checker *c)
{
    while (c->blocks) {
        gd_block *block = c->blocks;
        c->blocks = block->next;
        free(block);
    }
}

void gd_check_keep(gd_checker *c, gd_status status)
{
    if (!c->status) c->status = status;
}

bool gd_check_failed(gd_checker *c)
{
    gd_check_keep(c, gd_error_status(c->ctx));
    return c->status != GD_OK;
}

/* ---- Inputs ------------------------------------------------------------------------------- */

void gd_check_make_leaf(gd_checker *c, gd_argument *a)
{
    const gd_spec *s = &a->spec;
    const gd_dtype measured = gd_check_measured_dtype(s->dtype);
    a->measured = a->leaf = gd_tensor_create(c->ctx, s->dtype, s->ndim, s->shape);
    if (!a->leaf) return;
    gd_tensor_set_name(a->leaf, a->name);
    gd_tensor_write_f64(a->leaf, a->value, a->count);
    gd_check_read_leaf(a);
    if (measured == s->dtype) return;
    a->measured = gd_tensor_create(c->ctx, measured, s->ndim, s->shape);
    gd_tensor_write_f64(a->measured, a->value, a->count);
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

void gd_check_read_leaf(gd_argument *a)
{
    gd_tensor_read_f64(a->leaf, a->value, a->count);
    a->scale = spread(a->value, a->count);
}

bool gd_check_same_shape(const gd_spec *a, const gd_spec *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

double gd_check_largest(const double *x, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(x[i])) largest = fmax(largest, fabs(x[i]));
    return largest;
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

void gd_check_choose_input(gd_checker *c)
{
    const gd_gradcheck_options *o = &c->options;
    const char *what = c->report->op;
    const int64_t element = o->only_element == GD_ZERO ? 0 : o->only_element;
    bool found = false;
    for (int i = 0; i < c->inputs && o->only_input; i++) {
        gd_argument *a = &c->input[i];
        const bool this = !strcmp(a->name, o->only_input);
        a->wanted = a->wanted && this;
        found = found || this;
        if (this && o->only_element && (element < 0 || element >= a->count))
            gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: %s: element %lld is not in %s %s", what,
                    (long long)element, a->name, gd_check_shape(a->spec.ndim, a->spec.shape).text);
    }
    if (o->only_element && !o->only_input)
        gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: %s: only_element needs only_input as well",
                what);
    if (o->only_input && !found)
        gd_fail(c->ctx, GD_ERROR_ARGUMENT, "gradcheck: %s has no input %s", what, o->only_input);
}

double *gd_check_cotangent(gd_checker *c, int output, uint64_t stream)
{
    const gd_result *r = &c->output[output];
    const double parts = gd_dtype_size(r->spec.dtype) == 2 ? 8 : 4096;
    double *u = gd_check_numbers(c, r->count);
    if (!u) return NULL;
    gd_check_normal(u, r->count, c->options.seed, stream);
    for (int64_t i = 0; r->spec.dtype != GD_FLOAT64 && i < r->count; i++)
        u[i] = round(u[i] * parts) / parts;
    return u;
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
    *in = (gd_gradcheck_input){
        .index = input, .ndim = a->spec.ndim, .elements = a->count, .worst = -1};
    gd_check_copy_name(in->name, sizeof in->name, a->name);
    memcpy(in->shape, a->spec.shape, sizeof in->shape);
}

gd_gradcheck_input *gd_check_report_on(const gd_checker *c, int input)
{
    gd_gradcheck_report *report = c->report;
    gd_gradcheck_input *in = report->inputs ? &report->input[0] : NULL;
    for (int k = 0; k < report->inputs; k++)
        if (report->input[k].index == input) in = &report->input[k];
    return in;
}

static void append(char *text, size_t size, const char *format, va_list args)
{
    const size_t used = strlen(text);
    gd_os_print_list(text + used, size - used, format, args);
}

void gd_check_complain(gd_checker *c, int input, const char *format, ...)
{
    gd_gradcheck_input *in = gd_check_report_on(c, input);
    va_list args;
    va_start(args, format);
    if (in && !in->behaviour[0]) append(in->behaviour, sizeof in->behaviour, format, args);
    va_end(args);
}

void gd_check_say(char *text, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append(text, size, format, args);
    va_end(args);
}
