/* clock_cpu.c - the clock of a build without CUDA: the host's. */
#include "bench.h"

#include <stdlib.h>

struct device_clock {
    double *marks;
};

device_clock *device_clock_create(gd_context *ctx, int marks)
{
    (void)ctx;
    device_clock *clock = malloc(sizeof *clock);
    double *times = calloc((size_t)marks, sizeof *times);
    if (clock && times) {
        clock->marks = times;
        return clock;
    }
    free(clock);
    free(times);
    return NULL;
}

void device_clock_free(device_clock *clock)
{
    if (clock) free(clock->marks);
    free(clock);
}

void device_clock_hold(device_clock *clock)
{
    (void)clock;
}

void device_clock_mark(device_clock *clock, int i)
{
    clock->marks[i] = bench_now();
}

double device_clock_seconds(device_clock *clock, int a, int b)
{
    return clock->marks[b] - clock->marks[a];
}

void device_clock_count_begin(device_clock *clock)
{
    (void)clock;
}

int64_t device_clock_count_end(device_clock *clock)
{
    (void)clock;
    return -1;
}
