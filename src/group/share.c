/* share.c - parameters shared over a group of processes: the buckets of the block, the order in
 * which they are sent, and which rank owns which slice.
 *
 *     block      | embed | w1 | w2 | w3 | ... | output || norm1 | bias | ... |
 *     buckets    |   2   |        1       |     0      ||         3         |
 *     slices       0 1 2    0    1    2     0   1   2       0     1     2       of three ranks
 *
 * Parameters with weight decay are stored in the order of the forward, so a backward completes
 * their gradients from the end; the others are few. The buckets are numbered roughly in the order
 * in which they become complete. They are sent in that fixed order on all ranks, as collectives
 * require, whatever the order of each rank's backward. */
#include "group/share.h"

#include "group/group.h"

#include <string.h>

enum { BUCKET_BYTES = 25 << 20 };

/* ---- Making --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 1099511628211u; /* FNV-1a */
    return hash;
}

static uint64_t fingerprint(const gd_params *params)
{
    uint64_t hash = mix(14695981039346656037u, &params->dtype, sizeof params->dtype);
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        hash = mix(hash, t->name, strlen(t->name) + 1);
        hash = mix(hash, t->shape, (size_t)t->ndim * sizeof *t->shape);
        hash = mix(hash, &params->list[i].flags, sizeof params->list[i].flags);
    }
    return hash;
}

static gd_status compare(const gd_params *params, gd_group *group)
{
    gd_context *ctx = params->ctx;
    const size_t bytes = (size_t)group->ranks * sizeof(uint64_t);
    const uint64_t mine = fingerprint(params);
    uint64_t *all = gd_host_allocate(ctx, bytes, "params_share");
    if (all && !gd_group_collect(group, &mine, sizeof mine, all)) {
        for (int i = 1; i < group->ranks && !gd_failed(ctx); i++) {
            if (all[i] == all[0]) continue;
            gd_fail(ctx, GD_ERROR_ARGUMENT,
                    "params_share: the parameters of rank %d differ from those of rank 0, wanted "
                    "the same names, shapes, dtype and flags in the same order",
                    i);
        }
    }
    gd_host_release(ctx, all, bytes);
    return gd_error_status(ctx);
}

/* Adds a parameter to the current bucket, or to a new one. */
static void place(gd_share *share, gd_param *p, int64_t bytes, bool first)
{
    const int64_t size = (int64_t)gd_dtype_size(gd_params_state_dtype(share->params));
    gd_bucket *b = share->count ? &share->bucket[share->count - 1] : NULL;
    if (!b || first || (b->end - b->begin) * size >= bytes) {
        b = &share->bucket[share->count++];
        *b = (gd_bucket){.share = share, .end = p->tensor->offset + gd_params_room(p->tensor)};
    }
    b->begin = p->tensor->offset; /* buckets grow towards lower offsets */
    p->tensor->bucket = b;
}

static void cut(gd_share *share, int64_t bytes)
{
    const gd_params *params = share->params;
    for (int decay = 1; decay >= 0; decay--) {
        bool first = true;
        for (int64_t i = params->count - 1; i >= 0; i--) {
            if (gd_param_decays(&params->list[i]) != decay) continue;
            place(share, &params->list[i], bytes, first);
            first = false;
        }
    }
    for (int64_t i = 0; i < share->count; i++) {
        gd_bucket *b = &share->bucket[i];
        int64_t begin, end;
        gd_group_slice(share->group, share->group->rank, b->end - b->begin, &begin, &end);
        b->own = (gd_params_slice){b->begin + begin, b->begin + end, share->owned};
        share->owned += end - begin;
    }
}

static gd_share *create(gd_params *params, gd_group *group, int64_t bytes)
{
    gd_context *ctx = params->ctx;
    gd_share *share = gd_host_allocate(ctx, sizeof *share, "params_share");
    if (!share) return NULL;
    *share = (gd_share){.params = params, .group = group};
    share->bucket =
        gd_host_allocate(ctx, (size_t)params->count * sizeof *share->bucket, "params_share");
    if (share->bucket) cut(share, bytes);
    if (!gd_failed(ctx))
        share->squares =
            gd_params_block(ctx, GD_FLOAT64, share->count + 1, GD_MEMORY_OTHER, "params_share");
    if (!gd_failed(ctx)) return share;
    gd_share_free(share);
    return NULL;
}

void gd_share_free(gd_share *share)
{
    if (!share) return;
    const gd_params *params = share->params;
    if (share->squares) gd_tensor_destroy(share->squares);
    for (int64_t i = 0; i < params->count; i++) params->list[i].tensor->bucket = NULL;
    gd_host_release(params->ctx, share->bucket, (size_t)params->count * sizeof *share->bucket);
    gd_host_release(params->ctx, share, sizeof *share);
}

gd_status gd_params_share(gd_params *params, gd_group *group, const gd_share_options *options)
{
    const char *who = "params_share";
    if (!gd_params_ready(params, who))
        return params ? gd_error_status(params->ctx) : GD_ERROR_ARGUMENT;
    gd_context *ctx = params->ctx;
    if (!gd_outside_graph(ctx, who)) return ctx->status;
    if (params->share || params->has_optimizer) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "%s: %s already, wanted one call, before any "
                       "optimizer is made",
                       who, params->share ? "it was called" : "the parameters have an optimizer");
    }
    if (!group || group->ranks == 1) return GD_OK;
    const int64_t bytes =
        options && options->bucket_bytes ? options->bucket_bytes : (int64_t)BUCKET_BYTES;
    if (group->ctx != ctx || bytes < 0) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "%s: the group is of %s context and bucket_bytes %lld, wanted the same "
                       "context and at least 1",
                       who, group->ctx == ctx ? "the same" : "another", (long long)bytes);
    }
    if (gd_group_begin(group, who) || compare(params, group)) return ctx->status;
    if (gd_group_broadcast(group, params->values, 0)) return ctx->status;
    params->share = create(params, group, bytes);
    return gd_error_status(ctx);
}

gd_status gd_params_last_backward(gd_params *params)
{
    if (!gd_params_ready(params, "params_last_backward"))
        return params ? gd_error_status(params->ctx) : GD_ERROR_ARGUMENT;
    gd_share *share = params->share;
    if (!share) return GD_OK;
    share->last = true;
    for (int64_t i = 0; i < share->count; i++) share->bucket[i].waits = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        t->bucket->waits += t->requires_grad;
    }
    return GD_OK;
}

bool gd_params_slice_at(const gd_params *params, int64_t index, gd_params_slice *slice)
{
    if (!params || !params->values || index < 0) return false;
    const gd_share *share = params->share;
    if (index >= (share ? share->count : 1)) return false;
    *slice = share ? share->bucket[index].own : (gd_params_slice){0, params->values->count, 0};
    return true;
}

int64_t gd_params_offset(const gd_params *params, int index)
{
    const gd_tensor *t = gd_params_at(params, index);
    return t ? t->offset : 0;
}

/* ---- Gradients ------------------------------------------------------------------------------ */

static void *element(const gd_tensor *block, int64_t i)
{
    return (char *)gd_tensor_data(block) + (size_t)i * gd_dtype_size(block->dtype);
}

static gd_status send_next(gd_share *share)
{
    gd_group *group = share->group;
    const gd_tensor *grads = share->params->grads;
    gd_bucket *b = &share->bucket[share->next++];
    b->sent = true;
    gd_params_zero_missing_grads(share->params, b->begin, b->end);
    if (gd_group_begin(group, "reduce_scatter") || group->transport->fork(group))
        return group->ctx->status;
    return group->transport->reduce_scatter(group, element(grads, b->begin), grads->dtype,
                                            b->end - b->begin, true);
}

void gd_share_arrived(gd_bucket *bucket)
{
    gd_share *share = bucket->share;
    if (bucket->sent) {
        gd_fail(share->params->ctx, GD_ERROR_STATE,
                "backward: the gradients were averaged over all ranks already, wanted "
                "gd_params_clear_grads in between; gd_params_last_backward is for the last of "
                "several backwards");
        return;
    }
    bucket->waits--;
    while (share->last && share->next < share->count && share->bucket[share->next].waits <= 0) {
        if (send_next(share)) return;
    }
}

gd_status gd_share_reduce(gd_share *share)
{
    gd_group *group = share->group;
    while (share->next < share->count && !gd_failed(group->ctx)) send_next(share);
    gd_new_version(group->ctx, share->params->grads->storage);
    return gd_failed(group->ctx) ? group->ctx->status : group->transport->join(group);
}

void gd_share_clear(gd_share *share)
{
    share->next = 0;
    share->last = false;
    for (int64_t i = 0; i < share->count; i++) share->bucket[i].sent = false;
}

/* ---- Sums ----------------------------------------------------------------------------------- */

void gd_share_squares(gd_share *share, double *sum)
{
    gd_context *ctx = share->params->ctx;
    const gd_tensor *grads = share->params->grads;
    double *part = gd_tensor_data(share->squares);
    ctx->services->fill(sum, GD_FLOAT64, 0, 1, ctx);
    for (int64_t i = 0; i < share->count; i++) {
        const gd_params_slice *own = &share->bucket[i].own;
        if (own->begin == own->end) continue;
        ctx->services->sum_squares(&part[i], element(grads, own->begin), grads->dtype,
                                   own->end - own->begin, ctx);
        ctx->services->accumulate(sum, GD_FLOAT64, &part[i], GD_FLOAT64, 1, ctx);
    }
}

gd_status gd_share_sum(gd_share *share, double *values, int64_t n)
{
    gd_group *group = share->group;
    if (gd_group_begin(group, "all_reduce") || group->transport->fork(group) ||
        group->transport->all_reduce(group, values, GD_FLOAT64, n, false))
        return group->ctx->status;
    return group->transport->join(group);
}

/* ---- Values --------------------------------------------------------------------------------- */

gd_status gd_share_values(gd_share *share, int64_t index)
{
    gd_group *group = share->group;
    const gd_tensor *values = share->params->values;
    const gd_bucket *b = &share->bucket[index];
    if (gd_group_begin(group, "all_gather") || group->transport->fork(group) ||
        group->transport->all_gather(group, element(values, b->begin), values->dtype,
                                     b->end - b->begin))
        return group->ctx->status;
    return index + 1 < share->count ? GD_OK : group->transport->join(group);
}
