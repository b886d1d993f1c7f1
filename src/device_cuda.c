/* device_cuda.c - a GPU as a device: one stream, on which everything is queued in order.
 *
 * The order makes memory simple. A block that goes back to the pool can be handed out at once: the
 * kernels that will write it come behind those that still read it. And the host runs ahead of the
 * device, until it wants to see a number. */
#include "device_cuda.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

gd_cuda *gd_cuda_of(const gd_context *ctx)
{
    return ctx->device_state;
}

gd_status gd_cuda_check(gd_context *ctx, cudaError_t error, const char *who)
{
    if (error == cudaSuccess) return GD_OK;
    gd_status status = error == cudaErrorMemoryAllocation ? GD_ERROR_MEMORY : GD_ERROR_DEVICE;
    return gd_fail(ctx, status, "%s: CUDA: %s (%d)", who, cudaGetErrorString(error), (int)error);
}

/* ---- Opening and closing ------------------------------------------------------------------ */

/* Any trouble here means that there is no usable GPU: no driver, too old a driver, no device. */
static gd_status find_device(gd_context *ctx)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    struct cudaDeviceProp properties;
    int device = 0;
    if (!error && count > 0) error = cudaGetDevice(&device);
    if (!error && count > 0) error = cudaGetDeviceProperties(&properties, device);
    if (error || count == 0) {
        cudaGetLastError(); /* it would come up again in the next call */
        return gd_fail(ctx, GD_ERROR_DEVICE, "no CUDA device: %s",
                       error ? cudaGetErrorString(error) : "the driver lists none");
    }
    snprintf(ctx->device_name, sizeof ctx->device_name, "cuda, %.80s, compute capability %d.%d",
             properties.name, properties.major, properties.minor);
    return GD_OK;
}

static cudaError_t make_state(gd_cuda *cuda)
{
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    for (int i = 0; !error && i < 2; i++) {
        gd_cuda_staging *half = &cuda->staging[i];
        error = cudaMallocHost(&half->pinned, GD_STAGING_BYTES);
        if (!error) error = cudaEventCreateWithFlags(&half->free, cudaEventDisableTiming);
    }
    void *words = NULL;
    if (!error) error = cudaMallocHost(&words, GD_CUDA_FAULTS * sizeof(int64_t));
    if (!error) memset(words, 0, GD_CUDA_FAULTS * sizeof(int64_t));
    cuda->fault_words = words;
    if (!error) error = cudaMalloc((void **)&cuda->sums, GD_CUDA_SUMS * sizeof(double));
    if (!error) error = cudaMallocHost((void **)&cuda->host_sums, GD_CUDA_SUMS * sizeof(double));
    return error;
}

static void free_state(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    if (!cuda) return;
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    if (cuda->free_matmul_plans) cuda->free_matmul_plans(cuda->matmul_plans);
    if (cuda->blas) cublasLtDestroy(cuda->blas);
    for (int i = 0; i < 2; i++) {
        if (cuda->staging[i].free) cudaEventDestroy(cuda->staging[i].free);
        if (cuda->staging[i].pinned) cudaFreeHost(cuda->staging[i].pinned);
    }
    if (cuda->fault_words) cudaFreeHost((void *)(uintptr_t)cuda->fault_words);
    if (cuda->sums) cudaFree(cuda->sums);
    if (cuda->host_sums) cudaFreeHost(cuda->host_sums);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    gd_host_release(ctx, cuda, sizeof *cuda);
    ctx->device_state = ctx->stream = NULL;
    cudaGetLastError();
}

static gd_status cuda_open(gd_context *ctx)
{
    if (find_device(ctx)) return ctx->status;
    gd_cuda *cuda = gd_host_allocate(ctx, sizeof *cuda, "a context on a GPU");
    if (!cuda) return ctx->status;
    *cuda = (gd_cuda){.tf32 = ctx->options.tf32};
    ctx->device_state = cuda;
    cudaError_t error = make_state(cuda);
    ctx->stream = cuda->stream;
    if (error) {
        gd_fail(ctx, GD_ERROR_DEVICE, "no CUDA device: %s", cudaGetErrorString(error));
        free_state(ctx);
    }
    return ctx->status;
}

cublasLtHandle_t gd_cuda_blas(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    if (cuda->blas) return cuda->blas;
    cublasStatus_t status = cublasLtCreate(&cuda->blas);
    if (status) {
        cuda->blas = NULL;
        gd_fail(ctx, GD_ERROR_DEVICE, "cuBLASLt: %s (%d)", cublasLtGetStatusString(status),
                (int)status);
    }
    return cuda->blas;
}

/* ---- Memory ------------------------------------------------------------------------------- */

static void *cuda_allocate(gd_context *ctx, size_t bytes)
{
    (void)ctx;
    void *data = NULL;
    if (cudaMalloc(&data, bytes)) {
        cudaGetLastError(); /* the pool tries again, and then tells */
        return NULL;
    }
    return data;
}

/* cudaFree waits for the device, so nothing that is freed is still in use. */
static void cuda_release(gd_context *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    cudaFree(data);
}

static gd_status cuda_fill_bytes(gd_context *ctx, void *dst, int byte, size_t bytes)
{
    if (bytes == 0) return GD_OK;
    return gd_cuda_check(ctx, cudaMemsetAsync(dst, byte, bytes, gd_cuda_of(ctx)->stream), "fill");
}

void *gd_cuda_host_allocate(gd_context *ctx, size_t bytes, const char *what)
{
    return gd_host_allocate(ctx, bytes, what);
}

void gd_cuda_host_release(gd_context *ctx, void *memory, size_t bytes)
{
    gd_host_release(ctx, memory, bytes);
}

/* ---- Waiting, and what came out of it ------------------------------------------------------ */

int64_t *gd_cuda_fault_word(const gd_call *call, int64_t limit)
{
    gd_cuda *cuda = gd_cuda_of(call->context);
    int i = 0;
    while (i < cuda->faults && (cuda->fault[i].op != call->op || cuda->fault[i].limit != limit))
        i++;
    if (i == GD_CUDA_FAULTS) return NULL;
    if (i == cuda->faults) {
        cuda->fault[i] = (gd_cuda_fault){call->op, limit, cuda->fault_words + i};
        cuda->faults++;
    }
    return (int64_t *)(uintptr_t)cuda->fault[i].position; /* the same address on the device */
}

static gd_status check_faults(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    for (int i = 0; i < cuda->faults; i++) {
        gd_cuda_fault *fault = &cuda->fault[i];
        if (*fault->position == 0) continue;
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the index at position %lld is outside [0, %lld)",
                fault->op->name, (long long)(*fault->position - 1), (long long)fault->limit);
        *fault->position = 0;
    }
    return ctx->status;
}

static gd_status cuda_synchronize(gd_context *ctx)
{
    cudaError_t error = cudaStreamSynchronize(gd_cuda_of(ctx)->stream);
    if (gd_cuda_check(ctx, error, "synchronize")) return ctx->status;
    return check_faults(ctx);
}

/* ---- Copies between host and device -------------------------------------------------------- */

/* Returns as soon as the host's memory has been read. */
gd_status gd_cuda_upload(gd_context *ctx, void *dst, const void *host, size_t bytes)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    for (size_t done = 0, turn = 0; done < bytes; done += GD_STAGING_BYTES, turn++) {
        gd_cuda_staging *half = &cuda->staging[turn % 2];
        size_t size = bytes - done < GD_STAGING_BYTES ? bytes - done : GD_STAGING_BYTES;
        cudaError_t error = cudaEventSynchronize(half->free);
        if (!error) {
            memcpy(half->pinned, (const char *)host + done, size);
            error = cudaMemcpyAsync((char *)dst + done, half->pinned, size, cudaMemcpyHostToDevice,
                                    cuda->stream);
        }
        if (!error) error = cudaEventRecord(half->free, cuda->stream);
        if (gd_cuda_check(ctx, error, "upload")) return ctx->status;
    }
    return GD_OK;
}

/* One piece is on its way while the one before it is copied out. */
static gd_status cuda_download(gd_context *ctx, void *host, const void *src, size_t bytes)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    size_t pieces = (bytes + GD_STAGING_BYTES - 1) / GD_STAGING_BYTES;
    for (size_t piece = 0; piece <= pieces; piece++) {
        cudaError_t error = cudaSuccess;
        if (piece < pieces) {
            gd_cuda_staging *half = &cuda->staging[piece % 2];
            size_t at = piece * GD_STAGING_BYTES;
            size_t size = bytes - at < GD_STAGING_BYTES ? bytes - at : GD_STAGING_BYTES;
            error = cudaMemcpyAsync(half->pinned, (const char *)src + at, size,
                                    cudaMemcpyDeviceToHost, cuda->stream);
            if (!error) error = cudaEventRecord(half->free, cuda->stream);
        }
        if (!error && piece > 0) {
            gd_cuda_staging *half = &cuda->staging[(piece - 1) % 2];
            size_t at = (piece - 1) * GD_STAGING_BYTES;
            size_t size = bytes - at < GD_STAGING_BYTES ? bytes - at : GD_STAGING_BYTES;
            error = cudaEventSynchronize(half->free);
            if (!error) memcpy((char *)host + at, half->pinned, size);
        }
        if (gd_cuda_check(ctx, error, "download")) return ctx->status;
    }
    return check_faults(ctx);
}

/* ---- For profilers ------------------------------------------------------------------------- */

static void cuda_op_begin(gd_context *ctx, const char *name, bool backward)
{
    (void)ctx;
    char label[96];
    snprintf(label, sizeof label, "%s%s", name, backward ? " backward" : "");
    nvtxRangePushA(label);
}

static void cuda_op_end(gd_context *ctx)
{
    (void)ctx;
    nvtxRangePop();
}

const gd_device_table gd_device_cuda = {
    .device = GD_CUDA,
    .open = cuda_open,
    .close = free_state,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .upload = gd_cuda_upload,
    .download = cuda_download,
    .fill_bytes = cuda_fill_bytes,
    .synchronize = cuda_synchronize,
    .op_begin = cuda_op_begin,
    .op_end = cuda_op_end,
};
