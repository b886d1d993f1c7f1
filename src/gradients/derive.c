/* derive.c - the differentiable walk: the chain rule by ops that are recorded, for gd_gradients.
 *
 * It goes back over the tape as backward.c does, but what it carries are tensors made by ops: dy,
 * the cotangent of a node's output, becomes dx by
 *
 *   - the record's `derivative`, which makes dx of dy, x and y by ops; or
 *   - its `definition`, which makes y of x by ops: their nodes are appended to the tape, on the
 *     node's own inputs, and the walk goes back over these, one by one, by the same two rules.
 *
 * Contributions of several uses of a tensor are summed with gd_add, so the sum is recorded as well.
 * So all that leads from the inputs to a gradient is on the tape, which stays in topological order:
 * a gradient may be an output of the next walk. The walk visits nodes it has appended only where
 * they come from a definition.
 *
 * The cotangent of a 16-bit tensor is a float32, and definitions and derivatives get 16-bit tensors
 * cast to float32. So a gradient is rounded to 16 bits once, at its end. */
#include "gradients/derive.h"

static gd_tensor *in_dtype(gd_tensor *t, gd_dtype dtype)
{
    return t && t->dtype != dtype ? gd_joining.cast(t, dtype) : t;
}

/* ---- Cotangents --------------------------------------------------------------------------- */

/* Adds a contribution to the cotangent of t; NULL is zeros. */
static void contribute(gd_tensor *t, gd_tensor *part)
{
    gd_wanted *w = part && gd_is_wanted(t) ? gd_want(t) : NULL;
    if (!w) return;
    part = in_dtype(part, t->dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32);
    w->cotangent = w->cotangent && part ? gd_joining.add(w->cotangent, part) : part;
}

static gd_tensor *cotangent_of(const gd_tensor *t)
{
    return t->wanted ? t->wanted->cotangent : NULL;
}

/* ---- What a derivation gets --------------------------------------------------------------- */

/* The shape of t without its value, for what a derivative may not read. */
static gd_tensor *shape_alone(const gd_call *call, const gd_tensor *t)
{
    const gd_dtype dtype = gd_dtype_is_real(t->dtype) ? call->dtype : t->dtype;
    return gd_tensor_header(t->ctx, "gradients", true, dtype, t->ndim, t->shape);
}

/* t, value i of a node, as the forward had it; a segment takes tensors as they are. */
static gd_tensor *value_of(const gd_node *node, gd_tensor *t, int i)
{
    if (gd_check_value(node, t, node->call.op->derivative ? "derivative" : "definition", i))
        return NULL;
    return gd_dtype_is_real(t->dtype) && !node->backward ? in_dtype(t, node->call.dtype) : t;
}

static gd_status prepare_inputs(const gd_node *node, gd_call *call)
{
    const gd_op *op = node->call.op;
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (!t) continue;
        const bool updated = op->updates_inputs & GD_BIT(i); /* nothing depends on it */
        const bool read = op->derivative ? gd_node_value(node, i) != NULL : !updated;
        call->input[i] = read ? value_of(node, t, i) : shape_alone(call, t);
        if (gd_failed(t->ctx)) return t->ctx->status;
    }
    return GD_OK;
}

static gd_status prepare_outputs(const gd_node *node, gd_call *call)
{
    for (int i = 0; i < node->call.outputs; i++) {
        gd_tensor *t = node->call.output[i];
        const bool read = gd_node_value(node, node->call.inputs + i) != NULL;
        call->output[i] = read ? value_of(node, t, node->call.inputs + i) : shape_alone(call, t);
        call->doutput[i] = in_dtype(cotangent_of(t), node->call.dtype);
        if (gd_failed(t->ctx)) return t->ctx->status;
    }
    return GD_OK;
}

/* ---- One node ----------------------------------------------------------------------------- */

/* Whether the gradient of an input is asked for: without elements there is nothing to compute. */
static bool is_asked(const gd_tensor *t)
{
    return t && gd_is_wanted(t) && t->count > 0;
}

/* What a derivative has to replace: it is no tensor. */
static gd_tensor unset;

static gd_status by_derivative(gd_node *node, gd_call *call)
{
    gd_context *ctx = call->context;
    if (prepare_inputs(node, call) || prepare_outputs(node, call)) return ctx->status;
    for (int i = 0; i < node->call.inputs; i++)
        call->dinput[i] = is_asked(node->call.input[i]) ? &unset : NULL;
    node->call.op->derivative(call);
    for (int i = 0; i < node->call.inputs && !gd_failed(ctx); i++) {
        if (call->dinput[i] == &unset) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: its derivative did not set dinput of %s",
                           node->call.op->name, gd_input_name(node->call.op, i).text);
        }
        const gd_tensor *dx = call->dinput[i];
        if (dx && !gd_check_made(node->call.op, dx, node->call.input[i], "derivative"))
            contribute(node->call.input[i], call->dinput[i]);
    }
    return ctx->status;
}

static void derive_nodes(gd_context *ctx, int64_t first, int64_t end);

static gd_status by_definition(gd_node *node, gd_call *call)
{
    gd_context *ctx = call->context;
    const int64_t first = ctx->tape_length;
    if (prepare_inputs(node, call)) return ctx->status;
    for (int i = 0; i < node->call.outputs; i++)
        call->output[i] = shape_alone(call, node->call.output[i]);
    if (gd_failed(ctx) || gd_define(call)) return ctx->status;
    const int64_t end = ctx->tape_length;
    gd_mark_wanted(ctx, first, end);
    for (int i = 0; i < node->call.outputs; i++)
        contribute(call->output[i], cotangent_of(node->call.output[i]));
    derive_nodes(ctx, first, end);
    return ctx->status;
}

static gd_status derive_node(gd_context *ctx, gd_node *node)
{
    const gd_op *op = node->call.op;
    if (!op->derivative && !op->definition) {
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "%s: its record has neither a definition nor a derivative, of which a "
                       "differentiable gradient needs one (gd_op in autograd.h)",
                       op->name);
    }
    gd_call call;
    if (!gd_node_call(node, &call)) return ctx->status;
    call.kernel_dtype = node->call.dtype;
    call.repeated = true;
    const gd_random_state random = ctx->random;
    const gd_op *outer = ctx->part_of;
    ctx->part_of = node->call.part_of || op->derivative ? node->call.part_of : op;
    if (op->random) ctx->random = (gd_random_state){node->call.seed, node->call.random_offset};
    gd_status status = op->derivative ? by_derivative(node, &call) : by_definition(node, &call);
    ctx->random = random;
    ctx->part_of = outer;
    return status;
}

/* ---- The walk ----------------------------------------------------------------------------- */

static void derive_nodes(gd_context *ctx, int64_t first, int64_t end)
{
    for (int64_t i = end - 1; i >= first && !gd_failed(ctx); i--) {
        gd_node *node = ctx->tape[i];
        bool reached = false, asked = false;
        for (int k = 0; k < node->call.outputs; k++)
            reached = reached || cotangent_of(node->call.output[k]);
        for (int k = 0; k < node->call.inputs; k++) asked = asked || is_asked(node->call.input[k]);
        if (!reached || !asked) continue;
        ctx->visits++;
        derive_node(ctx, node);
        ctx->visits--;
    }
}

gd_status gd_derive(gd_context *ctx, gd_tensor *const *outputs, int count)
{
    const gd_gradients_options *options = &ctx->gradients->options;
    const int no_grad = ctx->no_grad;
    int64_t top;
    if (gd_walk_mark(ctx, outputs, count, options->cotangents, &top)) return ctx->status;
    ctx->no_grad = 0;
    ctx->repeats++;
    for (int i = 0; i < count && !gd_failed(ctx); i++) {
        gd_tensor *y = outputs[i], *u = options->cotangents ? options->cotangents[i] : NULL;
        if (!gd_is_wanted(y)) continue;
        if (!u) u = gd_constant(ctx, y->dtype, y->ndim, y->shape, 1);
        contribute(y, u);
    }
    derive_nodes(ctx, 0, top);
    ctx->repeats--;
    ctx->no_grad = no_grad;
    return ctx->status;
}
