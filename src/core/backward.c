/* backward.c - the walk back along the tape: the chain rule, node by node. A node's backward turns
 * dy, the gradient of the loss with respect to its outputs, into dx = J^T dy, that with respect to
 * its inputs (J is the Jacobian of its forward). The gradient of a tensor that several nodes read
 * is the sum of their contributions.
 *
 * The gradient of a tensor is complete when every node that read it has been visited. Since a node
 * only reads what earlier nodes made, going through the tape from the end visits all readers of a
 * tensor before the node that made it, and one pass is enough. What happens at one node is in
 * backward_call.c.
 *
 * Two rules keep memory small. A value returns to the pool when the last backward that reads it has
 * run (storage->readers), and the gradient of an intermediate as soon as the node that made the
 * tensor has used it. */
#include "core/core.h"

/* ---- Which nodes ------------------------------------------------------------------------ */

static const char *who(const gd_context *ctx)
{
    return ctx->gradients ? "gradients" : "backward";
}

/* Whether somebody listens to the running walk: neither to gd_gradients nor in a segment. */
static bool is_heard(const gd_context *ctx)
{
    return ctx->listeners && !ctx->gradients && ctx->tape_floor == 0;
}

static gd_status refuse_constant(gd_context *ctx, const gd_tensor *output)
{
    const bool off = ctx->no_grad > 0, unrecorded = ctx->unrecorded > ctx->calls_at_begin;
    const bool linear = ctx->calls_at_constant > ctx->calls_at_begin;
    const bool late = ctx->calls_at_require > ctx->calls_at_begin;
    const char *why =
        output->gradient ? "how that was computed is not on the tape; use gd_gradients with "
                           "differentiable"
        : off            ? "recording is off; call gd_no_grad_end before the ops"
        : linear     ? "a gradient that gd_gradients gave in this step is constant, as that of a "
                       "linear function is; leave it out, or use gd_gradients with zeros"
        : unrecorded ? "ops of this step were called between gd_no_grad_begin and gd_no_grad_end"
        : late       ? "gd_tensor_set_requires_grad was called after ops of this step, wanted it "
                       "before"
                     : "what it is made of is neither a parameter nor has "
                       "gd_tensor_set_requires_grad";
    return gd_fail(ctx, GD_ERROR_STATE, "%s: output %s %s%s", who(ctx), gd_shape_text(output).text,
                   output->gradient ? "was made of a gradient, and "
                                    : "does not depend on any tensor that requires a gradient: ",
                   why);
}

static gd_status check_outputs(gd_context *ctx, gd_tensor *const *outputs, int count,
                               gd_tensor *const *cotangents)
{
    const bool constants = ctx->gradients && ctx->gradients->options.zeros;
    for (int i = 0; i < count; i++) {
        gd_tensor *t = outputs[i];
        if (!t->requires_grad && !(constants && !t->gradient)) return refuse_constant(ctx, t);
        if (t->node && t->node->used) {
            return gd_fail(ctx, GD_ERROR_STATE,
                           "%s: the tape of output %s was used up by an earlier backward; run the "
                           "forward again, or use keep_tape",
                           who(ctx), gd_shape_text(t).text);
        }
        const gd_tensor *u = cotangents ? cotangents[i] : NULL;
        if (u && (gd_check_like(t, "output", u, who(ctx), "cotangent", i) ||
                  !gd_tensor_usable(u, who(ctx), "cotangent")))
            return ctx->status;
    }
    return GD_OK;
}

gd_wanted *gd_want(gd_tensor *t)
{
    gd_wanted **first = &t->ctx->gradients->first, *w = t->wanted;
    if (w) return w;
    w = gd_arena_allocate(t->ctx, sizeof *w, "gradients");
    if (!w) return NULL;
    *w = (gd_wanted){.next = *first, .t = t};
    return t->wanted = *first = w;
}

void gd_mark_wanted(gd_context *ctx, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        gd_node *node = ctx->tape[i];
        node->leads = false;
        for (int k = 0; k < node->call.inputs && !node->leads; k++)
            node->leads = node->call.input[k] && gd_is_wanted(node->call.input[k]);
    }
}

static gd_status mark_maker(gd_node *node, gd_tensor *input)
{
    gd_context *ctx = input->ctx;
    gd_node *maker = input->node;
    if (!maker || maker->marked || (ctx->gradients && !maker->leads)) return GD_OK;
    if (maker->index < ctx->tape_floor) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "recompute: the segment uses a tensor %s made by %s outside of it; pass it "
                       "in inputs",
                       gd_shape_text(input).text, gd_called_op(&maker->call)->name);
    }
    if (maker->used) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "%s: %s reads the tensor %s made by %s, whose tape was used up by an "
                       "earlier backward; add the losses before one gd_backward, or use keep_tape",
                       who(ctx), gd_called_op(&node->call)->name, gd_shape_text(input).text,
                       gd_called_op(&maker->call)->name);
    }
    maker->marked = true;
    maker->via = node;
    return GD_OK;
}

gd_status gd_walk_mark(gd_context *ctx, gd_tensor *const *outputs, int count,
                       gd_tensor *const *cotangents, int64_t *top)
{
    if (check_outputs(ctx, outputs, count, cotangents)) return ctx->status;
    *top = ctx->tape_floor;
    for (int64_t i = ctx->tape_floor; i < ctx->tape_length; i++) ctx->tape[i]->marked = false;
    if (ctx->gradients) gd_mark_wanted(ctx, ctx->tape_floor, ctx->tape_length);
    for (int i = 0; i < count; i++) {
        gd_node *node = outputs[i]->node;
        if (is_heard(ctx) && !outputs[i]->step) outputs[i]->awaited = true;
        if (!node || (ctx->gradients && !node->leads)) continue;
        node->marked = true;
        node->via = NULL;
        if (node->index >= *top) *top = node->index + 1;
    }
    for (int64_t i = *top - 1; i >= ctx->tape_floor; i--) {
        gd_node *node = ctx->tape[i];
        for (int k = 0; node->marked && k < node->call.inputs; k++) {
            gd_tensor *input = node->call.input[k];
            if (input && gd_walk_needs(ctx, input) && mark_maker(node, input)) return ctx->status;
        }
        if (node->marked && is_heard(ctx)) gd_await_leaves(node);
    }
    return GD_OK;
}

/* ---- Giving memory back ----------------------------------------------------------------- */

/* A value made by a visited node that no backward will read again. */
static void release_value(gd_tensor *t)
{
    gd_storage *storage = t->storage;
    if (!storage || !storage->step || storage->keep || storage->readers > 0) return;
    gd_storage_release(t->ctx, storage);
}

static void use_up(gd_node *node)
{
    const int saves = node->call.inputs + node->call.outputs;
    for (int i = 0; i < gd_node_values(node); i++) {
        gd_tensor *t = gd_node_value(node, i);
        if (!t || !t->storage) continue;
        t->storage->readers--;
        if (t->node || i >= saves) release_value(t);
    }
    node->used = true;
}

/* The gradients of the node's outputs have been used: those that the user wants are put aside. */
static void finish_gradients(gd_node *node)
{
    for (int i = 0; i < node->call.outputs; i++) {
        gd_tensor *t = node->call.output[i];
        if (t->grad_valid && gd_walk_retains(t->ctx, t))
            gd_grad_retain(t);
        else
            gd_grad_release(t);
    }
}

/* ---- One node --------------------------------------------------------------------------- */

static gd_status visit(gd_context *ctx, gd_node *node, bool keep_tape)
{
    bool reached = false;
    for (int i = 0; i < node->call.outputs; i++)
        reached = reached || node->call.output[i]->grad_valid;
    if (!reached) return GD_OK;
    const gd_op *outer = ctx->part_of;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    ctx->part_of = node->call.part_of;
    ctx->visits++;
    node->backward ? node->backward(node, keep_tape) : gd_node_backward(node, keep_tape);
    ctx->visits--;
    ctx->part_of = outer;
    gd_frame_end(ctx, &frame);
    return ctx->status;
}

/* ---- The walk --------------------------------------------------------------------------- */

/* The walk begins with the cotangent u of an output as its gradient, or with ones: the gradient of
 * the sum. That of the only output, to which nothing is added, is not copied unless the walk may
 * release or overwrite its memory. */
static gd_status seed(gd_tensor *t, gd_tensor *u, bool only)
{
    gd_context *ctx = t->ctx;
    if (u && u == t->grad) return GD_OK; /* by gd_optimizer_backward */
    if (u && only && (u->storage->keep || !u->storage->step) && t->step && !t->grad_valid &&
        !gd_walk_retains(ctx, t) && u->dtype == gd_gradient_dtype(t) &&
        gd_tensor_is_contiguous(u)) {
        t->grad = gd_tensor_view(u, "backward");
        t->grad_valid = t->grad != NULL;
        return ctx->status;
    }
    if (!u && t->grad_valid) u = gd_constant(ctx, t->dtype, t->ndim, t->shape, 1);
    if (u) return gd_grad_add(t, u, "backward");
    if (gd_tensor_need_grad(t)) return ctx->status;
    t->grad_valid = true;
    if (t->count) ctx->services->fill(gd_tensor_data(t->grad), t->grad->dtype, 1, t->count, ctx);
    return ctx->status;
}

gd_status gd_backward_walk(gd_context *ctx, gd_tensor *const *outputs, int count,
                           gd_tensor *const *cotangents, bool keep_tape)
{
    int64_t top;
    if (gd_walk_mark(ctx, outputs, count, cotangents, &top)) return ctx->status;
    for (int i = 0; i < count; i++) {
        gd_tensor *u = cotangents ? cotangents[i] : NULL;
        if (!gd_walk_needs(ctx, outputs[i])) continue;
        /* The loss stays readable: gd_item after gd_backward is common. */
        if (ctx->tape_floor == 0 && outputs[i]->storage) outputs[i]->storage->keep = true;
        if (seed(outputs[i], u, count == 1)) break;
    }
    /* Values that no backward reads were readable until now; their memory is freed. */
    for (int64_t i = ctx->tape_floor; !keep_tape && i < top; i++) {
        gd_node *node = ctx->tape[i];
        for (int k = 0; node->marked && k < node->call.outputs; k++)
            release_value(node->call.output[k]);
    }
    for (int64_t i = top - 1; i >= ctx->tape_floor; i--) {
        gd_node *node = ctx->tape[i];
        if (!node->marked) continue;
        /* After an error the walk continues without computing, so that counters and flags stay
         * consistent. */
        if (!gd_failed(ctx)) visit(ctx, node, keep_tape);
        finish_gradients(node);
        if (!keep_tape) use_up(node);
        if (is_heard(ctx)) gd_finish_leaves(node);
    }
    return ctx->status;
}

gd_status gd_backward(gd_tensor *loss)
{
    if (loss && gd_tensor_usable(loss, "backward", "loss") && loss->count != 1) {
        return gd_fail(loss->ctx, GD_ERROR_ARGUMENT,
                       "backward: loss is %s, wanted one element; use gd_backward_from for others",
                       gd_shape_text(loss).text);
    }
    return gd_backward_from(&loss, 1, NULL);
}

gd_status gd_backward_from(gd_tensor *const *outputs, int count, const gd_backward_options *options)
{
    gd_backward_options chosen = options ? *options : (gd_backward_options){0};
    gd_context *ctx = outputs && count > 0 && outputs[0] ? outputs[0]->ctx : NULL;
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (gd_failed(ctx)) return ctx->status;
    if (gd_is_garbage((uintptr_t)chosen.cotangents)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "backward: cotangents is %p, wanted tensors or NULL",
                       (const void *)chosen.cotangents);
    }
    if (gd_check_tensors(ctx, outputs, count, "backward", "output")) return ctx->status;
    if (!gd_outside_calls(ctx, "backward", false)) return ctx->status;
    ctx->in_backward = true;
    ctx->before = ctx->user_tensors;
    gd_backward_walk(ctx, outputs, count, chosen.cotangents, chosen.keep_tape);
    if (ctx->listeners) gd_finish_all_leaves(ctx);
    ctx->in_backward = false;
    ctx->calls_at_backward = ctx->calls;
    return ctx->status;
}
