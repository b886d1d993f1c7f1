// cuda_widths.h - the sizes at which cuda_rms_norm runs every kernel of RMSNorm; cuda_plan checks
// that no plan is left out.
#ifndef GRADUS_CUDA_WIDTHS_H
#define GRADUS_CUDA_WIDTHS_H

#include <stdint.h>

static const int64_t cuda_widths[] = {
    1,     2,     3,      7,      8,      16,     24,     40,    64,    80,    96,    128,
    136,   160,   200,    256,    320,    384,    448,    512,   576,   640,   704,   768,
    1000,  1024,  1152,   1280,   1408,   1536,   2048,   2056,  2304,  2504,  2560,  2880,
    3072,  3584,  4096,   4352,   5000,   5120,   6144,   7000,  7168,  8192,  8200,  8448,
    9999,  12288, 14336,  16384,  18432,  20000,  32768,  36864, 40000, 45056, 50008, 65536,
    73728, 90008, 131072, 160008, 180232, 262144, 300000,
};

// How many rows of each: more than 512 where few rows have a kernel of their own, and at some
// widths as many as have more than 16 MB in any dtype, or 16384, since that changes the plan, too.
static inline int64_t cuda_rows(int64_t cols, bool brief)
{
    for (int64_t many : {384, 512, 768, 1024, 2048, 4096, 12288})
        if (!brief && cols == many) return (8 << 20) / cols + 70;
    if (!brief && cols == 1152) return 16421;
    if (cols > 30000) return brief ? 20 : 37;
    if (cols > 8192) return 67;
    return brief ? 520 : 530;
}

#endif
