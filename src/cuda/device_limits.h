/* device_limits.h - what the current GPU, and the code that this build has for it, allow a kernel.
 *
 * They are read from each device once. A kernel whose plan does not fit them must not be launched:
 * another one runs. Nothing here needs a context. */
#ifndef GRADUS_DEVICE_LIMITS_H
#define GRADUS_DEVICE_LIMITS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_cuda_limits {
    int capability; /* compute capability: 89 for 8.9; 0: there is no GPU */
    /* The compute capability for which the code that runs here was compiled: 80 where the driver
     * chose, or compiled, that of 8.0. 0: this build has no code for this GPU. */
    int code;
    int block_shared;             /* bytes of shared memory that a block may opt in to */
    int multiprocessor_shared;    /* bytes, of which each block takes 1024 more than it asks for */
    int multiprocessor_threads;   /* at a time */
    int multiprocessor_registers; /* of 32 bits */
    int multiprocessor_bytes;     /* that memory delivers to each in a us, by its clock and width */
    int cluster;                  /* blocks of a cluster, at most; 1: there are no clusters */
    bool async_copies;            /* cp.async: 4 to 16 bytes to shared memory, by each thread */
    bool bulk_copies;             /* cp.async.bulk, mbarriers that count bytes, early launches */
    bool wgmma; /* products by four warps at a time, in code for 9.0a, which limits do not cover */
} gd_cuda_limits;

/* The limits of the current device. */
gd_cuda_limits gd_cuda_device_limits(void);

/* How many multiprocessors plans are made for: those of a large GPU of this compute capability, not
 * of the one at hand. So the number of partial sums, and with it the bits of a sum, is the same on
 * all of them; on another number of multiprocessors the blocks run in more waves. */
int gd_cuda_plan_multiprocessors(const gd_cuda_limits *limits);

/* ---- For tests ------------------------------------------------------------------------------
 *
 * GRADUS_GPU_AS=8.9 in the environment: the library sees at most what a GPU of this compute
 * capability has. */

/* The limits of a GPU of this compute capability, with code for it. */
gd_cuda_limits gd_cuda_limits_of(int capability);

/* Makes the library see the smaller of each of these and the device's; NULL: the device's
 * alone. Not while other threads call the library. */
void gd_cuda_cap_limits(const gd_cuda_limits *caps);

#ifdef __cplusplus
}
#endif
#endif
