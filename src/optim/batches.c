/* batches.c - the examples of each batch (data.h). The index tensor keeps its memory; for a
 * last, short batch its only dimension is less, so that a captured graph is captured for this
 * shape, too. */
#include "gradus/data.h"

#include "core/core.h"
#include "optim/optimizer.h"

struct gd_batches {
    gd_context *ctx;
    gd_batches_options options;
    int64_t examples;
    int64_t *made; /* `own`, or the optimizer's */
    int64_t own;
    gd_tensor *index;
    int32_t *host; /* [most] */
    int64_t most;  /* examples of this rank in a batch */
};

/* The finalizer of SplitMix64 (Steele et al. 2014): every bit of the result depends on all of x. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The network permutes the numbers of 2 * half bits; it is repeated until the result is below n. */
int64_t gd_shuffled(int64_t i, int64_t n, uint64_t key)
{
    enum { ROUNDS = 6 };
    if (i < 0 || i >= n) return -1;
    int half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < (uint64_t)n) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (mix(right ^ mix(key + round)) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

uint64_t gd_shuffle_key(uint64_t seed, int64_t epoch)
{
    return mix(seed + mix((uint64_t)epoch));
}

static gd_status check_options(gd_context *ctx, int64_t examples, const gd_batches_options *o,
                               const char *who)
{
    const int ranks = o->ranks;
    const int64_t last = o->size > 0 ? examples % o->size : 0;
    if (examples < 1 || examples > INT32_MAX)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: examples is %lld, wanted 1 to %d", who,
                (long long)examples, INT32_MAX);
    else if (o->size < 1 || o->size > INT32_MAX)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: size is %lld, wanted 1 to %d", who, (long long)o->size,
                INT32_MAX);
    else if (o->drop_last && o->size > examples)
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: size is %lld, wanted at most the %lld examples, as drop_last leaves out less "
                "than a batch",
                who, (long long)o->size, (long long)examples);
    else if (ranks < 1 || o->rank < 0 || o->rank >= ranks)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: rank is %d of %d, wanted 0 <= rank < ranks", who,
                o->rank, ranks);
    else if (o->size % ranks || (last % ranks && !o->drop_last)) /* or gradients weigh unequally */
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "%s: a batch has %lld examples, wanted a multiple of the %d ranks%s", who,
                (long long)(o->size % ranks ? o->size : last), ranks,
                o->size % ranks ? "" : ", or drop_last");
    else if (o->saved_with && o->saved_with->ctx != ctx)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: saved_with is an optimizer of another context", who);
    else if (o->saved_with && o->saved_with->saves_batches)
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: saved_with saves other batches already", who);
    return gd_error_status(ctx);
}

gd_batches *gd_batches_create(gd_context *ctx, int64_t examples, const gd_batches_options *options)
{
    const char *who = "batches_create";
    gd_batches_options o = options ? *options : (gd_batches_options){0};
    if (o.ranks == 0 && o.rank == 0) o.ranks = 1;
    if (gd_error_status(ctx) || !gd_outside_graph(ctx, who) ||
        check_options(ctx, examples, &o, who))
        return NULL;
    gd_batches *b = gd_host_allocate(ctx, sizeof *b, who);
    if (!b) return NULL;
    *b = (gd_batches){.ctx = ctx, .options = o, .examples = examples};
    b->most = (o.size < examples ? o.size : examples) / o.ranks;
    b->made = o.saved_with ? &o.saved_with->batches : &b->own;
    if (o.saved_with) o.saved_with->saves_batches = true;
    gd_context_hold(ctx);
    b->host = gd_host_allocate(ctx, (size_t)b->most * sizeof *b->host, who);
    b->index = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(b->most));
    if (b->host && b->index) return b;
    gd_batches_free(b);
    return NULL;
}

void gd_batches_free(gd_batches *batches)
{
    if (!batches) return;
    gd_context *ctx = batches->ctx;
    if (batches->options.saved_with) batches->options.saved_with->saves_batches = false;
    gd_tensor_free(batches->index);
    gd_host_release(ctx, batches->host, (size_t)batches->most * sizeof *batches->host);
    gd_host_release(ctx, batches, sizeof *batches);
    gd_context_drop(ctx);
}

int64_t gd_batches_made(const gd_batches *batches)
{
    return batches ? *batches->made : 0;
}

int64_t gd_batches_per_epoch(const gd_batches *batches)
{
    if (!batches) return 0;
    const gd_batches_options *o = &batches->options;
    return batches->examples / o->size + (batches->examples % o->size && !o->drop_last);
}

gd_status gd_batches_seek(gd_batches *batches, int64_t made)
{
    if (!batches) return GD_ERROR_ARGUMENT;
    if (made < 0)
        return gd_fail(batches->ctx, GD_ERROR_ARGUMENT,
                       "batches_seek: made is %lld, wanted 0 or more", (long long)made);
    *batches->made = made;
    return gd_error_status(batches->ctx);
}

gd_tensor *gd_batches_next(gd_batches *batches)
{
    if (!batches || gd_failed(batches->ctx)) return NULL;
    const gd_batches_options *o = &batches->options;
    const int64_t per_epoch = gd_batches_per_epoch(batches), n = batches->examples;
    const int64_t epoch = *batches->made / per_epoch, at = *batches->made % per_epoch * o->size;
    const int64_t left = (n - at < o->size ? n - at : o->size) / o->ranks;
    const uint64_t key = gd_shuffle_key(o->seed, epoch);
    for (int64_t i = 0; i < left; i++) {
        const int64_t position = at + o->rank * left + i;
        batches->host[i] = (int32_t)(o->in_order ? position : gd_shuffled(position, n, key));
    }
    batches->index->shape[0] = batches->index->count = left;
    if (gd_tensor_write(batches->index, batches->host, (size_t)left * sizeof *batches->host))
        return NULL;
    ++*batches->made;
    return batches->index;
}
