/* no_cuda.c - the CUDA benchmarks in a build without CUDA: an error. */
#include "bench.h"

#include <stdio.h>

enum { SKIPPED = 77 };

int bench_rms_norm_cuda(const bench_options *options, bool residual)
{
    (void)options, (void)residual;
    fprintf(stderr, "gradus-bench: no CUDA device: built without CUDA\n");
    return SKIPPED;
}
