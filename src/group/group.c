/* group.c - a group of processes (gradus/group.h): making and leaving one, and its calls. */
#include "group/group.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Making and leaving --------------------------------------------------------------------- */

static const gd_transport *const transports[GD_DEVICE_COUNT] = {
    [GD_CPU] = &gd_transport_cpu,
#ifdef GD_HAVE_CUDA
    [GD_CUDA] = &gd_transport_cuda,
#endif
};

static gd_status check_options(gd_context *ctx, const gd_group_options *o)
{
    if (gd_is_garbage((uintptr_t)o->folder) || !memchr(o->problem, 0, sizeof o->problem)) {
        return gd_fail(
            ctx, GD_ERROR_ARGUMENT,
            "group_create: %s of the options is no text, wanted one with a NUL at its end",
            gd_is_garbage((uintptr_t)o->folder) ? "folder" : "problem");
    }
    if (o->problem[0]) return gd_fail(ctx, GD_ERROR_ARGUMENT, "group_create: %s", o->problem);
    if (o->ranks > 1 && !gd_transport_cpu.open) { /* group_none.c */
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "group_create: ranks is %d, wanted 1: there are no groups of several "
                       "processes on this system",
                       o->ranks);
    }
    if (o->ranks < 1 || o->ranks > GD_GROUP_MOST || o->rank < 0 || o->rank >= o->ranks) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: rank is %d of %d, wanted 0 to ranks - 1, and at most %d",
                       o->rank, o->ranks, GD_GROUP_MOST);
    }
    if (o->ranks > 1 && !(o->folder && o->folder[0])) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: folder is not set, wanted one in which all %d ranks meet",
                       o->ranks);
    }
    if (!(o->timeout > 0) || isinf(o->timeout)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "group_create: timeout is %g, wanted a finite number above 0", o->timeout);
    }
    return GD_OK;
}

static gd_status meet(gd_group *group, const char *folder)
{
    gd_context *ctx = group->ctx;
    group->peers = gd_host_allocate(ctx, (size_t)group->ranks * sizeof *group->peers, "a group");
    if (!group->peers) return ctx->status;
    for (int i = 0; i < group->ranks; i++) group->peers[i] = (gd_peer){.file = -1};
    if (group->ranks == 1) return GD_OK;
    return gd_group_meet(group, folder) ? ctx->status : group->transport->open(group);
}

static void destroy(gd_group *group)
{
    gd_context *ctx = group->ctx;
    gd_group_leave(group);
    if (group->state) group->transport->close(group);
    gd_group_close(group);
    gd_host_release(ctx, group->peers, (size_t)group->ranks * sizeof *group->peers);
    gd_host_release(ctx, group, sizeof *group);
    gd_context_drop(ctx);
}

gd_group *gd_group_create(gd_context *ctx, const gd_group_options *options)
{
    if (gd_error_status(ctx) || !gd_outside_graph(ctx, "group_create")) return NULL;
    gd_group_options o = options ? *options : (gd_group_options){0};
    if (o.ranks == 0) o.ranks = 1;
    o.timeout = gd_option(o.timeout, 600);
    if (check_options(ctx, &o)) return NULL;
    gd_group *group = gd_host_allocate(ctx, sizeof *group, "group_create");
    if (!group) return NULL;
    *group = (gd_group){.ctx = ctx,
                        .rank = o.rank,
                        .ranks = o.ranks,
                        .timeout = o.timeout,
                        .who = "group_create",
                        .folder = -1,
                        .file = -1,
                        .transport = transports[gd_context_device(ctx)]};
    gd_context_hold(ctx);
    if (!meet(group, o.folder)) return group;
    destroy(group);
    return NULL;
}

void gd_group_free(gd_group *group)
{
    if (group && gd_outside_calls(group->ctx, "group_free", true)) destroy(group);
}

int gd_group_rank(const gd_group *group)
{
    return group ? group->rank : 0;
}

int gd_group_ranks(const gd_group *group)
{
    return group ? group->ranks : 1;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

gd_status gd_group_begin(gd_group *group, const char *who)
{
    group->who = who;
    if (gd_failed(group->ctx)) return group->ctx->status;
    if (!group->aborted) return GD_OK;
    return gd_fail(group->ctx, GD_ERROR_STATE, "%s: the group is over, since a rank has failed",
                   who);
}

gd_status gd_group_all_gather_bytes(gd_group *group, const void *mine, size_t bytes, void *all)
{
    if (!group || group->ranks == 1) {
        if (bytes) memcpy(all, mine, bytes);
        return group ? gd_error_status(group->ctx) : GD_OK;
    }
    if (gd_group_begin(group, "all_gather_bytes")) return group->ctx->status;
    return group->transport->all_gather_bytes(group, mine, bytes, all, false);
}

gd_status gd_group_broadcast_bytes(gd_group *group, void *data, size_t bytes)
{
    if (!group || group->ranks == 1) return group ? gd_error_status(group->ctx) : GD_OK;
    if (gd_group_begin(group, "broadcast_bytes")) return group->ctx->status;
    return group->transport->all_gather_bytes(group, data, bytes, data, true);
}

gd_status gd_group_agree(gd_group *group)
{
    if (!group || group->ranks == 1) return group ? gd_error_status(group->ctx) : GD_OK;
    gd_context *ctx = group->ctx;
    const gd_status mine = ctx->status;
    char own[sizeof ctx->error] = "";
    const size_t bytes = (size_t)group->ranks * sizeof own;
    if (mine) snprintf(own, sizeof own, "%s", gd_error(ctx));
    gd_error_clear(ctx);
    char *all = gd_host_allocate(ctx, bytes, "the errors of all ranks");
    if (all && !gd_group_all_gather_bytes(group, own, sizeof own, all)) {
        for (int i = 0; i < group->ranks && !mine && !gd_failed(ctx); i++) {
            const char *why = all + (size_t)i * sizeof own;
            if (*why) gd_fail(ctx, GD_ERROR_IO, "rank %d: %.*s", i, (int)sizeof own - 1, why);
        }
    }
    gd_host_release(ctx, all, bytes);
    if (mine) gd_error_clear(ctx);
    return mine ? gd_fail(ctx, mine, "%s", own) : gd_error_status(ctx);
}

void gd_group_slice(const gd_group *group, int rank, int64_t n, int64_t *begin, int64_t *end)
{
    gd_slice_of(n, gd_group_ranks(group), rank, begin, end);
}

/* Begins a collective on t. False on error, and where no other rank takes part. */
static bool begin(gd_group *group, gd_tensor *t, bool sums, const char *who)
{
    if (!t || gd_failed(t->ctx)) return false;
    gd_context *ctx = t->ctx;
    if (!gd_tensor_writable(t, who)) return false;
    if ((group && group->ctx != ctx) || !gd_tensor_is_contiguous(t)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: the tensor %s is %s, wanted a packed one of the group's context", who,
                gd_shape_text(t).text,
                gd_tensor_is_contiguous(t) ? "of another context" : "not packed");
        return false;
    }
    if (sums && t->dtype != GD_FLOAT32 && t->dtype != GD_FLOAT64) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the tensor is %s, wanted float32 or float64", who,
                gd_dtype_name(t->dtype));
        return false;
    }
    if (!group || group->ranks == 1 || gd_group_begin(group, who)) return false;
    gd_new_version(t->ctx, t->storage);
    return t->count > 0 && !group->transport->fork(group);
}

static gd_status done(gd_group *group, gd_tensor *t, bool begun)
{
    if (begun && !gd_failed(t->ctx) && !group->transport->join(group))
        gd_written(t->ctx, t->storage);
    return gd_tensor_status(t);
}

gd_status gd_group_broadcast(gd_group *group, gd_tensor *t, int root)
{
    if (t && (root < 0 || root >= gd_group_ranks(group))) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT, "broadcast: root is %d, wanted 0 to %d", root,
                       gd_group_ranks(group) - 1);
    }
    const bool begun = begin(group, t, false, "broadcast");
    if (begun) group->transport->broadcast(group, gd_tensor_data(t), t->dtype, t->count, root);
    return done(group, t, begun);
}

gd_status gd_group_all_reduce(gd_group *group, gd_tensor *t, bool mean)
{
    const bool begun = begin(group, t, true, "all_reduce");
    if (begun) group->transport->all_reduce(group, gd_tensor_data(t), t->dtype, t->count, mean);
    return done(group, t, begun);
}

gd_status gd_group_reduce_scatter(gd_group *group, gd_tensor *t, bool mean)
{
    const bool begun = begin(group, t, true, "reduce_scatter");
    if (begun) group->transport->reduce_scatter(group, gd_tensor_data(t), t->dtype, t->count, mean);
    return done(group, t, begun);
}

gd_status gd_group_all_gather(gd_group *group, gd_tensor *t)
{
    const bool begun = begin(group, t, false, "all_gather");
    if (begun) group->transport->all_gather(group, gd_tensor_data(t), t->dtype, t->count);
    return done(group, t, begun);
}
