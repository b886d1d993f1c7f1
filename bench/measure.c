/* measure.c - the clock, the median, and the printing of figures. */
#include "bench.h"
#include "platform/clock.h"
#include "programs/terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double bench_now(void)
{
    return gd_os_now();
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    if (count < 1) return (double)NAN;
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void print_bytes(const bench_series *s, double seconds, double ceiling, bool json)
{
    double gbps = s->bytes / seconds * 1e-9, share = gbps / ceiling;
    if (json) {
        printf("{\"name\": \"%s\", \"ms\": %.6g, \"gbps\": %.6g", s->name, seconds * 1e3, gbps);
        if (ceiling > 0) printf(", \"share\": %.4f", share);
        printf("}\n");
    } else {
        printf("%-28s %10.3f ms %9.1f GB/s", s->name, seconds * 1e3, gbps);
        if (ceiling > 0) printf("   %.2f of the ceiling", share);
        printf("\n");
    }
}

void bench_print(const bench_series *series, int count, const bench_series *ceiling, bool json)
{
    double best = ceiling ? ceiling->bytes / bench_median(ceiling->seconds, ceiling->count) : 0;
    for (int i = 0; i < count; i++) {
        double seconds = bench_median(series[i].seconds, series[i].count);
        if (series[i].bytes > 0) {
            print_bytes(&series[i], seconds, best * 1e-9, json);
        } else if (json) {
            printf("{\"name\": \"%s\", \"ms\": %.6g}\n", series[i].name, seconds * 1e3);
        } else {
            printf("%-28s %10.2f us\n", series[i].name, seconds * 1e6);
        }
    }
}

gd_context *bench_context(const bench_options *o)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){
        .device = o->device, .threads = o->threads, .seed = 1, .tf32 = o->tf32});
    const char *note = gd_context_device_note(ctx);
    if (note) terminal_message("gradus-bench", "%s", note);
    return ctx;
}

int bench_fail(gd_context *ctx)
{
    terminal_message("gradus-bench", "%s", gd_error(ctx) ? gd_error(ctx) : "out of memory");
    gd_context_free(ctx);
    return EXIT_FAILURE;
}
