/* no_cuda.c - the CUDA benchmarks in a build without CUDA: an error. */
#include "bench.h"

#include <stdio.h>

enum { SKIPPED = 77 };

static int skipped(void)
{
    fprintf(stderr, "gradus-bench: no CUDA device: built without CUDA\n");
    return SKIPPED;
}

int bench_rms_norm_cuda(const bench_options *options, bool residual)
{
    (void)options, (void)residual;
    return skipped();
}

int bench_products_cuda(const bench_options *options, int64_t M, const bench_layer *layers,
                        int count)
{
    (void)options, (void)M, (void)layers, (void)count;
    return skipped();
}
