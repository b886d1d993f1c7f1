/* device_cuda.c - a GPU as a device: one stream, on which everything is queued in order.
 *
 * The order makes memory management simple. A block returned to the pool can be reused at once: the
 * kernels that will write to it are queued after those that still read it. And the host runs ahead
 * of the device until it needs a number from it. */
#include "cuda/device_cuda.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "cuda/cuda_code.h"
#include "cuda/device_limits.h"

gd_cuda *gd_cuda_of(const gd_context *ctx)
{
    return ctx->device_state;
}

bool gd_cuda_tf32(const gd_context *ctx)
{
    return ctx->options.tf32;
}

gd_status gd_cuda_check(gd_context *ctx, cudaError_t error, const char *who)
{
    if (error == cudaSuccess) return GD_OK;
    gd_status status = error == cudaErrorMemoryAllocation ? GD_ERROR_MEMORY : GD_ERROR_DEVICE;
    return gd_fail(ctx, status, "%s: CUDA: %s (%d)", who, cudaGetErrorString(error), (int)error);
}

/* ---- Opening and closing ------------------------------------------------------------------ */

/* Whether the code of this build runs on the GPU, and what to tell of it. */
static gd_status check_code(gd_context *ctx, const char *name)
{
    const gd_cuda_limits limits = gd_cuda_device_limits();
    const int gpu = limits.capability;
    char built_for[128];
    if (limits.code == 0) {
        gd_cuda_code_text(gd_cuda_code_list, built_for, sizeof built_for);
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "this build has GPU code for %s, and this GPU (%s) is %d.%d: build with "
                       "-DCMAKE_CUDA_ARCHITECTURES=native",
                       built_for, name, gpu / 10, gpu % 10);
    }
    if (gd_cuda_code_for(gd_cuda_code_list, gpu) != GD_CUDA_CODE_MACHINE) {
        snprintf(ctx->device_note, sizeof ctx->device_note,
                 "this build has no machine code for this GPU (%s, %d.%d): the driver compiles the "
                 "code of compute capability %d.%d for it when it is first used, which may take a "
                 "minute, and keeps the result",
                 name, gpu / 10, gpu % 10, limits.code / 10, limits.code % 10);
    }
    return GD_OK;
}

/* A status that is not GD_OK means that there is no usable GPU: no driver, a driver that is too
 * old, no device, or no code for it. */
static gd_status find_device(gd_context *ctx)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    struct cudaDeviceProp properties;
    int device = 0;
    if (!error && count > 0) error = cudaGetDevice(&device);
    if (!error && count > 0) error = cudaGetDeviceProperties(&properties, device);
    if (error || count == 0) {
        cudaGetLastError(); /* or the next call would return it */
        return gd_fail(ctx, GD_ERROR_DEVICE, "no CUDA device: %s",
                       error ? cudaGetErrorString(error) : "the driver lists none");
    }
    if (check_code(ctx, properties.name)) return ctx->status;
    const int code = gd_cuda_device_limits().code;
    char what[32] = "compute capability";
    if (code != 10 * properties.major + properties.minor)
        snprintf(what, sizeof what, "compute_%d code on", code);
    snprintf(ctx->device_name, sizeof ctx->device_name, "cuda, %.80s, %s %d.%d", properties.name,
             what, properties.major, properties.minor);
    return GD_OK;
}

static cudaError_t make_state(gd_cuda *cuda)
{
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    void *pinned = NULL;
    if (!error) error = cudaMallocHost(&pinned, GD_STAGING_PIECES * GD_STAGING_BYTES);
    cuda->staging[0].pinned = pinned;
    for (int i = 0; !error && i < GD_STAGING_PIECES; i++) {
        cuda->staging[i].pinned = (char *)pinned + (size_t)i * GD_STAGING_BYTES;
        error = cudaEventCreateWithFlags(&cuda->staging[i].free, cudaEventDisableTiming);
    }
    for (int i = 0; !error && i < GD_CUDA_MARKS; i++)
        error = cudaEventCreateWithFlags(&cuda->mark[i], cudaEventDisableTiming);
    if (!error) error = cudaEventCreateWithFlags(&cuda->end, cudaEventDisableTiming);
    void *words = NULL;
    if (!error) error = cudaMallocHost(&words, GD_CUDA_FAULTS * sizeof(int64_t));
    if (!error) memset(words, 0, GD_CUDA_FAULTS * sizeof(int64_t));
    cuda->fault_words = words;
    const size_t sums = (GD_CUDA_SUMS + 1) * sizeof(double);
    if (!error) error = cudaMalloc((void **)&cuda->sums, sums);
    if (!error) error = cudaMemsetAsync(cuda->sums, 0, sums, cuda->stream);
    if (!error) cuda->sums_done = (unsigned *)(cuda->sums + GD_CUDA_SUMS);
    return error;
}

static void free_state(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    if (!cuda) return;
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    if (cuda->free_matmul_plans) cuda->free_matmul_plans(cuda->matmul_plans);
    if (cuda->blas) cublasLtDestroy(cuda->blas);
    for (int i = 0; i < GD_STAGING_PIECES; i++) {
        if (cuda->staging[i].free) cudaEventDestroy(cuda->staging[i].free);
    }
    for (int i = 0; i < GD_CUDA_MARKS; i++) {
        if (cuda->mark[i]) cudaEventDestroy(cuda->mark[i]);
    }
    if (cuda->end) cudaEventDestroy(cuda->end);
    if (cuda->staging[0].pinned) cudaFreeHost(cuda->staging[0].pinned);
    if (cuda->fault_words) cudaFreeHost((void *)(uintptr_t)cuda->fault_words);
    if (cuda->sums) cudaFree(cuda->sums);
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
    *cuda = (gd_cuda){0};
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
        cudaGetLastError(); /* the pool tries again, and reports it */
        return NULL;
    }
    return data;
}

/* cudaFree waits for the device, so that freed memory is no longer in use. */
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

static void *cuda_shared_allocate(gd_context *ctx, size_t bytes)
{
    void *data = NULL;
    gd_cuda_check(ctx, cudaMallocHost(&data, bytes), "pinned memory");
    return data;
}

static void cuda_shared_release(gd_context *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    cudaFreeHost(data);
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
    const gd_op *op = call->part_of ? call->part_of : call->op;
    int i = 0;
    while (i < cuda->faults && (cuda->fault[i].op != op || cuda->fault[i].limit != limit)) i++;
    if (i == GD_CUDA_FAULTS) return NULL;
    if (i == cuda->faults) {
        cuda->fault[i] = (gd_cuda_fault){op, limit, cuda->fault_words + i};
        cuda->faults++;
    }
    return (int64_t *)(uintptr_t)cuda->fault[i].position; /* the same address on the device */
}

static bool has_fault(const gd_cuda *cuda)
{
    for (int i = 0; i < cuda->faults; i++) {
        if (*cuda->fault[i].position) return true;
    }
    return false;
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

/* A device that waits for another rank may wait forever: the host checks that the rank is there. */
static cudaError_t wait_for_event(gd_context *ctx, cudaEvent_t event)
{
    const gd_cuda_waiter *waiter = gd_cuda_of(ctx)->waiter;
    return waiter ? waiter->wait(waiter->user, event) : cudaEventSynchronize(event);
}

static cudaError_t wait_for_stream(gd_context *ctx)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    if (!cuda->waiter) return cudaStreamSynchronize(cuda->stream);
    cudaError_t error = cudaEventRecord(cuda->end, cuda->stream);
    return error ? error : wait_for_event(ctx, cuda->end);
}

/* Copies directly: a download would report faults that an update has yet to see. */
static bool cuda_is_filled(gd_context *ctx, const void *data, int byte, size_t bytes)
{
    unsigned char host[GD_MARGIN];
    cudaStream_t stream = gd_cuda_of(ctx)->stream;
    cudaError_t error = cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream);
    if (!error) error = wait_for_stream(ctx);
    if (gd_cuda_check(ctx, error, "guard")) return true; /* of which nothing is known */
    size_t same = 0;
    while (same < bytes && host[same] == byte) same++;
    return same == bytes;
}

static gd_status cuda_synchronize(gd_context *ctx)
{
    ctx->waits++;
    cudaError_t error = wait_for_stream(ctx);
    if (gd_cuda_check(ctx, error, "synchronize")) return ctx->status;
    return check_faults(ctx);
}

void gd_cuda_add_waiter(gd_context *ctx, gd_cuda_waiter *waiter)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    waiter->next = cuda->waiter;
    cuda->waiter = waiter;
}

void gd_cuda_remove_waiter(gd_context *ctx, gd_cuda_waiter *waiter)
{
    gd_cuda_waiter **link = &gd_cuda_of(ctx)->waiter;
    while (*link && *link != waiter) link = &(*link)->next;
    if (*link) *link = waiter->next;
}

/* Whether the device has passed an event. If not, CUDA's status must be cleared, or it would look
 * like an error of the next launch. */
static cudaError_t query(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) cudaGetLastError();
    return error;
}

/* Waits for an event, if necessary. */
static cudaError_t wait_for(gd_context *ctx, cudaEvent_t event)
{
    cudaError_t error = query(event);
    if (error != cudaErrorNotReady) return error;
    ctx->waits++;
    return wait_for_event(ctx, event);
}

static gd_status cuda_mark(gd_context *ctx, int64_t number)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    return gd_cuda_check(ctx, cudaEventRecord(cuda->mark[number % GD_CUDA_MARKS], cuda->stream),
                         "mark");
}

/* An event that was recorded again since then is a later mark, which this one precedes. */
static bool cuda_passed(gd_context *ctx, int64_t number, bool wait)
{
    cudaEvent_t event = gd_cuda_of(ctx)->mark[number % GD_CUDA_MARKS];
    cudaError_t error = wait ? wait_for(ctx, event) : query(event);
    if (error == cudaErrorNotReady) return false;
    if (gd_cuda_check(ctx, error, "wait")) return false;
    /* A note may come from a later step, whose update must see it: it stays until then. */
    return !has_fault(gd_cuda_of(ctx)) || !cuda_synchronize(ctx);
}

/* ---- Graphs --------------------------------------------------------------------------------- */

/* Relaxed: this thread and others may allocate memory meanwhile, since no graph of ours contains an
 * allocation. */
static gd_status cuda_capture_begin(gd_context *ctx)
{
    cudaError_t error =
        cudaStreamBeginCapture(gd_cuda_of(ctx)->stream, cudaStreamCaptureModeRelaxed);
    return gd_cuda_check(ctx, error, "capture");
}

static void *cuda_capture_end(gd_context *ctx)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t error = cudaStreamEndCapture(gd_cuda_of(ctx)->stream, &graph);
    if (!error && !gd_failed(ctx)) error = cudaGraphInstantiateWithFlags(&ready, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    gd_cuda_check(ctx, error, "capture");
    if (error) cudaGetLastError(); /* or the next launch would return it */
    return ready;
}

static gd_status cuda_replay(gd_context *ctx, void *graph)
{
    return gd_cuda_check(ctx, cudaGraphLaunch(graph, gd_cuda_of(ctx)->stream), "replay");
}

static void cuda_graph_free(gd_context *ctx, void *graph)
{
    (void)ctx;
    cudaGraphExecDestroy(graph);
}

/* ---- Copies between host and device -------------------------------------------------------- */

static gd_cuda_staging *next_staging(gd_cuda *cuda)
{
    return &cuda->staging[cuda->staged++ % GD_STAGING_PIECES];
}

/* Returns as soon as the host's memory has been read. */
gd_status gd_cuda_upload(gd_context *ctx, void *dst, const void *host, size_t bytes)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    for (size_t done = 0; done < bytes; done += GD_STAGING_BYTES) {
        gd_cuda_staging *piece = next_staging(cuda);
        size_t size = bytes - done < GD_STAGING_BYTES ? bytes - done : GD_STAGING_BYTES;
        cudaError_t error = wait_for(ctx, piece->free);
        if (!error) {
            memcpy(piece->pinned, (const char *)host + done, size);
            error = cudaMemcpyAsync((char *)dst + done, piece->pinned, size, cudaMemcpyHostToDevice,
                                    cuda->stream);
        }
        if (!error) error = cudaEventRecord(piece->free, cuda->stream);
        if (gd_cuda_check(ctx, error, "upload")) return ctx->status;
    }
    return GD_OK;
}

/* One piece is in transfer while the previous one is copied out. */
static gd_status cuda_download(gd_context *ctx, void *host, const void *src, size_t bytes)
{
    gd_cuda *cuda = gd_cuda_of(ctx);
    gd_cuda_staging *before = NULL;
    size_t size = 0, size_before = 0;
    ctx->waits++;
    for (size_t at = 0; at < bytes || before; at += GD_STAGING_BYTES) {
        cudaError_t error = cudaSuccess;
        gd_cuda_staging *piece = at < bytes ? next_staging(cuda) : NULL;
        if (piece) { /* its previous content precedes this in the stream, and has been read */
            size = bytes - at < GD_STAGING_BYTES ? bytes - at : GD_STAGING_BYTES;
            error = cudaMemcpyAsync(piece->pinned, (const char *)src + at, size,
                                    cudaMemcpyDeviceToHost, cuda->stream);
            if (!error) error = cudaEventRecord(piece->free, cuda->stream);
        }
        if (!error && before) {
            error = wait_for_event(ctx, before->free);
            if (!error) memcpy((char *)host + at - GD_STAGING_BYTES, before->pinned, size_before);
        }
        if (gd_cuda_check(ctx, error, "download")) return ctx->status;
        before = piece;
        size_before = size;
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
    .is_filled = cuda_is_filled,
    .synchronize = cuda_synchronize,
    .shared_allocate = cuda_shared_allocate,
    .shared_release = cuda_shared_release,
    .mark = cuda_mark,
    .passed = cuda_passed,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .graph_free = cuda_graph_free,
    .op_begin = cuda_op_begin,
    .op_end = cuda_op_end,
};
