/* watch.c - what the first page calls: loss = mean((w x - y)^2) for a number w and five x and y, and
 * its backward, by the library's own tape. Only what this takes is linked: watch_registry.c. */
#include <math.h>
#include <stdio.h>

#include "gradus/gradus.h"
#include "spy.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default")))

enum { POINTS = 5 };

static double numbers[1 + 2 * POINTS];
static bool first;

/* w, then x, then y. */
EXPORT(watch_numbers) double *watch_numbers(void)
{
    return numbers;
}

static void print_list(const char *name, const double *v, int64_t count)
{
    printf("%s\"%s\":[", first ? "" : ",", name);
    first = false;
    for (int64_t i = 0; i < count; i++)
        printf(isfinite(v[i]) ? "%s%.17g" : "%snull", i ? "," : "", v[i] + 0.0);
    putchar(']');
}

static void print_value(const char *name, gd_tensor *t)
{
    double values[SPY_SHOWN];
    if (spy_values(t, values)) print_list(name, values, gd_tensor_count(t));
}

/* By its node and input: "3_0". */
static void print_part(const spy_arrival *a)
{
    char name[48];
    snprintf(name, sizeof name, "%lld_%d", (long long)a->node, a->input);
    print_list(name, a->part, a->count);
}

/* Prints {"values": {name: [..]}, "parts": {"3_0": [..]}, "gradients": {"w": [..]}, "error": ".."}. */
EXPORT(watch_run) void watch_run(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.threads = 1});
    gd_tensor *w = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1), numbers);
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(POINTS), numbers + 1);
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(POINTS), numbers + 1 + POINTS);
    gd_tensor_set_requires_grad(w, true);
    gd_tensor *p = gd_mul(w, x), *e = gd_sub(p, y), *s = gd_mul(e, e), *loss = gd_mean_all(s);
    first = true;
    printf("{\"values\":{");
    print_value("w", w);
    print_value("x", x);
    print_value("y", y);
    print_value("p", p);
    print_value("e", e);
    print_value("s", s);
    print_value("loss", loss);
    printf("},\"parts\":{");
    first = true;
    spy_on(ctx, print_part);
    gd_backward(loss);
    printf("},\"gradients\":{");
    first = true;
    print_value("w", gd_grad(w));
    printf("},\"error\":\"%s\"}\n", gd_error(ctx) ? gd_error(ctx) : "");
    gd_context_free(ctx);
}
