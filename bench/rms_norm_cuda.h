/* rms_norm_cuda.h - shared by the parts of the CUDA benchmark of the norms. */
#ifndef GRADUS_BENCH_RMS_NORM_CUDA_H
#define GRADUS_BENCH_RMS_NORM_CUDA_H

#include "bench.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One shape to time. In mixed precision dtype is float32 and y_dtype bfloat16. */
typedef struct bench_case {
    const char *table; /* the title of its table; equal pointers: the same table */
    gd_dtype dtype, y_dtype;
    int64_t rows, cols;
    int64_t heads; /* 0 where the table is not about heads; 1: weight [cols], H: [H, cols] */
    bool residual;
    double forward_target, backward_target; /* shares of the ceiling */
} bench_case;

enum { MAX_BENCH_CASES = 256 };

/* Fills `cases` with what the options ask for; returns how many (rms_norm_cases.c). */
int bench_rms_norm_cases(const bench_options *options, bool residual, bench_case *cases);

/* Checks and times the rungs of kernels/rms_norm/ladder.cu; false if a result is wrong
 * (rms_norm_ladder.cu). */
bool bench_rms_norm_ladder(const bench_options *options);

#ifdef __cplusplus
}
#endif
#endif
