/* group_cuda.c - collectives by NCCL, on a stream separate from that of the context.
 *
 *     context    backward ... | ... backward ... | ... backward | wait | norm, update of a slice |
 *     NCCL                    fork  bucket 0       bucket 1 ...  join                 bucket 0 ...
 *
 * Events synchronize the two streams, so the graph of a captured step contains both. The
 * communicator is non-blocking: while the host waits, it also polls the control connections, and it aborts NCCL's
 * kernels when a rank is gone (wait_for_event).
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

#include "cuda/device_cuda.h"

typedef struct nccl {
    ncclComm_t comm;      /* NULL: aborted, or */
    ncclComm_t lost;      /* being aborted, by a thread, */
    atomic_bool aborting; /* as long as it runs */
    cudaStream_t stream;
    cudaEvent_t forked, joined;
    gd_cuda_waiter waiter;
} nccl;

/* ---- Errors and waiting ---------------------------------------------------------------------- */

static void *abort_lost(void *state)
{
    nccl *n = state;
    ncclCommAbort(n->lost);
    atomic_store(&n->aborting, false);
    return NULL;
}

/* ncclCommAbort ends NCCL's kernels at once, but does not return before the graphs that contain
 * them are gone, which the caller frees after it has seen the error. So it has its own thread. */
static void abort_nccl(gd_group *group)
{
    nccl *n = group->state;
    pthread_t thread;
    if (!n || !n->comm) return;
    n->lost = n->comm;
    n->comm = NULL;
    atomic_store(&n->aborting, true);
    if (!pthread_create(&thread, NULL, abort_lost, n))
        pthread_detach(thread);
    else
        atomic_store(&n->aborting, false);
}

/* NCCL seldom reports which rank failed, so look for a reason on the control connections first. */
static gd_status check(gd_group *group, ncclResult_t result)
{
    if (result == ncclSuccess || result == ncclInProgress) return gd_error_status(group->ctx);
    if (gd_group_poll(group, 1)) return gd_error_status(group->ctx);
    return gd_group_abort(group, group->rank, ncclGetErrorString(result));
}

/* Waits until a non-blocking call has completed on the host. */
static gd_status settle(gd_group *group, ncclResult_t result)
{
    nccl *n = group->state;
    const double deadline = gd_os_now() + group->timeout;
    while (result == ncclInProgress && !gd_failed(group->ctx)) {
        if (gd_group_poll(group, 0.0005)) break;
        if (gd_os_now() > deadline)
            return gd_group_abort(group, group->rank, "has waited for NCCL for too long");
        if (ncclCommGetAsyncError(n->comm, &result)) result = ncclInternalError;
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
    const double deadline = gd_os_now() + group->timeout;
    cudaError_t error;
    while ((error = cudaEventQuery(event)) == cudaErrorNotReady && !gd_failed(group->ctx)) {
        ncclResult_t result = ncclSuccess;
        cudaGetLastError(); /* cudaErrorNotReady is no error; do not report it later */
        if (n->comm) ncclCommGetAsyncError(n->comm, &result);
        if (check(group, result) || gd_group_poll(group, 0.0002)) break;
        if (gd_os_now() > deadline)
            gd_group_abort(group, group->rank, "has waited for its GPU for too long");
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

static gd_status nccl_open(gd_group *group)
{
    gd_context *ctx = group->ctx;
    ncclUniqueId id = {{0}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    nccl *n = gd_host_allocate(ctx, sizeof *n, "a group");
    if (!n) return ctx->status;
    *n = (nccl){0};
    group->state = n;
    fix_order();
    config.blocking = 0;
    cudaError_t error = cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking);
    if (!error) error = cudaEventCreateWithFlags(&n->forked, cudaEventDisableTiming);
    if (!error) error = cudaEventCreateWithFlags(&n->joined, cudaEventDisableTiming);
    if (check_cuda(group, error)) return ctx->status;
    if (group->rank == 0 && check(group, ncclGetUniqueId(&id))) return ctx->status;
    if (gd_group_broadcast_within(group, &id, sizeof id)) return ctx->status;
    if (settle(group, ncclCommInitRankConfig(&n->comm, group->ranks, id, group->rank, &config)))
        return ctx->status;
    n->waiter = (gd_cuda_waiter){.wait = wait_for_event, .user = group};
    gd_cuda_add_waiter(ctx, &n->waiter);
    return GD_OK;
}

static void nccl_close(gd_group *group)
{
    nccl *n = group->state;
    gd_cuda_remove_waiter(group->ctx, &n->waiter);
    if (n->comm && (group->aborted || gd_failed(group->ctx))) {
        abort_nccl(group);
    } else if (n->comm) {
        cudaStreamSynchronize(n->stream);
        settle(group, ncclCommFinalize(n->comm));
        if (n->comm) ncclCommDestroy(n->comm);
    }
    const double deadline = gd_os_now() + 5;
    while (atomic_load(&n->aborting) && gd_os_now() < deadline) gd_os_nap(5e-3);
    if (n->forked) cudaEventDestroy(n->forked);
    if (n->joined) cudaEventDestroy(n->joined);
    if (n->stream) cudaStreamDestroy(n->stream);
    if (!atomic_load(&n->aborting)) gd_host_release(group->ctx, n, sizeof *n);
}

/* ---- Streams -------------------------------------------------------------------------------- */

static gd_status nccl_fork(gd_group *group)
{
    const nccl *n = group->state;
    cudaError_t error = cudaEventRecord(n->forked, gd_cuda_of(group->ctx)->stream);
    if (!error) error = cudaStreamWaitEvent(n->stream, n->forked, 0);
    return check_cuda(group, error);
}

static gd_status nccl_join(gd_group *group)
{
    const nccl *n = group->state;
    cudaError_t error = cudaEventRecord(n->joined, n->stream);
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
    return settle(group, ended);
}

static gd_status reduce_scatter(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    const nccl *c = group->state;
    const parts p = cut(group, data, dtype, n);
    const ncclRedOp_t op = mean ? ncclAvg : ncclSum;
    ncclResult_t first = ncclSuccess, second = ncclSuccess;
    if (check(group, ncclGroupStart())) return group->ctx->status;
    if (p.each)
        first = ncclReduceScatter(data, p.own, p.each, type_of(dtype), op, c->comm, c->stream);
    if (p.rest)
        second = ncclAllReduce(p.over, p.over, p.rest, type_of(dtype), op, c->comm, c->stream);
    return end_group(group, first, second);
}

static gd_status all_gather(gd_group *group, void *data, gd_dtype dtype, int64_t n)
{
    const nccl *c = group->state;
    const parts p = cut(group, data, dtype, n);
    ncclResult_t first = ncclSuccess, second = ncclSuccess;
    if (check(group, ncclGroupStart())) return group->ctx->status;
    if (p.each) first = ncclAllGather(p.own, data, p.each, type_of(dtype), c->comm, c->stream);
    if (p.rest)
        second = ncclBroadcast(p.over, p.over, p.rest, type_of(dtype), group->ranks - 1, c->comm,
                               c->stream);
    return end_group(group, first, second);
}

static gd_status all_reduce(gd_group *group, void *data, gd_dtype dtype, int64_t n, bool mean)
{
    const nccl *c = group->state;
    return settle(group, ncclAllReduce(data, data, (size_t)n, type_of(dtype),
                                       mean ? ncclAvg : ncclSum, c->comm, c->stream));
}

static gd_status broadcast(gd_group *group, void *data, gd_dtype dtype, int64_t n, int root)
{
    const nccl *c = group->state;
    return settle(group,
                  ncclBroadcast(data, data, (size_t)n, type_of(dtype), root, c->comm, c->stream));
}

const gd_transport gd_transport_cuda = {
    .open = nccl_open,
    .close = nccl_close,
    .abort = abort_nccl,
    .fork = nccl_fork,
    .join = nccl_join,
    .broadcast = broadcast,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_reduce = all_reduce,
};

#else

static gd_status no_nccl(gd_group *group)
{
    return gd_fail(group->ctx, GD_ERROR_UNSUPPORTED,
                   "%s: several GPUs need NCCL, which this build of gradus does not have "
                   "(GRADUS_NCCL); NVIDIA's and Debian's package is libnccl-dev",
                   group->who);
}

const gd_transport gd_transport_cuda = {.open = no_nccl};

#endif
