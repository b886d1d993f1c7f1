/* memory.c - memory: the host's from the context's allocator, an arena for headers of a step, and a
 * pool for tensor data.
 *
 * The pool asks the device for memory only when it has no free block of the right size class, and
 * never returns a block by itself. A training step repeats the sizes of the step before, so after
 * the first steps nothing is allocated. */
#include "core/core.h"

/* ---- The arena ---------------------------------------------------------------------------- */

/* A ring of chunks, filled one after the other. Headers, nodes and arguments of a step are never
 * freed one by one: the step's end gives up all of them at once. A chunk is used again only
 * RESTING_STEPS later, so that until then a handle of a step that has ended is still the tensor
 * that it was, and using it is an error. */
typedef struct gd_arena_chunk {
    struct gd_arena_chunk *next;
    size_t capacity, used; /* of bytes after this header */
    uint64_t step;         /* the last that used it */
} gd_arena_chunk;

enum { ARENA_CHUNK_BYTES = 1 << 16, ARENA_ALIGNMENT = 16, CHUNK_HEADER_BYTES = 64 };
enum { RESTING_STEPS = 2, RESTING_STEPS_POISONED = 1000 };

/* A step that grows is rarely meant: of many ops, or of much memory, without a backward. */
static void watch_growth(gd_context *ctx)
{
    enum { MANY_CALLS = 50000, SOME_CALLS = 2000 };
    const bool much = ctx->stats.held >> 30;
    const uint64_t calls = ctx->calls - ctx->calls_at_backward;
    if (calls < (much ? SOME_CALLS : MANY_CALLS)) return;
    gd_notice(ctx, GD_NOTICE_GROWTH,
              "one step has %llu ops by now without a backward, and %zu bytes of tensors: in an "
              "evaluation call gd_step_end after each batch, and gd_no_grad_begin before the first",
              (unsigned long long)calls, ctx->stats.current_total);
}

/* Makes a chunk with room for `bytes` the current one: the next that has rested and is large
 * enough, or a new one. */
static __attribute__((noinline)) gd_arena_chunk *arena_next_chunk(gd_context *ctx, size_t bytes,
                                                                  const char *what)
{
    const uint64_t rest = ctx->options.poison ? RESTING_STEPS_POISONED : RESTING_STEPS;
    gd_arena_chunk *next = ctx->arena;
    while (next && ctx->steps - next->next->step > rest) {
        next = next->next;
        next->used = 0;
        next->step = ctx->steps; /* also of one that is too small, so that this ends */
        if (next->capacity >= bytes) return ctx->arena = next;
    }
    watch_growth(ctx);
    const size_t capacity = bytes > ARENA_CHUNK_BYTES ? bytes : ARENA_CHUNK_BYTES;
    gd_arena_chunk *chunk = gd_host_allocate(ctx, CHUNK_HEADER_BYTES + capacity, what);
    if (!chunk) return NULL;
    *chunk = (gd_arena_chunk){next ? next->next : chunk, capacity, 0, ctx->steps};
    if (next) next->next = chunk;
    return ctx->arena = chunk;
}

void *gd_arena_allocate(gd_context *ctx, size_t bytes, const char *what)
{
    gd_arena_chunk *chunk = ctx->arena;
    if (bytes > PTRDIFF_MAX) {
        gd_fail(ctx, GD_ERROR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
        return NULL;
    }
    bytes = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        chunk = arena_next_chunk(ctx, bytes, what);
        if (!chunk) return NULL;
    }
    void *memory = (char *)chunk + CHUNK_HEADER_BYTES + chunk->used;
    chunk->used += bytes;
    return memory;
}

void *gd_arena_array(gd_context *ctx, int64_t count, size_t size, const char *what)
{
    const size_t bytes = (size_t)count * size;
    void *array = gd_arena_allocate(ctx, bytes, what);
    return array ? memset(array, 0, bytes) : NULL;
}

/* The next step begins with another chunk, whose first bytes are in the cache; with `poison` it
 * goes on in this one, or small steps would take a thousand chunks. */
void gd_arena_end_step(gd_context *ctx)
{
    ctx->steps++;
    if (!ctx->arena) return;
    if (ctx->options.poison)
        ctx->arena->step = ctx->steps;
    else
        ctx->arena->used = ctx->arena->capacity;
}

void gd_arena_free(gd_context *ctx)
{
    gd_arena_chunk *last = ctx->arena, *chunk = last ? last->next : NULL;
    while (chunk) {
        gd_arena_chunk *next = chunk == last ? NULL : chunk->next;
        gd_host_release(ctx, chunk, CHUNK_HEADER_BYTES + chunk->capacity);
        chunk = next;
    }
}

/* ---- The pool of tensor memory ------------------------------------------------------------ */

/* Size classes: four to each power of two, 64, 80, 96, 112, 128, 160 ... bytes, so at most a fifth
 * of a block is wasted; more of small ones, since blocks are multiples of 64. */
static gd_pool_class *class_of(gd_context *ctx, bool step, size_t bytes)
{
    gd_pool_class *first = &ctx->pool[step ? GD_POOL_CLASSES : 0];
    if (bytes <= 64) {
        first->block_bytes = 64;
        return first;
    }
    const size_t most = SIZE_MAX / 2 + 1, last = (bytes < most ? bytes : most) - 1;
    const int power = 63 - __builtin_clzll(last); /* of two, the greatest below bytes */
    const size_t base = (size_t)1 << power, quarter = (last >> (power - 2)) - 3;
    gd_pool_class *pool = first + 4 * (power - 6) + (int)quarter;
    pool->block_bytes = (base + base / 4 * quarter + 63) / 64 * 64;
    return pool;
}

/* Counts bytes that come into use, or, of a negative number, go out of it. */
static void count_use(gd_context *ctx, gd_memory_class memory_class, ptrdiff_t bytes)
{
    gd_memory_stats *stats = &ctx->stats;
    stats->current[memory_class] += (size_t)bytes;
    stats->current_total += (size_t)bytes;
    if (stats->current[memory_class] > stats->peak[memory_class])
        stats->peak[memory_class] = stats->current[memory_class];
    if (stats->current_total > stats->peak_total) stats->peak_total = stats->current_total;
}

enum { ALL_CLASSES = 2 * GD_POOL_CLASSES };

/* A new block from the device; its class first makes room for its return. */
static void *pool_new_block(gd_context *ctx, gd_pool_class *pool, const char *what)
{
    if (!gd_host_grow(ctx, (void **)&pool->free_blocks, &pool->capacity, pool->blocks + 1,
                      sizeof(void *), what)) {
        return NULL;
    }
    void *data = ctx->device->allocate(ctx, pool->block_bytes);
    /* Free blocks of other sizes may have the memory; but a graph being captured uses blocks that
     * are free again. */
    if (!data && !ctx->capture) {
        const size_t held = ctx->stats.held;
        gd_memory_trim(ctx);
        if (ctx->stats.held < held) data = ctx->device->allocate(ctx, pool->block_bytes);
    }
    ctx->stats.system_calls++;
    if (!data) return NULL;
    pool->blocks++;
    ctx->stats.held += pool->block_bytes;
    return data;
}

static void *pool_take(gd_context *ctx, bool step, size_t bytes, const char *what)
{
    gd_pool_class *pool = class_of(ctx, step, bytes);
    char *data =
        pool->free_count ? pool->free_blocks[--pool->free_count] : pool_new_block(ctx, pool, what);
    if (!data) return NULL;
    gd_allow(ctx, data, bytes, true);
    gd_allow(ctx, data + bytes, pool->block_bytes - bytes, false);
    return data;
}

gd_status gd_pool_allocate(gd_context *ctx, bool step, size_t bytes, gd_memory_class memory_class,
                           const char *what, void **data)
{
    *data = NULL;
    if (bytes == 0) return GD_OK;
    *data = ctx->options.guard ? gd_guard_allocate(ctx, bytes, what)
                               : pool_take(ctx, step, bytes, what);
    if (!*data) {
        return gd_fail(ctx, GD_ERROR_MEMORY,
                       "%s: out of memory: wanted %zu bytes, %zu are in use on %s", what, bytes,
                       ctx->stats.current_total, ctx->device_name);
    }
    count_use(ctx, memory_class, (ptrdiff_t)bytes);
    if (ctx->options.poison) return ctx->device->fill_bytes(ctx, *data, 0xff, bytes);
    return GD_OK;
}

void gd_pool_release(gd_context *ctx, bool step, void *data, size_t bytes,
                     gd_memory_class memory_class)
{
    if (!data) return;
    if (ctx->options.guard) {
        gd_guard_release(ctx, data);
    } else {
        gd_pool_class *pool = class_of(ctx, step, bytes);
        pool->free_blocks[pool->free_count++] = data;
        gd_allow(ctx, data, pool->block_bytes, false);
    }
    count_use(ctx, memory_class, -(ptrdiff_t)bytes);
}

void gd_storage_reclassify(gd_context *ctx, gd_storage *storage, gd_memory_class memory_class)
{
    if (!storage->owned || storage->released) return;
    count_use(ctx, storage->memory_class, -(ptrdiff_t)storage->bytes);
    count_use(ctx, memory_class, (ptrdiff_t)storage->bytes);
    storage->memory_class = memory_class;
}

void gd_memory_trim(gd_context *ctx)
{
    if (!ctx) return;
    if (ctx->capture) {
        gd_fail(ctx, GD_ERROR_STATE, "graph_run: its function frees memory, wanted this outside");
    }
    ctx->generation++;
    for (int i = 0; i < ALL_CLASSES; i++) {
        gd_pool_class *pool = &ctx->pool[i];
        while (pool->free_count) {
            void *block = pool->free_blocks[--pool->free_count];
            gd_allow(ctx, block, pool->block_bytes, true);
            ctx->device->release(ctx, block, pool->block_bytes);
            ctx->stats.held -= pool->block_bytes;
            pool->blocks--;
        }
    }
    gd_guard_trim(ctx);
}

void gd_pool_free(gd_context *ctx)
{
    gd_memory_trim(ctx);
    for (int i = 0; i < ALL_CLASSES; i++) {
        gd_pool_class *pool = &ctx->pool[i];
        gd_host_release(ctx, pool->free_blocks, (size_t)pool->capacity * sizeof(void *));
    }
    gd_host_release(ctx, ctx->guarded, (size_t)ctx->guarded_capacity * sizeof *ctx->guarded);
}

/* ---- Looking at it ------------------------------------------------------------------------ */

const char *gd_memory_class_name(gd_memory_class memory_class)
{
    static const char *const names[GD_MEMORY_CLASS_COUNT] = {
        [GD_MEMORY_PARAMETERS] = "parameters", [GD_MEMORY_GRADIENTS] = "gradients",
        [GD_MEMORY_OPTIMIZER] = "optimizer",   [GD_MEMORY_ACTIVATIONS] = "activations",
        [GD_MEMORY_WORKSPACE] = "workspace",   [GD_MEMORY_OTHER] = "other",
    };
    return (unsigned)memory_class < GD_MEMORY_CLASS_COUNT ? names[memory_class] : "unknown";
}

gd_memory_stats gd_memory(const gd_context *ctx)
{
    return ctx ? ctx->stats : (gd_memory_stats){0};
}

void gd_memory_reset_peak(gd_context *ctx)
{
    if (!ctx) return;
    memcpy(ctx->stats.peak, ctx->stats.current, sizeof ctx->stats.peak);
    ctx->stats.peak_total = ctx->stats.current_total;
}
