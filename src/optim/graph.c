/* graph.c - steps captured once and replayed (graph.h).
 *
 * A captured graph consists of kernels with their arguments: addresses and numbers. It may be
 * replayed as long as the step would launch exactly these.
 *
 * Addresses. The user's tensors, which last, are compared before each run: gd_graph_key is a
 * fingerprint of their addresses, shapes and strides. Tensors of the step are in blocks of the
 * step's pool, which no lasting tensor ever gets (gd_pool_kind). All steps share these blocks,
 * captured or not, since nothing in them outlives a step. The key also has the context's
 * generation, another one after blocks went back to the device.
 *
 * Numbers. Those that change from run to run are read on the device: the optimizer's in
 * gd_update_state, the offset in the random stream in `random`, to which the offsets in the graph
 * are relative. A run that draws random numbers advances it, so that the host writes it only if
 * others have drawn meanwhile.
 *
 * The first run of each kind is not captured: it fills the pool, chooses the algorithms of products
 * and loads kernels, which a capture could not do. */
#include "optim/graph.h"
#include "optim/services.h"

enum { CAPTURES = 8, UPDATES = GD_UPDATE_SLOTS }; /* of one graph; each update takes a slot */

typedef struct gd_capture {
    gd_graph_function function;
    void *user;
    uint64_t key;
    int64_t used;       /* the number of the last run of this kind; 0: free */
    void *ready;        /* NULL: run once, not captured yet */
    uint64_t words;     /* random numbers that a run draws */
    uint8_t *has_grads; /* [tensors] after a run, in the order of ctx->user_tensors */
    int64_t tensors;
    struct {
        gd_status (*submit)(gd_optimizer *optimizer);
        gd_optimizer *optimizer;
    } update[UPDATES]; /* in the order of the graph */
    int updates;
} gd_capture;

struct gd_graph {
    gd_context *ctx;
    gd_graph *next; /* of the context's */
    bool off;
    gd_capture capture[CAPTURES];
    int64_t runs;
    gd_graph_counts counts;
    gd_random_state *random;   /* on the device */
    gd_random_state random_is; /* its value after all queued work */
};

/* ---- Making and freeing ------------------------------------------------------------------- */

static void forget(gd_context *ctx, gd_capture *c)
{
    if (c->ready) ctx->device->graph_free(ctx, c->ready);
    gd_host_release(ctx, c->has_grads, (size_t)c->tensors * sizeof *c->has_grads);
    *c = (gd_capture){0};
}

static void destroy(gd_graph *graph)
{
    gd_context *ctx = graph->ctx;
    for (int i = 0; i < CAPTURES; i++) forget(ctx, &graph->capture[i]);
    gd_graph **link = &ctx->graphs;
    while (*link != graph) link = &(*link)->next;
    *link = graph->next;
    gd_pool_release(ctx, false, graph->random, sizeof *graph->random, GD_MEMORY_OTHER);
    gd_host_release(ctx, graph, sizeof *graph);
    gd_context_drop(ctx);
}

gd_graph *gd_graph_create(gd_context *ctx, const gd_graph_options *options)
{
    if (gd_error_status(ctx) || !gd_outside_graph(ctx, "graph_create")) return NULL;
    gd_graph *graph = gd_host_allocate(ctx, sizeof *graph, "graph_create");
    if (!graph) return NULL;
    *graph = (gd_graph){.ctx = ctx, .next = ctx->graphs, .off = options && options->off};
    ctx->graphs = graph;
    gd_context_hold(ctx);
    void *random = NULL;
    gd_pool_allocate(ctx, false, sizeof *graph->random, GD_MEMORY_OTHER, "graph_create", &random);
    graph->random = random;
    if (gd_failed(ctx) ||
        ctx->device->upload(ctx, random, &graph->random_is, sizeof graph->random_is)) {
        destroy(graph);
        return NULL;
    }
    /* Advancing by 0 loads the kernel before a capture. */
    if (ctx->services->advance) ctx->services->advance(random, 0, ctx);
    return graph;
}

void gd_graphs_forget(gd_context *ctx)
{
    if (ctx->capture) {
        gd_fail(ctx, GD_ERROR_STATE,
                "graph_run: its function resets what a captured step uses, wanted this outside");
        return;
    }
    for (gd_graph *graph = ctx->graphs; graph; graph = graph->next) {
        for (int i = 0; i < CAPTURES; i++) forget(ctx, &graph->capture[i]);
    }
}

void gd_graph_free(gd_graph *graph)
{
    if (graph && gd_outside_calls(graph->ctx, "graph_free", true)) destroy(graph);
}

gd_graph_counts gd_graph_count(const gd_graph *graph)
{
    return graph ? graph->counts : (gd_graph_counts){0};
}

/* ---- What a capture relies on ------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Whether there is a gradient, whether it is known which of its rows are 0, and whether
 * it may be. */
static uint8_t has_grad(const gd_tensor *t)
{
    const gd_tensor *grad = t->grad;
    return (uint8_t)((grad && grad->shared) << 2 | (grad && grad->sparse) << 1 | t->grad_valid);
}

static uint64_t mix_tensor(uint64_t hash, const gd_tensor *t)
{
    hash = mix(hash, (uintptr_t)(t->storage ? t->storage->data : NULL));
    hash = mix(hash, (uintptr_t)(t->grad && t->grad->storage ? t->grad->storage->data : NULL));
    hash = mix(hash, (uint64_t)t->offset);
    hash = mix(hash, (uint64_t)t->dtype << 8 | (uint64_t)t->requires_grad << 3 | has_grad(t));
    for (int i = 0; i < t->ndim; i++) {
        hash = mix(hash, (uint64_t)t->shape[i]);
        hash = mix(hash, (uint64_t)t->strides[i]);
    }
    return hash;
}

uint64_t gd_graph_key(const gd_context *ctx)
{
    uint64_t hash = mix(mix((uint64_t)ctx->no_grad, ctx->generation), (uint64_t)(ctx->repeats > 0));
    for (const gd_listener *l = ctx->listeners; l; l = l->next) {
        hash = mix(mix(hash, (uintptr_t)l->hook), (uintptr_t)l->user);
    }
    for (const gd_tensor *t = ctx->user_tensors; t; t = t->next) hash = mix_tensor(hash, t);
    return hash;
}

/* The kind of this run; if it is the first of its kind, it replaces the least recently used one,
 * and *known is false. */
static gd_capture *find(gd_graph *graph, gd_graph_function function, void *user, bool *known)
{
    const uint64_t key = gd_graph_key(graph->ctx);
    gd_capture *oldest = &graph->capture[0];
    *known = true;
    for (int i = 0; i < CAPTURES; i++) {
        gd_capture *c = &graph->capture[i];
        if (c->used && c->key == key && c->function == function && c->user == user) return c;
        if (c->used < oldest->used) oldest = c;
    }
    forget(graph->ctx, oldest);
    *oldest = (gd_capture){.function = function, .user = user, .key = key};
    *known = false;
    return oldest;
}

/* ---- Running ------------------------------------------------------------------------------ */

static gd_status call(gd_context *ctx, gd_graph_function function, void *user)
{
    ctx->in_graph = true;
    gd_status status = function(user);
    ctx->in_graph = false;
    gd_step_end(ctx);
    if (status) gd_fail(ctx, status, "graph_run: its function failed");
    return gd_error_status(ctx);
}

static gd_status note_grads(gd_context *ctx, gd_capture *c)
{
    int64_t count = 0;
    for (const gd_tensor *t = ctx->user_tensors; t; t = t->next) count++;
    c->has_grads = gd_host_allocate(ctx, (size_t)count * sizeof *c->has_grads, "a graph");
    if (!c->has_grads) return ctx->status;
    for (const gd_tensor *t = ctx->user_tensors; t; t = t->next)
        c->has_grads[c->tensors++] = has_grad(t);
    return GD_OK;
}

/* Calls the function: its host code runs as usual, the device's work is only recorded. */
static gd_status capture(gd_graph *graph, gd_capture *c)
{
    gd_context *ctx = graph->ctx;
    const gd_random_state before = ctx->random;
    if (ctx->device->capture_begin(ctx)) return ctx->status;
    ctx->random = (gd_random_state){0};
    ctx->random_base = graph->random;
    ctx->capture = c;
    gd_status status = call(ctx, c->function, c->user);
    c->words = ctx->random.offset;
    if (!status && c->words) ctx->services->advance(graph->random, c->words, ctx);
    c->ready = ctx->device->capture_end(ctx);
    ctx->capture = NULL;
    ctx->random_base = NULL;
    ctx->random = before;
    graph->counts.captures++;
    if (gd_failed(ctx) || note_grads(ctx, c)) forget(ctx, c);
    return ctx->status;
}

gd_status gd_capture_update(gd_context *ctx, gd_status (*submit)(gd_optimizer *optimizer),
                            gd_optimizer *optimizer)
{
    gd_capture *c = ctx->capture;
    if (c->updates == UPDATES) {
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "optimizer_update: there are more than %d updates in one graph", UPDATES);
    }
    c->update[c->updates].submit = submit;
    c->update[c->updates++].optimizer = optimizer;
    return GD_OK;
}

/* Sets the device's offset in the random stream to the context's, which is at the start of a block
 * (see gd_random_take). */
static gd_status set_offset(gd_graph *graph, const gd_capture *c)
{
    gd_context *ctx = graph->ctx;
    if (c->words == 0) return GD_OK;
    gd_random_take(ctx, 0);
    gd_random_state *is = &graph->random_is;
    if (is->seed != ctx->random.seed || is->offset != ctx->random.offset) {
        *is = ctx->random;
        if (ctx->device->upload(ctx, graph->random, is, sizeof *is)) return ctx->status;
    }
    is->offset += c->words;
    ctx->random.offset += c->words;
    return GD_OK;
}

static gd_status replay(gd_graph *graph, gd_capture *c)
{
    gd_context *ctx = graph->ctx;
    if (set_offset(graph, c)) return ctx->status;
    for (int i = 0; i < c->updates; i++) {
        if (c->update[i].submit(c->update[i].optimizer)) return ctx->status;
    }
    if (ctx->device->replay(ctx, c->ready)) return ctx->status;
    if (c->updates && gd_mark(ctx)) return ctx->status;
    gd_guard_look(ctx);
    int64_t i = 0;
    for (gd_tensor *t = ctx->user_tensors; t && i < c->tensors; t = t->next) {
        const uint8_t has = c->has_grads[i++];
        t->grad_valid = has & 1;
        if (t->grad) t->grad->sparse = has >> 1 & 1;
    }
    graph->counts.replays++;
    return GD_OK;
}

gd_status gd_graph_run(gd_graph *graph, gd_graph_function function, void *user)
{
    if (!graph) return GD_ERROR_ARGUMENT;
    gd_context *ctx = graph->ctx;
    if (gd_failed(ctx) || !gd_outside_graph(ctx, "graph_run")) return ctx->status;
    if (!function)
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "graph_run: function is NULL, wanted a step");
    if (ctx->tape_length || ctx->step_tensors) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "graph_run: a step has begun, wanted a call after its gd_step_end");
    }
    if (graph->off || !ctx->device->capture_begin) return call(ctx, function, user);
    bool known;
    gd_capture *c = find(graph, function, user, &known);
    c->used = ++graph->runs;
    if (!known) {
        if (call(ctx, function, user)) forget(ctx, c);
    } else if (c->ready || !capture(graph, c)) {
        replay(graph, c);
    }
    return ctx->status;
}
