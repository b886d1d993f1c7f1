/* group_cuda.c - collectives by NCCL, on a stream separate from that of the context.
 *
 *     context    backward ... | ... backward ... | ... backward | wait | norm, update of a slice |
 *     NCCL                    fork  bucket 0       bucket 1 ...  join                 bucket 0 ...
 *
 * Events synchronize the two streams, so the graph of a captured step contains both. Bytes of the
 * host have a communicator and a stream of their own, so that the host can get them while a step
 * runs. Communicators are non-blocking: while the host waits, it also looks at the files of the
 * other ranks, and it aborts NCCL's kernels when a rank is gone (wait_for_event).
 *
 * Every run gives the same bits: reduce-scatter uses the ring algorithm, all-reduce (of few
 * numbers) the tree, both with the protocol "Simple"; NVLink multicast (NVLS), whose switches add
 * in the order of arrival, is off. NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE override this if they
 * are set. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "group/group.h"
#include "platform/clock.h"

#ifdef GD_HAVE_NCCL

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device_cuda.h"

enum { DATA, BYTES, COMMS }; /* communicators */
enum { PART = 4096 }; /* bytes of a rank that are gathered at once, with the call before them */

_Static_assert(COMMS * sizeof(ncclUniqueId) <= GD_GROUP_ID,
               "a group's id has one for each communicator");

typedef struct lost_comm {
    ncclComm_t comm;
    atomic_int *aborting;
} lost_comm;

typedef struct nccl {
    ncclComm_t comm[COMMS]; /* NULL: aborted, or */
    lost_comm lost[COMMS];  /* being aborted, by a thread each, */
    atomic_int aborting;    /* as many as still run */
    cudaStream_t stream[COMMS];
    cudaEvent_t forked, joined, gathered;
    char *host, *device; /* [1 + ranks][PART]: this rank's part, and those of all */
    uint32_t calls;      /* that gathered bytes */
    gd_cuda_waiter waiter;
} nccl;

/* ---- Errors and waiting ---------------------------------------------------------------------- */

static void *abort_lost(void *lost)
{
    lost_comm *l = lost;
    ncclCommAbort(l->comm);
    atomic_fetch_sub(l->aborting, 1);
    return NULL;
}

/* ncclCommAbort ends NCCL's kernels at once, but does not return before the graphs that contain
 * them are gone, which the caller frees after it has seen the error, nor before the kernels of the
 * other communicator have ended. So each has its own thread. */
static void abort_nccl(gd_group *group)
{
    nccl *n = group->state;
    for (int i = 0; i < COMMS; i++) {
        pthread_t thread;
        if (!n->comm[i]) continue;
        n->lost[i] = (lost_comm){n->comm[i], &n->aborting};
        n->comm[i] = NULL;
        atomic_fetch_add(&n->aborting, 1);
        if (!pthread_create(&thread, NULL, abort_lost, &n->lost[i]))
            pthread_detach(thread);
        else
            atomic_fetch_sub(&n->aborting, 1);
    }
}

/* NCCL seldom reports which rank failed: the ranks' files do, at the latest a second after it. */
static gd_status check(gd_group *group, ncclResult_t result)
{
    const double since = gd_os_now();
    if (result == ncclSuccess || result == ncclInProgress) return gd_error_status(group->ctx);
    while (gd_os_now() < since + 1) {
        if (gd_group_look(group, since)) return gd_error_status(group->ctx);
        gd_os_nap(0.01);
    }
    return gd_group_abort(group, group->rank, ncclGetErrorString(result));
}

/* Waits until a non-blocking call has completed on the host. */
static gd_status settle(gd_group *group, int which, ncclResult_t result)
{
    nccl *n = group->state;
    const double since = gd_os_now();
    while (result == ncclInProgress && !gd_group_look(group, since)) {
        gd_os_nap(2e-4);
        if (ncclCommGetAsyncError(n->comm[which], &result)) result = ncclInternalError;
    }
    return check(group, result);
}

static gd_status check_cuda(gd_group *group, cudaError_t error)
{
    return gd_cuda_check(group->ctx, error, group->who);
}

/* A gd_cuda_waiter: other ranks may be gone meanwhile. */
static cudaError_t wait_for_event(void *user, cudaEvent_t event)
{
    gd_group *group = user;
    nccl *n = group->state;
    const double since = gd_os_now();
    cudaError_t error;
    while ((error = cudaEventQuery(event)) == cudaErrorNotReady && !gd_failed(group->ctx)) {
        cudaGetLastError(); /* cudaErrorNotReady is no error; do not report it later */
        for (int i = 0; i < COMMS && !gd_failed(group->ctx); i++) {
            ncclResult_t result = ncclSuccess;
            if (n->comm[i]) ncclCommGetAsyncError(n->comm[i], &result);
            check(group, result);
        }
        if (gd_group_look(group, since)) break;
        gd_os_nap(2e-5);
    }
    return error == cudaErrorNotReady ? cudaErrorUnknown : error; /* the group's error is set */
}

/* ---- Opening and closing -------------------------------------------------------------------- */

/* NCCL reads these when the communicator is created. */
static void fix_order(void)
{
    int version = 0;
    ncclGetVersion(&version);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_PROTO", "Simple", 0);
    setenv("NCCL_ALGO", version >= 22400 ? "ring;allreduce:tree" : "Ring,Tree", 0);
}

static gd_status nccl_prepare(gd_group *group)
{
    ncclUniqueId id;
    fix_order();
    for (size_t i = 0; i < COMMS; i++) {
        const ncclResult_t result = ncclGetUniqueId(&id);
        if (result != ncclSuccess) {
            return gd_fail(group->ctx, GD_ERROR_DEVICE, "%s: NCCL has no id: %s", group->who,
                           ncclGetErrorString(result));
        }
        memcpy(group->id + i * sizeof id, &id, sizeof id);
    }
    return GD_OK;
}

/* The memory by which bytes are gathered. */
static cudaError_t make_parts(nccl *n, size_t ranks)
{
    const size_t bytes = (1 + ranks) * PART;
    cudaError_t error = cudaHostAlloc((void **)&n->host, bytes, cudaHostAllocDefault);
    return error ? error : cudaMalloc((void **)&n->device, bytes);
}

static gd_status make_streams(gd_group *group)
{
    nccl *n = group->state;
    int lowest = 0, highest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (!error) error = cudaStreamCreateWithFlags(&n->stream[DATA], cudaStreamNonBlocking);
    if (!error)
        error = cudaStreamCreateWithPriority(&n->stream[BYTES], cudaStreamNonBlocking, highest);
    if (!error) error = cudaEventCreateWithFlags(&n->forked, cudaEventDisableTiming);
    if (!error) error = cudaEventCreateWithFlags(&n->joined, cudaEventDisableTiming);
    if (!error) error = cudaEventCreateWithFlags(&n->gathered, cudaEventDisableTiming);
    if (!error) error = make_parts(n, (size_t)group->ranks);
    return check_cuda(group, error);
}

static gd_status nccl_open(gd_group *group)
{
    gd_context *ctx = group->ctx;
    nccl *n = gd_host_allocate(ctx, sizeof *n, "a group");
    if (!n) return ctx->status;
    *n = (nccl){0};
    group->state = n;
    fix_order();
    if (make_streams(group)) return ctx->status;
    for (int i = 0; i < COMMS; i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;
        config.blocking = 0;
        if (i == BYTES) config.minCTAs = config.maxCTAs = 1;
        memcpy(&id, group->id + (size_t)i * sizeof id, sizeof id);
        if (settle(group, i,
                   ncclCommInitRankConfig(&n->comm[i], group->ranks, id, group->rank, &config)))
            return ctx->status;
    }
    n->waiter = (gd_cuda_waiter){.wait = wait_for_event, .user = group};
    gd_cuda_add_waiter(ctx, &n->waiter);
    return GD_OK;
}

static void nccl_close(gd_group *group)
{
    nccl *n = group->state;
    gd_cuda_remove_waiter(group->ctx, &n->waiter);
    if (group->aborted || gd_failed(group->ctx)) abort_nccl(group);
    for (int i = 0; i < COMMS && n->comm[DATA]; i++) {
        cudaStreamSynchronize(n->stream[i]);
        settle(group, i, ncclCommFinalize(n->comm[i]));
    }
    for (int i = 0; i < COMMS; i++) {
        if (n->comm[i]) ncclCommDestroy(n->comm[i]);
    }
    const double deadline = gd_os_now() + 5;
    while (atomic_load(&n->aborting) && gd_os_now() < deadline) gd_os_nap(5e-3);
    if (n->forked) cudaEventDestroy(n->forked);
    if (n->joined) cudaEventDestroy(n->joined);
    if (n->gathered) cudaEventDestroy(n->gathered);
    for (int i = 0; i < COMMS; i++) {
        if (n->stream[i]) cudaStreamDestroy(n->stream[i]);
    }
    if (atomic_load(&n->aborting)) return; /* what the thread may use stays */
    cudaFree(n->device);
    cudaFreeHost(n->host);
    gd_host_release(group->ctx, n, sizeof *n);
}

/* ---- Streams -------------------------------------------------------------------------------- */

static gd_status nccl_fork(gd_group *group)
{
    const nccl *n = group->state;
    cudaError_t error = cudaEventRecord(n->forked, gd_cuda_of(group->ctx)->stream);
    if (!error) error = cudaStreamWaitEvent(n->stream[DATA], n->forked, 0);
    return check_cuda(group, error);
}

static gd_status nccl_join(gd_group *group)
{
    const nccl *n = group->state;
    cudaError_t error = cudaEventRecord(n->joined, n->stream[DATA]);
    if (!error) error = cudaStreamWaitEvent(gd_cuda_of(group->ctx)->stream, n->joined, 0);
    return check_cuda(group, error);
}

/* ---- Collectives ---------------------------------------------------------------------------- */

static ncclDataType_t type_of(gd_dtype dtype)
{
    static const ncclDataType_t types[] = {[GD_FLOAT32] = ncclFloat32,
                                           [GD_FLOAT64] = ncclFloat64,
                                           [GD_FLOAT16] = ncclFloat16,
                                           [GD_BFLOAT16] = ncclBfloat16,
                                           [GD_INT32] = ncclInt32};
    return types[dtype];
}

/* NCCL needs slices of equal length; the remainder belongs to the last rank (gd_slice_length). */
typedef struct parts {
    size_t each, rest; /* elements */
    char *own, *over;  /* this rank's slice, and the remainder */
} parts;

static parts cut(const gd_group *group, void *data, gd_dtype dtype, int64_t n)
{
    const size_t size = gd_dtype_size(dtype), ranks = (size_t)group->ranks;
    const size_t each = (size_t)gd_slice_length(n, group->ranks);
    return (parts){.each = each,
                   .rest = (size_t)n - each * ranks,
                   .own = (char *)data + (size_t)group->rank * each * size,
                   .over = (char *)data + each * ranks * size};
}

/* Ends an NCCL group of two calls, and returns the first error. */
static gd_status end_group(gd_group *group, ncclResult_t first, ncclResult_t second)
{
    const ncclResult_t ended = ncclGroupEnd();
    if (first != ncclSuccess && first != ncclInProgress) return check(group, first);
    if (second != ncclSuccess && second != ncclInProgress) return check(group, second);
    return settle(group, DATA, ended);
}

static gd_status reduce_scatter(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    const nccl *c = group->state;
    const parts p = cut(group, data, dtype, n);
    const ncclRedOp_t op = mean ? ncclAvg : ncclSum;
    ncclResult_t first = ncclSuccess, second = ncclSuccess;
    if (check(group, ncclGroupStart())) return group->ctx->status;
    if (p.each)
        first = ncclReduceScatter(data, p.own, p.each, type_of(dtype), op, c->comm[DATA],
                                  c->stream[DATA]);
    if (p.rest)
        second = ncclAllReduce(p.over, p.over, p.rest, type_of(dtype), op, c->comm[DATA],
                               c->stream[DATA]);
    return end_group(group, first, second);
}

static gd_status all_gather(gd_group *group, void *data, gd_dtype dtype, int64_t n)
{
    const nccl *c = group->state;
    const parts p = cut(group, data, dtype, n);
    ncclResult_t first = ncclSuccess, second = ncclSuccess;
    if (check(group, ncclGroupStart())) return group->ctx->status;
    if (p.each)
        first = ncclAllGather(p.own, data, p.each, type_of(dtype), c->comm[DATA], c->stream[DATA]);
    if (p.rest)
        second = ncclBroadcast(p.over, p.over, p.rest, type_of(dtype), group->ranks - 1,
                               c->comm[DATA], c->stream[DATA]);
    return end_group(group, first, second);
}

static gd_status all_reduce(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    const nccl *c = group->state;
    return settle(group, DATA,
                  ncclAllReduce(data, data, (size_t)n, type_of(dtype), mean ? ncclAvg : ncclSum,
                                c->comm[DATA], c->stream[DATA]));
}

static gd_status broadcast(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root)
{
    const nccl *c = group->state;
    return settle(
        group, DATA,
        ncclBroadcast(data, data, (size_t)n, type_of(dtype), root, c->comm[DATA], c->stream[DATA]));
}

/* Gathers the parts in n->host, of which the first is this rank's. */
static gd_status gather_parts(gd_group *group)
{
    nccl *n = group->state;
    const cudaStream_t stream = n->stream[BYTES];
    const size_t all = (size_t)group->ranks * PART;
    if (check_cuda(group,
                   cudaMemcpyAsync(n->device, n->host, PART, cudaMemcpyHostToDevice, stream)))
        return group->ctx->status;
    if (settle(group, BYTES,
               ncclAllGather(n->device, n->device + PART, PART, ncclChar, n->comm[BYTES], stream)))
        return group->ctx->status;
    cudaError_t error =
        cudaMemcpyAsync(n->host + PART, n->device + PART, all, cudaMemcpyDeviceToHost, stream);
    if (!error) error = cudaEventRecord(n->gathered, stream);
    if (!error) error = wait_for_event(group, n->gathered);
    return gd_failed(group->ctx) ? group->ctx->status : check_cuda(group, error);
}

static gd_status all_gather_bytes(gd_group *group, const void *mine, size_t bytes, void *all,
                                  bool first)
{
    nccl *n = group->state;
    const gd_group_call call = gd_group_call_of(group, bytes, ++n->calls);
    const size_t most = PART - sizeof call;
    size_t at = 0, part;
    if (!gd_outside_graph(group->ctx, group->who)) return group->ctx->status;
    do {
        part = bytes - at < most ? bytes - at : most;
        memcpy(n->host, &call, sizeof call);
        if (part) memcpy(n->host + sizeof call, (const char *)mine + at, part);
        if (gather_parts(group)) return group->ctx->status;
        for (int i = 0; i < group->ranks; i++) {
            const char *from = n->host + (size_t)(1 + i) * PART;
            gd_group_call theirs;
            memcpy(&theirs, from, sizeof theirs);
            if (gd_group_compare(group, i, &call, &theirs)) return group->ctx->status;
            if (part && (!first || i == 0))
                memcpy((char *)all + (size_t)i * bytes + at, from + sizeof call, part);
        }
        at += part;
    } while (at < bytes);
    return GD_OK;
}

const gd_transport gd_transport_cuda = {
    .prepare = nccl_prepare,
    .open = nccl_open,
    .close = nccl_close,
    .abort = abort_nccl,
    .fork = nccl_fork,
    .join = nccl_join,
    .broadcast = broadcast,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_reduce = all_reduce,
    .all_gather_bytes = all_gather_bytes,
};

#else

static gd_status no_nccl(gd_group *group)
{
    return gd_fail(group->ctx, GD_ERROR_UNSUPPORTED,
                   "%s: several GPUs need NCCL, which this build of gradus does not have "
                   "(GRADUS_NCCL); NVIDIA's and Debian's package is libnccl-dev",
                   group->who);
}

const gd_transport gd_transport_cuda = {.prepare = no_nccl, .open = no_nccl};

#endif
