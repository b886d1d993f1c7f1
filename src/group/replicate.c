/* replicate.c - parameters replicated over a group of processes: the buckets of the block, the
 * order in which they are sent, and which rank owns which slice.
 *
 *     block      | embed | w1 | w2 | w3 | ... | output || norm1 | bias | ... |
 *     buckets    |   2   |        1       |     0      ||         3         |
 *     slices       0 1 2    0    1    2     0   1   2       0     1     2       of three ranks
 *
 * Parameters with weight decay are stored in the order of the forward, so a backward completes
 * their gradients from the end; the others are few. The buckets are numbered roughly in the order
 * in which they become complete. They are sent in that fixed order on all ranks, as collectives
 * require, whatever the order of each rank's backward. */
#include "group/group.h"
#include "optim/params.h"

#include <string.h>

enum { BUCKET_BYTES = 25 << 20 };

typedef struct bucket {
    int64_t begin, end;  /* elements of the block; whole parameters */
    gd_params_slice own; /* this rank's slice */
    int waits;           /* gradients of the last backward that are missing */
    bool sent;
} bucket;

typedef struct buckets {
    gd_replica replica; /* first, so that a gd_replica leads here */
    gd_params *params;
    gd_group *group;
    gd_listener listener;
    bucket *bucket;      /* in the order in which they are sent */
    int64_t count, next; /* next: the first bucket that was not sent */
    bool last;           /* buckets are sent as soon as they are complete */
    gd_tensor *squares;  /* [count + 1] float64: a sum for each own slice, and replica.norm */
} buckets;

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
        const gd_param *p = &params->list[i];
        hash = mix(hash, &p->flags, sizeof p->flags);
        hash = mix(hash, &p->rate, sizeof p->rate);
        hash = mix(hash, &p->weight_decay, sizeof p->weight_decay);
    }
    for (int64_t i = 0; i < params->buffers; i++) {
        const gd_tensor *t = params->buffer[i];
        hash = mix(hash, t->name, strlen(t->name) + 1);
        hash = mix(hash, &t->dtype, sizeof t->dtype);
        hash = mix(hash, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    return hash;
}

static gd_status compare(const gd_params *params, gd_group *group)
{
    gd_context *ctx = params->ctx;
    const size_t bytes = (size_t)group->ranks * sizeof(uint64_t);
    const uint64_t mine = fingerprint(params);
    uint64_t *all = gd_host_allocate(ctx, bytes, "params_replicate");
    if (all && !group->transport->all_gather_bytes(group, &mine, sizeof mine, all, false)) {
        for (int i = 1; i < group->ranks && !gd_failed(ctx); i++) {
            if (all[i] == all[0]) continue;
            gd_fail(
                ctx, GD_ERROR_ARGUMENT,
                "params_replicate: the parameters of rank %d differ from those of rank 0, wanted "
                "the same names, shapes, dtype, flags and factors in the same order, and the same "
                "buffers",
                i);
        }
    }
    gd_host_release(ctx, all, bytes);
    return gd_error_status(ctx);
}

/* Adds a parameter to the current bucket, or to a new one. */
static void add_to_bucket(buckets *s, const gd_param *p, int64_t bytes, bool first)
{
    const int64_t size = (int64_t)gd_dtype_size(gd_params_state_dtype(s->params));
    bucket *b = s->count ? &s->bucket[s->count - 1] : NULL;
    if (!b || first || (b->end - b->begin) * size >= bytes) {
        b = &s->bucket[s->count++];
        *b = (bucket){.end = p->tensor->offset + gd_params_room(p->tensor)};
    }
    b->begin = p->tensor->offset; /* buckets grow towards lower offsets */
}

static void cut(buckets *s, int64_t bytes)
{
    const gd_params *params = s->params;
    for (int decay = 1; decay >= 0; decay--) {
        bool first = true;
        for (int64_t i = params->count - 1; i >= 0; i--) {
            const gd_param *p = &params->list[params->order[i]];
            if (decay != ((p->flags & GD_DECAY) != 0)) continue;
            add_to_bucket(s, p, bytes, first);
            first = false;
        }
    }
    for (int64_t i = 0; i < s->count; i++) {
        bucket *b = &s->bucket[i];
        int64_t begin, end;
        gd_group_slice(s->group, s->group->rank, b->end - b->begin, &begin, &end);
        b->own = (gd_params_slice){b->begin + begin, b->begin + end, s->replica.owned};
        s->replica.owned += end - begin;
        if (b->end - b->begin > s->replica.largest) s->replica.largest = b->end - b->begin;
    }
}

/* The bucket of a leaf; NULL: it is none of the parameters, or empty. */
static bucket *bucket_of(const buckets *s, const gd_tensor *leaf)
{
    if (leaf->storage != s->params->values->storage || leaf->count == 0) return NULL;
    for (int64_t i = 0; i < s->count; i++) {
        bucket *b = &s->bucket[i];
        if (leaf->offset >= b->begin && leaf->offset < b->end) return b;
    }
    return NULL;
}

gd_status gd_params_last_backward(gd_params *params)
{
    if (!gd_params_ready(params, "params_last_backward")) return gd_params_status(params);
    buckets *s = (buckets *)params->replica;
    if (!s) return GD_OK;
    s->last = true;
    for (int64_t i = 0; i < s->count; i++) s->bucket[i].waits = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        bucket *b = bucket_of(s, t);
        if (b) b->waits += t->requires_grad;
    }
    return GD_OK;
}

static bool slice_at(const gd_replica *replica, int64_t index, gd_params_slice *slice)
{
    const buckets *s = (const buckets *)replica;
    if (index >= s->count) return false;
    *slice = s->bucket[index].own;
    return true;
}

/* ---- Gradients ------------------------------------------------------------------------------ */

static gd_status send_next(buckets *s)
{
    gd_group *group = s->group;
    const gd_tensor *grads = s->params->grads;
    bucket *b = &s->bucket[s->next++];
    b->sent = s->replica.begun = true;
    gd_params_zero_missing_grads(s->params, b->begin, b->end);
    if (gd_group_begin(group, "reduce_scatter") || group->transport->fork(group))
        return group->ctx->status;
    return group->transport->reduce_scatter(group, gd_block_at(grads, b->begin), grads->dtype,
                                            b->end - b->begin, true);
}

/* A gradient is complete: a gd_grad_hook. */
static void arrived(void *user, gd_tensor *leaf)
{
    buckets *s = user;
    bucket *b = bucket_of(s, leaf);
    if (!b) return;
    if (b->sent) {
        gd_fail(leaf->ctx, GD_ERROR_STATE,
                "backward: the gradients were averaged over all ranks already, wanted "
                "gd_params_clear_grads in between; gd_params_last_backward is for the last of "
                "several backwards");
        return;
    }
    b->waits--;
    while (s->last && s->next < s->count && s->bucket[s->next].waits <= 0) {
        if (send_next(s)) return;
    }
}

static gd_status reduce(gd_replica *replica)
{
    buckets *s = (buckets *)replica;
    gd_group *group = s->group;
    while (s->next < s->count && !gd_failed(group->ctx)) send_next(s);
    gd_new_version(group->ctx, s->params->grads->storage);
    return gd_failed(group->ctx) ? group->ctx->status : group->transport->join(group);
}

static void clear(gd_replica *replica)
{
    buckets *s = (buckets *)replica;
    s->next = 0;
    s->last = s->replica.begun = false;
    for (int64_t i = 0; i < s->count; i++) s->bucket[i].sent = false;
}

/* ---- Sums ----------------------------------------------------------------------------------- */

static void squares(gd_replica *replica, double *sum)
{
    const buckets *s = (const buckets *)replica;
    gd_context *ctx = s->params->ctx;
    const gd_tensor *grads = s->params->grads;
    double *part = gd_tensor_data(s->squares);
    ctx->services->fill(sum, GD_FLOAT64, 0, 1, ctx);
    for (int64_t i = 0; i < s->count; i++) {
        const gd_params_slice *own = &s->bucket[i].own;
        if (own->begin == own->end) continue;
        ctx->services->sum_squares(&part[i], gd_block_at(grads, own->begin), grads->dtype,
                                   own->end - own->begin, NULL, ctx);
        ctx->services->accumulate(sum, GD_FLOAT64, &part[i], GD_FLOAT64, 1, ctx);
    }
}

static gd_status sum(gd_replica *replica, double *values, int64_t n)
{
    gd_group *group = ((buckets *)replica)->group;
    if (gd_group_begin(group, "all_reduce") || group->transport->fork(group) ||
        group->transport->all_reduce(group, values, GD_FLOAT64, n, false))
        return group->ctx->status;
    return group->transport->join(group);
}

/* ---- Values --------------------------------------------------------------------------------- */

/* All-gathers a bucket whose elements are these; with `join` the context waits for it. */
static gd_status gather_bucket(const buckets *s, const bucket *b, void *elements, gd_dtype dtype,
                               bool join)
{
    gd_group *group = s->group;
    if (gd_group_begin(group, "all_gather") || group->transport->fork(group) ||
        group->transport->all_gather(group, elements, dtype, b->end - b->begin))
        return group->ctx->status;
    return join ? group->transport->join(group) : GD_OK;
}

static gd_status gather(gd_replica *replica, int64_t index, const gd_tensor *block)
{
    const buckets *s = (const buckets *)replica;
    const bucket *b = &s->bucket[index];
    return gather_bucket(s, b, gd_block_at(block, b->begin), block->dtype, index + 1 == s->count);
}

/* All buffers, in one message. */
static gd_status broadcast_buffers(gd_params *params, gd_group *group)
{
    if (params->buffer_block->count == 0) return gd_error_status(params->ctx);
    for (int64_t i = 0; i < params->buffers; i++)
        gd_new_version(params->ctx, params->buffer[i]->storage);
    return gd_group_broadcast(group, params->buffer_block, 0);
}

static gd_status send_buffers(gd_replica *replica)
{
    const buckets *s = (const buckets *)replica;
    return broadcast_buffers(s->params, s->group);
}

/* ---- States --------------------------------------------------------------------------------- */

static int64_t find_bucket(const gd_replica *replica, const gd_tensor *parameter, int64_t *begin)
{
    const buckets *s = (const buckets *)replica;
    const bucket *b = bucket_of(s, parameter);
    *begin = b ? b->begin : parameter->offset;
    return b ? b - s->bucket : -1;
}

static gd_status collect(gd_replica *replica, int64_t index, const gd_tensor *state,
                         const gd_tensor *whole)
{
    const buckets *s = (const buckets *)replica;
    const bucket *b = &s->bucket[index];
    if (!gd_failed(s->group->ctx))
        gd_copy_packed(s->group->ctx, gd_block_at(whole, b->own.begin - b->begin), whole->dtype,
                       gd_block_at(state, b->own.at), state->dtype, b->own.end - b->own.begin);
    if (gd_group_agree(s->group)) return s->group->ctx->status;
    return gather_bucket(s, b, gd_block_at(whole, 0), whole->dtype, true);
}

static gd_status agree(gd_replica *replica)
{
    return gd_group_agree(((buckets *)replica)->group);
}

/* ---- Sharing -------------------------------------------------------------------------------- */

gd_status gd_params_broadcast(gd_params *params)
{
    if (!gd_params_ready(params, "params_broadcast")) return gd_params_status(params);
    gd_group *group = params->replica ? ((buckets *)params->replica)->group : NULL;
    if (!group || gd_group_broadcast(group, params->values, 0) || broadcast_buffers(params, group))
        return gd_error_status(params->ctx);
    for (int64_t i = 0; i < params->buffers; i++)
        gd_written(params->ctx, params->buffer[i]->storage);
    return gd_error_status(params->ctx);
}

static void free_buckets(gd_replica *replica)
{
    buckets *s = (buckets *)replica;
    gd_context *ctx = s->params->ctx;
    gd_unlisten(ctx, &s->listener);
    if (s->squares) gd_tensor_destroy(s->squares);
    gd_host_release(ctx, s->bucket, (size_t)s->params->count * sizeof *s->bucket);
    gd_host_release(ctx, s, sizeof *s);
}

static const gd_replica_calls calls = {.free = free_buckets,
                                       .clear = clear,
                                       .slice_at = slice_at,
                                       .reduce = reduce,
                                       .squares = squares,
                                       .sum = sum,
                                       .gather = gather,
                                       .send_buffers = send_buffers,
                                       .bucket_of = find_bucket,
                                       .collect = collect,
                                       .agree = agree};

static gd_replica *create(gd_params *params, gd_group *group, int64_t bytes)
{
    const char *who = "params_replicate";
    gd_context *ctx = params->ctx;
    buckets *s = gd_host_allocate(ctx, sizeof *s, who);
    if (!s) return NULL;
    *s = (buckets){.replica = {.calls = &calls, .rank = group->rank, .ranks = group->ranks},
                   .params = params,
                   .group = group,
                   .listener = {.hook = arrived, .user = s}};
    gd_listen(ctx, &s->listener);
    s->bucket = gd_host_allocate(ctx, (size_t)params->count * sizeof *s->bucket, who);
    if (s->bucket) cut(s, bytes);
    if (!gd_failed(ctx))
        s->squares = gd_params_block(ctx, GD_FLOAT64, s->count + 1, GD_MEMORY_OTHER, who);
    if (gd_failed(ctx)) {
        free_buckets(&s->replica);
        return NULL;
    }
    s->replica.norm = (double *)gd_tensor_data(s->squares) + s->count;
    return &s->replica;
}

gd_status gd_params_replicate(gd_params *params, gd_group *group,
                              const gd_replicate_options *options)
{
    const char *who = "params_replicate";
    if (!gd_params_ready(params, who)) return gd_params_status(params);
    gd_context *ctx = params->ctx;
    if (!gd_outside_graph(ctx, who)) return ctx->status;
    if (params->replica || params->optimizers > 0) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "%s: %s already, wanted one call, before any "
                       "optimizer is made",
                       who, params->replica ? "it was called" : "the parameters have an optimizer");
    }
    const int64_t bytes =
        options && options->bucket_bytes ? options->bucket_bytes : (int64_t)BUCKET_BYTES;
    if (bytes < 0) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: bucket_bytes is %lld, wanted at least 1", who,
                       (long long)bytes);
    }
    if (!group || group->ranks == 1) return GD_OK;
    if (group->ctx != ctx)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the group is of another context", who);
    if (gd_group_begin(group, who) || compare(params, group)) return ctx->status;
    params->replica = create(params, group, bytes);
    for (int64_t i = 0; i < params->count; i++) gd_grad_share(params->list[i].tensor->grad);
    return params->replica ? gd_params_broadcast(params) : ctx->status;
}
