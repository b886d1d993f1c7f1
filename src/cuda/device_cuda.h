/* device_cuda.h - the state of a context on a GPU: for device_cuda.c, and for kernels that need
 * more than the stream. */
#ifndef GRADUS_DEVICE_CUDA_H
#define GRADUS_DEVICE_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "gradus/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies between the host and the device go through a ring of pinned pieces of this size. There are
 * enough of them for the batches of several steps that the device has not reached yet. */
#define GD_STAGING_BYTES ((size_t)1 << 20)
#define GD_STAGING_PIECES 32

typedef struct gd_cuda_staging {
    void *pinned;
    cudaEvent_t free; /* recorded after the copy that last used it */
} gd_cuda_staging;

/* Errors that a kernel finds in its data, such as an index out of range. A kernel cannot return an
 * error, and waiting for one would stop the host at every op. So it writes a note to memory that
 * the host sees too, and the next wait for the device (a read of a tensor, gd_synchronize) turns
 * that into the context's error. */
typedef struct gd_cuda_fault {
    const gd_op *op;
    int64_t limit;              /* indices must be in [0, limit) */
    volatile int64_t *position; /* pinned: 1 + the position of a bad index, 0: none */
} gd_cuda_fault;

#define GD_CUDA_FAULTS 64

/* Waits for an event instead of cudaEventSynchronize: where the device may itself wait for other
 * processes, which may be gone. */
typedef struct gd_cuda_waiter {
    struct gd_cuda_waiter *next;
    cudaError_t (*wait)(void *user, cudaEvent_t event);
    void *user;
} gd_cuda_waiter;

/* Room for the parts of a sum over a whole array (kernels/copy/packed.cu). */
#define GD_CUDA_SUMS 1024

/* Events for the last marks (gd_device_table.mark). */
#define GD_CUDA_MARKS 16

typedef struct gd_cuda {
    cudaStream_t stream;
    gd_cuda_staging staging[GD_STAGING_PIECES];
    unsigned staged; /* pieces used so far */
    cudaEvent_t mark[GD_CUDA_MARKS];
    cudaEvent_t end; /* of all that was asked for, to wait for it */
    gd_cuda_fault fault[GD_CUDA_FAULTS];
    int faults;
    volatile int64_t *fault_words; /* pinned, GD_CUDA_FAULTS of them */
    double *sums;                  /* GD_CUDA_SUMS of them, on the device */
    unsigned *sums_done;           /* after them: the number of parts written, 0 between sums */
    cublasLtHandle_t blas;         /* NULL until gd_cuda_blas is first called */
    /* State that kernels/matmul keeps between calls, and its destructor. */
    void *matmul_plans;
    void (*free_matmul_plans)(void *plans);
    gd_cuda_waiter *waiter; /* the last one added, which waits; or NULL */
} gd_cuda;

/* The state of a context on a GPU. */
gd_cuda *gd_cuda_of(const gd_context *ctx);
bool gd_cuda_tf32(const gd_context *ctx); /* gd_context_options.tf32 */

/* The handle of cuBLASLt, created at the first call. NULL, with the error set, if that fails. */
cublasLtHandle_t gd_cuda_blas(gd_context *ctx);

/* The word in which kernels of this call write 1 + the position of an index that is not in [0,
 * limit) (if there are several, of any). Device memory; NULL (nothing is recorded) if there are too
 * many ops. */
int64_t *gd_cuda_fault_word(const gd_call *call, int64_t limit);

/* For a service that computes on the host: memory from the context's allocator (NULL, with the
 * error set, if there is none), and a copy from there to the device, which returns as soon as the
 * host's memory has been read. `what` completes "out of memory: ... bytes for <what>". */
void *gd_cuda_host_allocate(gd_context *ctx, size_t bytes, const char *what);
void gd_cuda_host_release(gd_context *ctx, void *memory, size_t bytes);
gd_status gd_cuda_upload(gd_context *ctx, void *dst, const void *host, size_t bytes);

/* Adds a waiter, in memory of the caller, and removes it. */
void gd_cuda_add_waiter(gd_context *ctx, gd_cuda_waiter *waiter);
void gd_cuda_remove_waiter(gd_context *ctx, gd_cuda_waiter *waiter);

/* Makes a CUDA error the context's: "rms_norm: CUDA: out of memory (2)". GD_OK for cudaSuccess. */
gd_status gd_cuda_check(gd_context *ctx, cudaError_t error, const char *who);

#ifdef __cplusplus
}
#endif
#endif
