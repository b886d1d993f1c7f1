/* init.c - initial values of parameters (init.h). */
#include "gradus/init.h"
#include "core/core.h"

#include <float.h>
#include <math.h>

/* ---- By fans ------------------------------------------------------------------------------ */

typedef struct fans {
    double in, out;
} fans;

/* False, with the error set, unless t has fans and the gain is a number. */
static bool find_fans(const gd_tensor *t, double gain, const char *who, fans *f)
{
    if (!t || gd_failed(t->ctx)) return false;
    if (!gd_dtype_is_real(t->dtype) || t->ndim < 2) {
        gd_fail(
            t->ctx, GD_ERROR_ARGUMENT,
            "%s: the tensor is %s %s, wanted a real dtype and at least two dimensions, [out, in, "
            "...]",
            who, gd_dtype_name(t->dtype), gd_shape_text(t).text);
        return false;
    }
    if (!(gain >= 0 && isfinite(gain))) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: gain is %g, wanted a finite number of at least 0",
                who, gain);
        return false;
    }
    double rest = 1;
    for (int i = 2; i < t->ndim; i++) rest *= (double)t->shape[i];
    *f = (fans){(double)t->shape[1] * rest, (double)t->shape[0] * rest};
    return true;
}

/* Fills t with numbers of this variance. A fan of 0 has no elements. */
static gd_status fill(gd_tensor *t, bool normal, double variance)
{
    if (t->count == 0) variance = 0;
    const double bound = sqrt(3 * variance);
    return normal ? gd_random_normal(t, 0, sqrt(variance)) : gd_random_uniform(t, -bound, bound);
}

static gd_status xavier(gd_tensor *t, bool normal, double gain, const char *who)
{
    fans f;
    if (!find_fans(t, gain, who, &f)) return gd_tensor_status(t);
    return fill(t, normal, gain * gain * 2 / (f.in + f.out));
}

gd_status gd_init_xavier_uniform(gd_tensor *t, double gain)
{
    return xavier(t, false, gain, "init_xavier_uniform");
}

gd_status gd_init_xavier_normal(gd_tensor *t, double gain)
{
    return xavier(t, true, gain, "init_xavier_normal");
}

static gd_status kaiming(gd_tensor *t, bool normal, gd_fan fan, double gain, const char *who)
{
    fans f;
    if (!find_fans(t, gain, who, &f)) return gd_tensor_status(t);
    if (fan != GD_FAN_IN && fan != GD_FAN_OUT) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: fan is %d, wanted GD_FAN_IN or GD_FAN_OUT",
                       who, (int)fan);
    }
    return fill(t, normal, gain * gain / (fan == GD_FAN_IN ? f.in : f.out));
}

gd_status gd_init_kaiming_uniform(gd_tensor *t, gd_fan fan, double gain)
{
    return kaiming(t, false, fan, gain, "init_kaiming_uniform");
}

gd_status gd_init_kaiming_normal(gd_tensor *t, gd_fan fan, double gain)
{
    return kaiming(t, true, fan, gain, "init_kaiming_normal");
}

/* ---- By the host -------------------------------------------------------------------------- */

/* Draws a float64 number on the host for each element of t, uniform in [0, 1) or normal. NULL with
 * the error set. */
static double *draw(const gd_tensor *t, bool normal, const char *who)
{
    gd_context *ctx = t->ctx;
    gd_tensor *drawn = gd_tensor_create(ctx, GD_FLOAT64, 1, &t->count);
    if (!drawn) return NULL; /* also if there are too many */
    double *values = gd_host_allocate(ctx, (size_t)t->count * sizeof *values, who);
    if (normal)
        gd_random_normal(drawn, 0, 1);
    else
        gd_random_uniform(drawn, 0, 1);
    if (values) gd_tensor_read_f64(drawn, values, t->count);
    gd_tensor_free(drawn);
    if (!gd_failed(ctx)) return values;
    gd_host_release(ctx, values, (size_t)t->count * sizeof *values);
    return NULL;
}

/* Rounds them to t, and frees them. */
static gd_status put(gd_tensor *t, double *values)
{
    gd_tensor_write_f64(t, values, t->count);
    gd_host_release(t->ctx, values, (size_t)t->count * sizeof *values);
    return gd_error_status(t->ctx);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Gram and Schmidt: q [count, n], count <= n, becomes orthonormal. Where little is left of a
 * vector, rounding errors are much of it, and a second pass removes them ("twice is enough",
 * Kahan). With normal vectors the result is uniformly distributed: a rotation of all of them
 * changes neither their distribution nor the steps here. */
static void make_orthonormal(double *q, int64_t count, int64_t n)
{
    for (int64_t i = 0; i < count; i++) {
        double *v = q + i * n, before = sqrt(dot(v, v, n)), after = before;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < i; j++) {
                const double *u = q + j * n, along = dot(u, v, n);
#pragma omp simd
                for (int64_t k = 0; k < n; k++) v[k] -= along * u[k];
            }
            after = sqrt(dot(v, v, n));
            if (after > 0.7 * before) break;
        }
        for (int64_t k = 0; k < n; k++) v[k] /= after;
    }
}

gd_status gd_init_orthogonal(gd_tensor *t, double gain)
{
    const char *who = "init_orthogonal";
    fans f;
    if (!find_fans(t, gain, who, &f) || !gd_tensor_writable(t, who)) return gd_tensor_status(t);
    if (t->count == 0) return GD_OK;
    gd_context *ctx = t->ctx;
    const int64_t rows = t->shape[0], columns = t->count / rows;
    const bool tall = rows > columns;
    double *q = draw(t, true, who);
    if (!q) return ctx->status;
    make_orthonormal(q, tall ? columns : rows, tall ? rows : columns);
    double *values = gd_host_allocate(ctx, (size_t)t->count * sizeof *values, who);
    for (int64_t i = 0; values && i < rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            values[i * columns + j] = gain * (tall ? q[j * rows + i] : q[i * columns + j]);
    }
    gd_host_release(ctx, q, (size_t)t->count * sizeof *q);
    return values ? put(t, values) : ctx->status;
}

/* ---- A truncated normal distribution ------------------------------------------------------ */

/* The probability of less than x. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* The x with normal_below(x) = p: a fraction (Abramowitz & Stegun 1964, 26.2.23, to 4.5e-4), and
 * two steps of Halley's method, each of which triples the digits. */
static double normal_quantile(double p)
{
    const double tail = fmax(p < 0.5 ? p : 1 - p, DBL_MIN);
    const double t = sqrt(-2 * log(tail));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    x = -x; /* below which is `tail` */
    for (int i = 0; i < 2; i++) {
        const double error = (normal_below(x) - tail) * 2.50662827463100050242 * exp(x * x / 2);
        x -= error / (1 + x * error / 2);
    }
    return p < 0.5 ? x : -x;
}

gd_status gd_init_truncated_normal(gd_tensor *t, double mean, double stddev, double low,
                                   double high)
{
    const char *who = "init_truncated_normal";
    if (!t) return GD_ERROR_ARGUMENT;
    gd_context *ctx = t->ctx;
    if (!gd_tensor_writable(t, who)) return gd_error_status(ctx);
    if (!gd_dtype_is_real(t->dtype)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the tensor is %s %s, wanted a real dtype", who,
                       gd_dtype_name(t->dtype), gd_shape_text(t).text);
    }
    if (!(isfinite(mean) && isfinite(stddev) && stddev > 0 && low < high)) {
        return gd_fail(
            ctx, GD_ERROR_ARGUMENT,
            "%s: mean is %g, stddev %g, low %g and high %g, wanted a finite mean, a finite "
            "stddev above 0, and low < high",
            who, mean, stddev, low, high);
    }
    /* In the lower half probabilities have more digits: 1 - 1e-20 is 1. */
    double from = (low - mean) / stddev, to = (high - mean) / stddev;
    const double side = from > 0 ? -1 : 1;
    if (side < 0) {
        const double swap = -from;
        from = -to;
        to = swap;
    }
    const double least = normal_below(from), all = normal_below(to) - least;
    if (!(all > 1e-300)) { /* as far as that doubles have all their digits */
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: no number of mean %g and stddev %g is between %g and %g, wanted an "
                       "interval nearer to the mean",
                       who, mean, stddev, low, high);
    }
    if (t->count == 0) return GD_OK;
    double first, last;
    ctx->services->numbers_within(t->dtype, low, nextafter(high, INFINITY), &first, &last);
    if (first < low || last > high) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: no %s is between %g and %g, wanted a wider interval", who,
                       gd_dtype_name(t->dtype), low, high);
    }
    double *values = draw(t, false, who);
    if (!values) return ctx->status;
    for (int64_t i = 0; i < t->count; i++) {
        const double x = mean + stddev * side * normal_quantile(least + all * values[i]);
        values[i] = fmin(fmax(x, first), last);
    }
    return put(t, values);
}
