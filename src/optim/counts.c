/* counts.c - how often each parameter was updated, by which rules correct the bias of new states.
 *
 * What is trained after being frozen for a while has had fewer updates than the rest. Whether an
 * update is made is known on the device only, so the counts are there (gd_update_count). Parameters
 * that were always updated together have one, the first of the table as long as none is frozen;
 * when an update leaves out some of them, these get a copy of it, and from then on the two go
 * separate ways. */
#include "optim/graph.h"
#include "optim/optimizer.h"

static size_t history_bytes(const gd_optimizer *optimizer)
{
    return (size_t)(optimizer->params_count + 1) * sizeof *optimizer->history;
}

static size_t count_bytes(const gd_optimizer *optimizer)
{
    return (size_t)(optimizer->params_count + 1) * sizeof *optimizer->counts;
}

bool gd_counts_create(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    const char *who = "an optimizer";
    void *counts = NULL;
    optimizer->params_count = optimizer->params->count;
    optimizer->history = gd_host_allocate(ctx, history_bytes(optimizer), who);
    if (!optimizer->history ||
        gd_pool_allocate(ctx, false, count_bytes(optimizer), GD_MEMORY_OTHER, who, &counts))
        return false;
    optimizer->counts = counts;
    return !gd_counts_set_all(optimizer, 0);
}

void gd_counts_free(gd_optimizer *optimizer)
{
    gd_host_release(optimizer->ctx, optimizer->history, history_bytes(optimizer));
    gd_pool_release(optimizer->ctx, false, optimizer->counts, count_bytes(optimizer),
                    GD_MEMORY_OTHER);
}

static gd_status write_count(const gd_optimizer *optimizer, int64_t index, int64_t made)
{
    gd_context *ctx = optimizer->ctx;
    const gd_update_count count = {.made = made};
    return ctx->device->upload(ctx, &optimizer->counts[index], &count, sizeof count);
}

gd_status gd_counts_set_all(gd_optimizer *optimizer, int64_t made)
{
    if (optimizer->histories > 1) gd_graphs_forget(optimizer->ctx);
    for (int64_t i = 0; i < optimizer->params_count; i++) optimizer->history[i].of = 0;
    optimizer->histories = 1;
    return write_count(optimizer, 0, made);
}

gd_status gd_counts_set(gd_optimizer *optimizer, const int64_t *made)
{
    gd_history *h = optimizer->history;
    gd_graphs_forget(optimizer->ctx);
    if (gd_counts_set_all(optimizer, made[0])) return optimizer->ctx->status;
    for (int64_t i = 1; i < optimizer->params_count; i++) {
        int64_t same = 0;
        while (made[same] != made[i]) same++;
        h[i].of = same < i ? h[same].of : optimizer->histories++;
        if (same == i && write_count(optimizer, h[i].of, made[i])) break;
    }
    return optimizer->ctx->status;
}

gd_status gd_counts_get(const gd_optimizer *optimizer, int64_t *made)
{
    gd_context *ctx = optimizer->ctx;
    gd_update_count *counts = gd_host_allocate(ctx, count_bytes(optimizer), "the counts");
    if (counts && !ctx->device->download(ctx, counts, optimizer->counts, count_bytes(optimizer))) {
        for (int64_t i = 0; i < optimizer->params_count; i++)
            made[i] = counts[optimizer->history[i].of].made;
    }
    gd_host_release(ctx, counts, count_bytes(optimizer));
    return ctx->status;
}

/* Count `to` becomes count `from`. */
static void copy_count(const gd_optimizer *optimizer, int64_t to, int64_t from)
{
    gd_copy_packed(optimizer->ctx, &optimizer->counts[to], GD_INT32, &optimizer->counts[from],
                   GD_INT32, sizeof *optimizer->counts / sizeof(int32_t));
}

gd_status gd_counts_part(gd_optimizer *optimizer)
{
    gd_context *ctx = optimizer->ctx;
    gd_history *h = optimizer->history;
    const gd_param *list = optimizer->params->list;
    const int64_t before = optimizer->histories;
    for (int64_t k = 0; k < before; k++) h[k].trained = h[k].frozen = false;
    for (int64_t i = 0; i < optimizer->params_count; i++)
        *(list[i].tensor->requires_grad ? &h[h[i].of].trained : &h[h[i].of].frozen) = true;
    for (int64_t k = 0; k < before; k++) {
        if (!h[k].trained || !h[k].frozen) continue;
        if (ctx->capture) {
            return gd_fail(ctx, GD_ERROR_STATE,
                           "optimizer_update: other parameters require a gradient than when the "
                           "graph's function was first called, wanted the same");
        }
        h[k].next = optimizer->histories++;
        h[h[k].next].trained = false;
        copy_count(optimizer, h[k].next, k);
    }
    if (optimizer->histories == before) return GD_OK;
    gd_graphs_forget(ctx); /* they update by what was one count */
    for (int64_t i = 0; i < optimizer->params_count; i++)
        if (!list[i].tensor->requires_grad && h[h[i].of].trained) h[i].of = h[h[i].of].next;
    return ctx->status;
}

uint64_t gd_counts_trained(const gd_optimizer *optimizer, int64_t first)
{
    uint64_t trained = 0;
    for (int i = 0; i < GD_UPDATE_COUNTS && first + i < optimizer->histories; i++)
        trained |= (uint64_t)optimizer->history[first + i].trained << i;
    return trained;
}
