/* print.c - a tensor and a group of parameters as text. Numbers are written as NumPy writes them:
 * with as few digits as tell them from others of their dtype, eight behind the point at most, and
 * of a long axis the first three and the last three. */
#include "core/core.h"
#include "gradus/optim.h"
#include "platform/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE = 3, WIDTH = 75, DIGITS = 8, WORD = 400 };

/* Three passes over the numbers that are shown: their size decides on exponents, these on
 * the width. */
typedef enum print_pass { RANGE, MEASURE, PRINT } print_pass;

typedef struct printer {
    FILE *file;
    const gd_tensor *t;
    print_pass pass;
    double smallest, largest; /* of the finite numbers but 0, without their signs */
    bool exponents;
    int left, right;     /* the most characters before and behind the point */
    int power, special;  /* and digits of an exponent; and characters of "nan", "inf" or "-inf" */
    int column, pending; /* of the line; spaces that are not yet written */
} printer;

static const int bits[GD_DTYPE_COUNT] = {24, 53, 8, 11, 53};

/* v with as many bits as a number of the dtype has. */
static double rounded_to(double v, gd_dtype dtype)
{
    int e;
    const double part = frexp(v, &e);
    return ldexp(rint(ldexp(part, bits[dtype])), e - bits[dtype]);
}

/* Whether a decimal number stands for v: it is nearer than half of the distance to v's neighbours,
 * or as near and v is even. */
static bool identifies(double decimal, double v, gd_dtype dtype)
{
    static const int least[GD_DTYPE_COUNT] = {-149, -1074, -133, -24, -1074};
    int e;
    const double part = frexp(fabs(v), &e);
    const bool nearer = part == 0.5 && fabs(decimal) < fabs(v); /* below a power of two */
    e -= bits[dtype] + nearer;
    const double half = ldexp(0.5, e > least[dtype] ? e : least[dtype]), off = fabs(decimal - v);
    return decimal == v || off < half || (off == half && fmod(v, 4 * half) == 0);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* "-1.5" or "-1.5e-05" in its columns. */
static void write_number(printer *p, double v, char word[WORD])
{
    const int behind = p->right + (p->exponents ? p->power + 2 : 0);
    if (!isfinite(v)) {
        const char *name = isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
        p->special = larger(p->special, (int)strlen(name));
        snprintf(word, WORD, "%*s", p->left + 1 + behind, name);
        return;
    }
    char digits[WORD];
    const int least = p->exponents ? p->right : 0;
    for (int n = least; n <= DIGITS; n++) {
        snprintf(digits, sizeof digits, p->exponents ? "%#.*e" : "%#.*f", n, v);
        if (identifies(strtod(digits, NULL), v, p->t->dtype)) break;
    }
    const int left = (int)strspn(digits, "-0123456789");
    int right = (int)strcspn(digits + left + 1, "e");
    const char *power = digits + left + 1 + right + (p->exponents ? 2 : 0); /* "05" of "e-05" */
    while (right > least && digits[left + right] == '0') right--; /* where eight do not tell it */
    p->left = larger(p->left, left);
    p->right = larger(p->right, right);
    p->power = larger(p->power, (int)strlen(power));
    const int at = snprintf(word, WORD, "%*.*s%-*.*s", p->left, left, digits,
                            p->exponents ? 0 : p->right + 1, right + 1, digits + left);
    if (p->exponents)
        snprintf(word + at, (size_t)(WORD - at), "e%c%0*d", power[-1], p->power, atoi(power));
}

/* A word behind the line, or on the next. */
static void add_word(printer *p, const char *word)
{
    const int length = (int)strlen(word), indent = p->t->ndim;
    int end = length;
    if (p->pass != PRINT) return;
    if (p->column > indent && p->column + length > WIDTH - indent) {
        fprintf(p->file, "\n%*s", indent, "");
        p->column = indent, p->pending = 0;
    }
    while (end > 0 && word[end - 1] == ' ') end--;
    fprintf(p->file, "%*s%.*s", p->pending, "", end, word);
    p->pending = length - end + 1;
    p->column += length + 1;
}

static void visit(printer *p, double v)
{
    char word[WORD];
    if (p->pass == RANGE) {
        if (!isfinite(v) || v == 0) return;
        p->smallest = fmin(p->smallest, fabs(v));
        p->largest = fmax(p->largest, fabs(v));
        return;
    }
    if (p->t->dtype != GD_INT32) {
        write_number(p, v, word);
    } else {
        p->left = larger(p->left, snprintf(word, WORD, "%*.0f", p->left, v));
    }
    add_word(p, word);
}

/* Between two elements of an axis that is not the last, or two and what is left out
 * between them. */
static void end_line(const printer *p, int axis, bool skips)
{
    for (int k = axis + 1; k < p->t->ndim; k++) fputc('\n', p->file);
    fprintf(p->file, "%*s%s", axis + 1, "", skips ? "..." : "");
    if (skips) end_line(p, axis, false);
}

/* The values [count] along `axis` and those behind it. */
static void visit_axis(printer *p, int axis, const double *values, int64_t count)
{
    const bool last = axis == p->t->ndim - 1, prints = p->pass == PRINT;
    const int64_t n = p->t->shape[axis];
    if (prints) fputc('[', p->file);
    p->column = p->t->ndim, p->pending = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool skips = n > 2 * EDGE && i == EDGE;
        if (skips && last) add_word(p, "...");
        if (prints && !last && i) end_line(p, axis, skips);
        if (skips) i = n - EDGE;
        if (last)
            visit(p, values[i]);
        else
            visit_axis(p, axis + 1, values + i * (count / n), count / n);
    }
    if (prints) fprintf(p->file, "%*s]", last && p->pending ? p->pending - 1 : 0, "");
    p->pending = 0;
}

static void print_numbers(FILE *file, const gd_tensor *t, const double *values)
{
    static const double limit[GD_DTYPE_COUNT] = {1e6, 1e8, 1e6, 1e3, 1e8};
    printer p = {.file = file, .t = t, .smallest = INFINITY};
    for (; p.pass <= PRINT; p.pass++) {
        if (t->count == 0) break;
        if (t->ndim)
            visit_axis(&p, 0, values, t->count);
        else
            visit(&p, *values);
        if (p.pass == RANGE)
            p.exponents = p.largest >= limit[t->dtype] ||
                          (p.largest > 0 && p.smallest < rounded_to(1e-4, t->dtype)) ||
                          rounded_to(p.largest / p.smallest, t->dtype) > 1000;
        const int behind = 1 + p.right + (p.exponents ? p.power + 2 : 0);
        p.left = larger(p.left, p.special - behind);
    }
    fprintf(file, t->count ? "\n" : "[]\n");
}

/* What is wrong with writing to the file, if anything is. */
static gd_status finish(gd_context *ctx, FILE *file, const char *who, gd_os_locale *locale)
{
    gd_os_points_end(locale);
    if (gd_failed(ctx) || !ferror(file)) return ctx->status;
    return gd_fail(ctx, GD_ERROR_IO, "%s: writing to the file failed", who);
}

static bool can_print(gd_context *ctx, const FILE *file, const char *who)
{
    if (gd_failed(ctx) || !gd_outside_graph(ctx, who)) return false;
    if (!file) gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: file is NULL, wanted an open one", who);
    return file;
}

static void print_name(FILE *file, const char *format, const gd_tensor *t)
{
    char name[sizeof t->name];
    memcpy(name, t->name, sizeof name);
    gd_replace_controls(name);
    fprintf(file, format, name);
}

gd_status gd_tensor_print(const gd_tensor *t, FILE *file)
{
    const char *who = "tensor_print";
    if (!t) { /* such as a gradient that there is not */
        if (file) fprintf(file, "NULL: no tensor\n");
        return GD_ERROR_ARGUMENT;
    }
    gd_context *ctx = t->ctx;
    if (!can_print(ctx, file, who) || !gd_tensor_usable(t, who, "tensor")) return ctx->status;
    const size_t bytes = (size_t)t->count * sizeof(double);
    double *values = gd_host_allocate(ctx, bytes, who), low = NAN, high = NAN, sum = 0;
    int64_t nans = 0;
    if (!values || gd_tensor_read_f64(t, values, t->count)) {
        gd_host_release(ctx, values, bytes);
        return ctx->status;
    }
    for (int64_t i = 0; i < t->count; i++) {
        nans += isnan(values[i]);
        low = fmin(low, values[i]); /* the other one, if one is NaN */
        high = fmax(high, values[i]);
        sum += isnan(values[i]) ? 0 : values[i];
    }
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    if (t->name[0]) print_name(file, "%s ", t);
    const double mean = gd_os_unsigned(sum / (double)(t->count - nans));
    const int digits = t->dtype == GD_INT32 ? 10 : 6; /* all of a whole number */
    fprintf(file, "%s %s  min %.*g  mean %g  max %.*g  NaN %lld\n", gd_dtype_name(t->dtype),
            gd_shape_text(t).text, digits, low, mean, digits, high, (long long)nans);
    print_numbers(file, t, values);
    gd_host_release(ctx, values, bytes);
    return finish(ctx, file, who, &locale);
}

/* The norm of t, or "-" where there is none to read. */
static void print_norm(FILE *file, const gd_tensor *t)
{
    if (t && gd_tensor_readable(t) && gd_dtype_is_real(t->dtype))
        fprintf(file, " %12.6g", t->count ? gd_os_unsigned(sqrt(gd_sum_squares(t))) : 0);
    else
        fprintf(file, " %12s", "-");
}

gd_status gd_params_print(const gd_params *params, FILE *file)
{
    const char *who = "params_print";
    gd_context *ctx = gd_params_context(params);
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (!can_print(ctx, file, who)) return ctx->status;
    const int count = gd_params_count(params), buffers = gd_params_buffer_count(params);
    gd_os_locale locale;
    gd_os_points_begin(&locale);
    fprintf(file, "%-32s %-16s %12s %12s %12s\n", "parameter", "shape", "count", "norm",
            "gradient");
    for (int i = 0; i < count + buffers; i++) {
        const bool buffer = i >= count;
        const gd_tensor *t =
            buffer ? gd_params_buffer_at(params, i - count) : gd_params_at(params, i);
        print_name(file, "%-32s", t);
        fprintf(file, " %-16s %12lld", gd_shape_text(t).text, (long long)t->count);
        print_norm(file, t);
        if (buffer)
            fprintf(file, " %12s", "buffer");
        else
            print_norm(file, gd_grad_now(t));
        fputc('\n', file);
    }
    fprintf(file, "%d parameters of %lld numbers, %d buffers\n", count,
            (long long)gd_params_elements(params), buffers);
    return finish(ctx, file, who, &locale);
}
