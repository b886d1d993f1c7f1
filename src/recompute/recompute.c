/* recompute.c - recomputation: drop what a segment computed, and compute it again in its backward.
 *
 * Forward: the segment runs without being recorded; everything it made except its output is
 * dropped; one node represents it. Backward of that node: the segment runs again, now recorded, on
 * detached views of its inputs ("local leaves"), and its calls are compared with those of the
 * first run (trace.c); a walk visits only the new nodes; the gradients of the local leaves are
 * added to those of the real inputs; the new nodes are dropped. */
#include "recompute/trace.h"

typedef struct recompute_args {
    gd_segment segment;
    void *user;
    int inputs; /* of the segment; those of the node that follow are leaves that it reads, too */
    gd_random_state random; /* so that dropout repeats */
    gd_trace trace;
} recompute_args;

static bool made_since(const gd_context *ctx, gd_moment then, const gd_tensor *t)
{
    for (const gd_tensor *s = ctx->step_tensors; s != then.tensors; s = s->next)
        if (s == t) return true;
    return false;
}

static gd_tensor *run_segment(gd_context *ctx, const recompute_args *args, gd_tensor *const *inputs,
                              int count)
{
    ctx->segments++;
    gd_tensor *y = args->segment(args->user, inputs, count);
    ctx->segments--;
    return y;
}

/* Leaves a trace of its calls, or compares them with the trace. */
static gd_tensor *run_traced(gd_context *ctx, recompute_args *args, gd_tensor *const *inputs,
                             int count, bool again)
{
    const int no_grad = ctx->no_grad;
    ctx->no_grad = again ? 0 : no_grad + 1;
    gd_trace_begin(ctx, &args->trace, again);
    gd_tensor *y = run_segment(ctx, args, inputs, count);
    if (!y && !gd_failed(ctx)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "recompute: the segment returned NULL%s, wanted a tensor",
                again ? " in its second run" : "");
    }
    gd_trace_end(ctx, &args->trace, y);
    ctx->no_grad = no_grad;
    return y;
}

/* The segment's output as a tensor that the node can own. */
static gd_tensor *run_unrecorded(gd_context *ctx, recompute_args *args, gd_tensor *const *inputs,
                                 int count)
{
    const gd_moment before = gd_now(ctx);
    gd_tensor *y = run_traced(ctx, args, inputs, count, false);
    if (y && !gd_failed(ctx) && !made_since(ctx, before, y)) y = gd_detach(y); /* input, or leaf */
    if (gd_failed(ctx)) y = NULL;
    gd_drop_since(ctx, before, y ? y->storage : NULL);
    if (y) y->freed = false;
    return y;
}

static gd_status check_inputs(gd_context *ctx, gd_segment segment, gd_tensor *const *inputs,
                              int count)
{
    if (!segment || count < 1 || !inputs) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "recompute: %s, wanted %s",
                       !segment ? "segment is NULL" : "there are no inputs",
                       !segment ? "a function" : "at least one");
    }
    for (int i = 0; i < count; i++) {
        if (inputs[i] && inputs[i]->ctx != ctx) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT,
                           "recompute: input %d is a tensor of another context", i);
        }
        if (inputs[i] && !gd_tensor_usable(inputs[i], "recompute", "input")) {
            return gd_error_status(ctx);
        }
    }
    return GD_OK;
}

/* A gradient that is to be differentiated needs the segment's nodes on the tape: it runs again, on
 * its own inputs. */
static void recompute_definition(const gd_call *call)
{
    recompute_args *args = (recompute_args *)call->args;
    gd_context *ctx = call->context;
    const gd_random_state random = ctx->random;
    ctx->random = args->random;
    call->output[0] = run_traced(ctx, args, call->input, args->inputs, true);
    ctx->random = random;
}

/* Represents every segment on the tape. Its nodes have their own backward, recompute_backward: the
 * segment takes tensors as they are, while a kernel gets them converted. */
static const gd_op recompute_op = {
    .name = "recompute",
    .formula = "y = segment(inputs), computed again in the backward",
    .inputs = GD_ANY_INPUTS,
    .outputs = 1,
    .optional_inputs = GD_ALL_INPUTS,
    .backward_reads_inputs = GD_ALL_INPUTS,
    .definition = recompute_definition,
};

/* ---- Backward ----------------------------------------------------------------------------- */

static gd_tensor **make_local_leaves(gd_context *ctx, gd_node *node, int inputs)
{
    gd_tensor **local = gd_arena_array(ctx, node->call.inputs, sizeof *local, "recompute");
    for (int i = 0; local && i < inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (!t) continue;
        if (gd_check_value(node, t, "backward", i)) return NULL;
        local[i] = gd_detach(t);
        if (!local[i]) return NULL;
        local[i]->requires_grad = t->requires_grad;
        if (ctx->gradients && gd_is_wanted(t) && !gd_want(local[i])) return NULL;
    }
    return local;
}

/* Runs the segment again, recorded from `ctx->tape_floor` on, and its backward. */
static gd_status repeat(gd_context *ctx, recompute_args *args, gd_tensor **local, int count,
                        gd_tensor *doutput)
{
    gd_random_state random = ctx->random;
    ctx->random = args->random;
    gd_repeat_begin(ctx);
    gd_tensor *y = run_traced(ctx, args, local, count, true);
    gd_repeat_end(ctx);
    ctx->random = random;
    if (gd_failed(ctx) || !y->requires_grad) return ctx->status;
    return gd_backward_walk(ctx, &y, 1, &doutput, false);
}

/* The memory of gradients that were just made for the real inputs outlives the segment's. */
static void keep_gradients(const gd_node *node, bool keep)
{
    for (int i = 0; i < node->call.inputs; i++) {
        const gd_tensor *t = node->call.input[i];
        if (t && t->grad && t->step) t->grad->storage->keep = keep;
    }
}

/* Nodes of the segment are used up in any case: keep_tape applies to the outer tape. */
static gd_status recompute_backward(gd_node *node, bool keep_tape)
{
    (void)keep_tape;
    recompute_args *args = (recompute_args *)node->call.args;
    gd_tensor *doutput = node->call.output[0]->grad;
    gd_context *ctx = doutput->ctx;
    const gd_moment before = gd_now(ctx);
    const int64_t floor_before = ctx->tape_floor;
    gd_tensor **local = make_local_leaves(ctx, node, args->inputs);
    if (!local) return gd_error_status(ctx);

    ctx->tape_floor = ctx->tape_length;
    repeat(ctx, args, local, args->inputs, doutput);
    ctx->tape_floor = floor_before;

    for (int i = 0; i < node->call.inputs && !gd_failed(ctx); i++) {
        if (local[i] && local[i]->grad_valid) {
            gd_grad_add(node->call.input[i], local[i]->grad, "recompute");
        }
    }
    keep_gradients(node, true);
    gd_drop_since(ctx, before, NULL);
    keep_gradients(node, false);
    return gd_error_status(ctx);
}

/* ---- Forward ------------------------------------------------------------------------------ */

gd_tensor *gd_recompute(gd_context *ctx, gd_segment segment, void *user, gd_tensor *const *inputs,
                        int count)
{
    if (gd_error_status(ctx) || check_inputs(ctx, segment, inputs, count)) return NULL;
    recompute_args *args = gd_arena_allocate(ctx, sizeof *args, "recompute");
    if (!args) return NULL;
    *args =
        (recompute_args){.segment = segment, .user = user, .inputs = count, .random = ctx->random};
    if (ctx->no_grad > 0) return run_segment(ctx, args, inputs, count);

    gd_tensor *y = run_unrecorded(ctx, args, inputs, count);
    if (!y || !args->trace.wanted) return y;

    gd_call call = {.context = ctx, .op = &recompute_op, .outputs = 1};
    call.input = gd_arena_array(ctx, count + args->trace.reads, sizeof *call.input, "recompute");
    call.output = gd_arena_array(ctx, 1, sizeof *call.output, "recompute");
    if (gd_failed(ctx)) return NULL;
    memcpy(call.input, inputs, (size_t)count * sizeof *inputs);
    call.inputs = gd_trace_leaves(&args->trace, call.input, count);
    call.output[0] = y;
    gd_node *node = gd_tape_append(&call);
    if (!node) return NULL;
    node->call.args = args;
    node->backward = recompute_backward;
    return y;
}
