/* bench.h - shared by the benchmarks: options, clock, the ceiling.
 *
 * A figure is compared with its ceiling. For a kernel limited by memory, that is a copy of the same
 * tensor by the same threads, measured in the same run and in turn with it, so that both have the
 * same share of the machine. */
#ifndef GRADUS_BENCH_H
#define GRADUS_BENCH_H

#include "gradus/gradus.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_options {
    int64_t rows, cols; /* 0: 4096 on the CPU, a table of sizes on a GPU */
    gd_dtype dtype;
    bool dtype_given; /* false: float32 on the CPU, all of the tables on a GPU */
    bool mixed;       /* on a GPU: float32 x, sums and their gradients beside bfloat16 y and dy */
    gd_device device;
    int threads; /* 0: what OpenMP suggests */
    int repeats; /* until the benchmark runs, 0: not given */
    bool json;
    bool ladder, quick; /* on a GPU: the rungs of the ladder; fewer sizes */
    int64_t heads;      /* on a GPU: the number of heads that have weights; 0: one weight */
    const char *tsv;    /* on a GPU: a file for the figures; NULL: none */
    const char *op;     /* NULL: all */
    const char *model;  /* of a step; NULL: tiny */
    int64_t batch;      /* of a step, in sequences; 0: the model's own */
    bool tf32;          /* float32 as TF32 */
} bench_options;

/* A benchmark is a subcommand: gradus-bench NAME [options]. Returns the exit status. */
typedef struct benchmark {
    const char *name, *summary;
    int (*run)(const bench_options *options);     /* on the CPU; NULL: on a GPU alone */
    int (*on_cuda)(const bench_options *options); /* on a GPU */
} benchmark;

int bench_rms_norm(const bench_options *options);   /* rms_norm.c */
int bench_layers(const bench_options *options);     /* layers.c; on the CPU or a GPU */
int bench_overhead(const bench_options *options);   /* overhead.c; on the CPU or a GPU */
int bench_optimizers(const bench_options *options); /* optimizers.c; on the CPU or a GPU */
int bench_step(const bench_options *options);       /* step.c; on the CPU or a GPU */

/* Whether `layers` has a row of that name (layers.c). */
bool bench_is_layer(const char *name);

/* rms_norm, or add_rms_norm with its residual, on a GPU (rms_norm_cuda.cu, or no_cuda.c). */
int bench_rms_norm_cuda(const bench_options *options, bool residual);

/* ---- Clock and figures (measure.c) -------------------------------------------------------- */

/* Seconds from some point in time, monotonic. */
double bench_now(void);

/* Sorts `values` and returns the middle one; NaN for none. */
double bench_median(double *values, int count);

/* One measured thing: repeats of its time in seconds. */
typedef struct bench_series {
    const char *name;
    double bytes; /* that must move; 0: does not apply */
    double *seconds;
    int count;
} bench_series;

/* Prints median ms, GB/s and the share of the ceiling's bytes per second, as a table or as lines
 * of JSON. Series without bytes are printed in microseconds. ceiling NULL: no share. */
void bench_print(const bench_series *series, int count, const bench_series *ceiling, bool json);

/* A context for what the options ask; a note on its device goes to stderr. */
gd_context *bench_context(const bench_options *options);

/* Prints the error of the context, and returns the exit status of a failure. */
int bench_fail(gd_context *ctx);

/* ---- The ceiling (copy.c) ----------------------------------------------------------------- */

/* Ways to copy an array: which one is fastest depends on the machine and the size. */
int bench_copy_count(void);
const char *bench_copy_name(int which);

/* Copies `bytes` bytes with `threads` threads; both aligned to 64. Returns the seconds it took. */
double bench_copy(int which, void *dst, const void *src, int64_t bytes, int threads);

/* ---- What a call does (work.c) -------------------------------------------------------------- */

/* Bytes that must move, and operations of its matrix products. */
double bench_bytes(const gd_call *call, bool backward);
double bench_flops(const gd_call *call, bool backward);

/* ---- Time on the device (clock_cpu.c, clock_cuda.c) ---------------------------------------- */

/* Marks in the stream of what a context does, and the seconds between them. On the CPU a mark is
 * the time; on a GPU it is an event, so the kernels are timed and not their launches. */
typedef struct device_clock device_clock;

/* NULL: no memory, or no events. */
device_clock *device_clock_create(gd_context *ctx, int marks);
void device_clock_free(device_clock *clock);

/* Blocks the device for a while, so that the host, which only queues the timed work, runs ahead of
 * it and no gap between kernels is due to the host. */
void device_clock_hold(device_clock *clock);

/* Sets mark `i`. */
void device_clock_mark(device_clock *clock, int i);

/* Seconds from mark a to mark b, when the device is done. */
double device_clock_seconds(device_clock *clock, int a, int b);

/* Between these two the kernels on the stream are counted, and run at the end; -1 if that is not
 * possible. On the CPU there are none. */
void device_clock_count_begin(device_clock *clock);
int64_t device_clock_count_end(device_clock *clock);

#ifdef __cplusplus
}
#endif

#endif
