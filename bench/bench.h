/* bench.h - what the benchmarks share: options, clock, the timing of one op, the ceiling.
 *
 * A figure means something beside its ceiling. For a kernel that memory limits, that is a copy of
 * the same tensor by the same threads, measured in the same run and in turn with it, so that both
 * have the same share of the machine. */
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
    int repeats;
    bool json;
    bool ladder, quick; /* on a GPU: the rungs of the ladder; fewer sizes */
    int64_t heads;      /* on a GPU: weights for each of so many heads; 0: not asked for */
    const char *tsv;    /* on a GPU: a file for the figures; NULL: none */
    const char *op;     /* NULL: all */
} bench_options;

/* A benchmark is a subcommand: gradus-bench NAME [options]. Returns the exit status. */
typedef struct benchmark {
    const char *name, *summary;
    int (*run)(const bench_options *options); /* on the CPU; NULL: on a GPU alone */
    bool on_cuda;
} benchmark;

int bench_rms_norm(const bench_options *options); /* rms_norm.c */
int bench_ops(const bench_options *options);      /* ops.c */

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

/* Prints the error of the context, and returns the exit status of a failure. */
int bench_fail(gd_context *ctx);

/* ---- One op (timed_op.c) ------------------------------------------------------------------ */

/* A copy of an op's record whose forward and backward go by the clock. What is timed is what the
 * tape calls, scratch memory and the reduction of partial sums included; finding memory for the
 * results, converting 16-bit tensors, and the tape itself are not. */
typedef struct timed_op {
    gd_op op; /* for gd_apply */
    const gd_op *original;
    double forward_seconds, backward_seconds; /* of the latest call */
} timed_op;

timed_op bench_time_op(const gd_op *original);

/* ---- The ceiling (copy.c) ----------------------------------------------------------------- */

/* Ways to copy an array: which one is fastest depends on the machine and the size. */
int bench_copy_count(void);
const char *bench_copy_name(int which);

/* Copies `bytes` bytes with `threads` threads; both aligned to 64. Returns the seconds it took. */
double bench_copy(int which, void *dst, const void *src, int64_t bytes, int threads);

#ifdef __cplusplus
}
#endif

#endif
