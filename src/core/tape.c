/* tape.c - the list of recorded calls, and the end of a step.
 *
 * A node has what the backward of one call needs: the op's record and arguments, its inputs and
 * outputs, and what the forward saved. A call is appended after it has run, so the node that made a
 * tensor always precedes its readers, and nothing has to be sorted.
 *
 * The tape guarantees two things. The memory that a node's backward reads stays until then:
 * `readers` counts that for each storage. And writing to it in the meantime is detected: the node
 * stores the version of each input as it was read, and of each output as it was made. */
#include "core/core.h"

/* ---- Nodes -------------------------------------------------------------------------------- */

/* Keeps the memory that the backward needs, or not any more. */
static void count_readers(const gd_node *node, int change)
{
    for (int i = 0; i < node->inputs + node->outputs; i++) {
        const gd_tensor *t = gd_node_value(node, i);
        if (t && t->storage) t->storage->readers += change;
    }
}

/* Whether a backward that reads dy alone passes it on to parameters (of float32, or with gradients of
 * float32), directly or through others of this kind: then none of these gradients is rounded to 16 bits. */
static bool passes_wide_gradients(const gd_call *call)
{
    const gd_op *op = call->op;
    bool wide = op->backward[call->context->device->device] && !op->backward_reads_inputs &&
                !op->backward_reads_outputs && !op->saves && !op->random;
    for (int i = 0; wide && i < call->inputs; i++) {
        const gd_tensor *t = call->input[i];
        wide = t && t->requires_grad && (!t->node || t->wide_grad) &&
               gd_gradient_dtype(t) == GD_FLOAT32;
    }
    return wide;
}

gd_node *gd_tape_append(const gd_call *call)
{
    gd_context *ctx = call->context;
    if (!gd_host_grow(ctx, (void **)&ctx->tape, &ctx->tape_capacity, ctx->tape_length + 1,
                      sizeof *ctx->tape, "the tape")) {
        return NULL;
    }
    gd_node *node = gd_arena_allocate(ctx, sizeof *node, "the tape");
    if (!node) return NULL;
    *node = (gd_node){.op = call->op,
                      .dtype = call->dtype,
                      .kernel_dtype = call->kernel_dtype,
                      .inputs = call->inputs,
                      .outputs = call->outputs,
                      .saves = call->saves,
                      .input = call->input,
                      .output = call->output,
                      .save = call->save,
                      .seed = call->seed,
                      .random_offset = call->random_offset,
                      .index = ctx->tape_length};
    const size_t args_size = call->args ? call->op->args_size : 0;
    void *args = args_size ? gd_arena_allocate(ctx, args_size, "the tape") : NULL;
    node->args = args ? memcpy(args, call->args, args_size) : NULL;
    size_t tensors = (size_t)call->inputs + (size_t)call->outputs;
    node->versions = gd_arena_allocate(ctx, tensors * sizeof *node->versions, "the tape");
    if (gd_failed(ctx)) return NULL;
    for (int i = 0; i < node->inputs; i++) {
        if (node->input[i]) node->versions[i] = node->input[i]->storage->version;
    }
    const bool wide = passes_wide_gradients(call);
    for (int i = 0; i < node->outputs; i++) {
        gd_tensor *t = node->output[i];
        t->node = node;
        t->wide_grad = wide;
        node->versions[node->inputs + i] = t->storage->version;
        t->requires_grad = gd_dtype_is_real(t->dtype);
        t->retain_grad = ctx->retain_grads && t->requires_grad;
    }
    count_readers(node, +1);
    if (!ctx->in_backward)
        gd_count_uses(call); /* otherwise it was counted in the segment's first run */
    ctx->tape[ctx->tape_length++] = node;
    return node;
}

void gd_tape_truncate(gd_context *ctx, int64_t length)
{
    while (ctx->tape_length > length) {
        gd_node *node = ctx->tape[--ctx->tape_length];
        if (!node->used) count_readers(node, -1);
        node->used = true;
    }
}

void gd_drop_since(gd_context *ctx, const gd_tensor *tensor_before,
                   const gd_storage *storage_before, const gd_storage *except)
{
    for (gd_tensor *t = ctx->step_tensors; t != tensor_before; t = t->next) {
        if (t->storage && t->storage->step && t->storage != except && !t->storage->keep) {
            t->freed = true;
        }
    }
    for (gd_storage *s = ctx->step_storages; s != storage_before; s = s->next) {
        if (s != except && !s->keep) gd_storage_release(ctx, s);
    }
}

int64_t gd_tape_length(const gd_context *ctx)
{
    return ctx ? ctx->tape_length : 0;
}

/* ---- Steps -------------------------------------------------------------------------------- */

void gd_step_end(gd_context *ctx)
{
    if (!ctx || !gd_outside_calls(ctx, "step_end", false)) return;
    ctx->tape_length = 0;
    ctx->tape_floor = 0;
    ctx->calls_at_begin = ctx->calls_at_backward = ctx->calls;
    ctx->updates = 0;
    for (gd_tensor *t = ctx->step_tensors; t; t = t->next) {
        gd_storage *storage = t->storage;
        t->storage = NULL; /* a later use of t is an error, until the header is reused */
        if (!storage || storage->step) continue;
        storage->readers = 0;
        if (--storage->views == 0) { /* its owner was freed before this view of it */
            gd_storage_release(ctx, storage);
            gd_host_release(ctx, storage, sizeof *storage);
        }
    }
    for (gd_storage *s = ctx->step_storages; s; s = s->next) gd_storage_release(ctx, s);
    for (gd_tensor *t = ctx->user_tensors; t; t = t->next) {
        if (t->storage) t->storage->readers = 0;
        t->uses = 0;
    }
    ctx->step_tensors = NULL;
    ctx->step_storages = NULL;
    ctx->spare = NULL;
    gd_tensor_release_headers(ctx, GD_KEPT_HEADERS);
    gd_arena_end_step(ctx);
}

void gd_no_grad_begin(gd_context *ctx)
{
    if (ctx && ctx->no_grad++ == 0) ctx->calls_at_no_grad = ctx->calls;
}

/* Leaves one level of what begins with gd_NAME_begin. */
static void leave(gd_context *ctx, int *depth, const char *name)
{
    if (*depth > 0)
        --*depth;
    else
        gd_fail(ctx, GD_ERROR_STATE, "%s_end: there was no gd_%s_begin before it", name, name);
}

void gd_no_grad_end(gd_context *ctx)
{
    if (!ctx) return;
    if (ctx->calls > ctx->calls_at_no_grad) ctx->unrecorded = ctx->calls;
    leave(ctx, &ctx->no_grad, "no_grad");
}

void gd_repeat_begin(gd_context *ctx)
{
    if (ctx) ctx->repeats++;
}

void gd_repeat_end(gd_context *ctx)
{
    if (ctx) leave(ctx, &ctx->repeats, "repeat");
}

bool gd_grad_enabled(const gd_context *ctx)
{
    return ctx && ctx->no_grad == 0;
}

/* ---- Marks on tensors of the step --------------------------------------------------------- */

gd_tensor *gd_keep(gd_tensor *t)
{
    if (!t || gd_failed(t->ctx) || !gd_tensor_usable(t, "keep", "tensor")) return NULL;
    t->storage->keep = true;
    return t;
}

gd_tensor *gd_retain_grad(gd_tensor *t)
{
    if (!t || gd_failed(t->ctx) || !gd_tensor_usable(t, "retain_grad", "tensor")) return NULL;
    if (!t->requires_grad) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                "retain_grad: the tensor %s depends on nothing that requires a gradient",
                gd_shape_text(t).text);
        return NULL;
    }
    t->retain_grad = true;
    return t;
}

gd_tensor *gd_detach(gd_tensor *t)
{
    if (!t || gd_failed(t->ctx) || !gd_tensor_usable(t, "detach", "tensor")) return NULL;
    gd_tensor *view = gd_tensor_view(t, "detach");
    if (!view) return NULL;
    view->call = t->call;
    view->output = t->output;
    return view;
}
