/* tape.c - the list of recorded calls.
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
    for (int i = 0; i < gd_node_values(node); i++) {
        const gd_tensor *t = gd_node_value(node, i);
        if (t && t->storage) t->storage->readers += change;
    }
}

/* Whether a backward that reads dy alone passes it on to parameters (of float32, or with
 * gradients of float32), directly or through others of this kind: then none of these gradients is
 * rounded to 16 bits. */
static bool passes_wide_gradients(const gd_call *call)
{
    const gd_op *op = call->op;
    bool wide = op->backward[call->context->device->device] && !op->backward_reads_inputs &&
                !op->backward_reads_outputs && !call->saves && !op->random;
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
    /* Behind the node are its arguments, then versions[] and required[]. */
    const size_t args_size = call->args ? call->op->args_size : 0,
                 args_end = (args_size + 7) / 8 * 8;
    const size_t inputs = (size_t)call->inputs, tensors = inputs + (size_t)call->outputs;
    const size_t size = sizeof(gd_node) + args_end + tensors * sizeof(uint64_t) + inputs;
    gd_node *node = gd_arena_allocate(ctx, size, "the tape");
    if (!node) return NULL;
    *node = (gd_node){.call = *call, .index = ctx->tape_length};
    if (args_size) node->call.args = memcpy(node + 1, call->args, args_size);
    node->versions = (uint64_t *)((char *)(node + 1) + args_end);
    node->required = (bool *)(node->versions + tensors);
    for (int i = 0; i < call->inputs; i++) {
        const gd_tensor *t = call->input[i];
        node->required[i] = t && t->requires_grad;
        if (t) node->versions[i] = t->storage->version;
    }
    const bool wide = passes_wide_gradients(call);
    for (int i = 0; i < call->outputs; i++) {
        gd_tensor *t = call->output[i];
        t->node = node;
        t->wide_grad = wide;
        node->versions[call->inputs + i] = t->storage->version;
        t->requires_grad = gd_dtype_is_real(t->dtype);
        t->retain_grad = ctx->retain_grads && t->requires_grad;
    }
    count_readers(node, +1);
    ctx->tape[ctx->tape_length++] = node;
    return node;
}

void gd_drop_since(gd_context *ctx, gd_moment then, const gd_storage *except)
{
    while (ctx->tape_length > then.tape_length) {
        gd_node *node = ctx->tape[--ctx->tape_length];
        if (!node->used) count_readers(node, -1);
        node->used = true;
    }
    for (gd_tensor *t = ctx->step_tensors; t != then.tensors; t = t->next) {
        const gd_storage *s = t->storage;
        if (s && s->step && s != except && !s->keep) t->freed = true;
    }
    for (gd_storage *s = ctx->step_storages; s != then.storages; s = s->next)
        if (s != except && !s->keep) gd_storage_release(ctx, s);
}

int64_t gd_tape_length(const gd_context *ctx)
{
    return ctx ? ctx->tape_length : 0;
}
