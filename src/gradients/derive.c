/* derive.c - the differentiable walk: the chain rule by ops that are recorded, for gd_gradients.
 *
 * It goes back over the tape as backward.c does, but what it carries are tensors made by ops: dy, the
 * cotangent of a node's output, becomes dx by
 *
 *   - the record's `derivative`, which makes dx of dy, x and y by ops; or
 *   - its `definition`, which makes y of x by ops: their nodes are appended to the tape, on the node's
 *     own inputs, and the walk goes back over these, one by one, by the same two rules.
 *
 * What one use of a tensor contributes to its cotangent is added to that of the others by an op, too.
 * So all that leads from the inputs to a gradient is on the tape, which stays in topological order: a
 * gradient may be an output of the next walk. The nodes that a walk appends are never visited by
 * itself, but for those of definitions.
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
    if (!part || !t->wanted) return;
    part = in_dtype(part, t->dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32);
    t->cotangent = t->cotangent && part ? gd_joining.add(t->cotangent, part) : part;
}

/* Whether what a derivation made is of the context and the shape of t. `whose`: "derivative". */
static bool fits(const gd_node *node, const gd_tensor *made, const gd_tensor *t, const char *whose)
{
    const bool same = made->ctx == t->ctx && gd_same_shape(made, t);
    if (!same) {
        gd_fail(t->ctx, GD_ERROR_ARGUMENT, "%s: its %s made a tensor %s, wanted %s", node->op->name,
                whose, gd_shape_text(made).text, gd_shape_text(t).text);
    }
    return same;
}

/* ---- What a derivation gets --------------------------------------------------------------- */

/* The shape and dtype of t without its value, for what a derivative may not read. */
static gd_tensor *shape_alone(const gd_call *call, const gd_tensor *t)
{
    gd_tensor *shape = gd_arena_allocate(t->ctx, sizeof *shape, "gradients");
    if (!shape) return NULL;
    *shape = *t;
    shape->storage = NULL;
    shape->node = NULL;
    shape->requires_grad = false;
    if (gd_dtype_is_real(t->dtype)) shape->dtype = call->dtype;
    return shape;
}

/* t, value i of a node, as the forward had it; a segment takes tensors as they are. */
static gd_tensor *value_of(const gd_node *node, gd_tensor *t, int i)
{
    if (gd_check_value(node, t, node->op->derivative ? "derivative" : "definition", i)) return NULL;
    return gd_dtype_is_real(t->dtype) && !node->segment ? in_dtype(t, node->dtype) : t;
}

static gd_status prepare_inputs(const gd_node *node, gd_call *call)
{
    const gd_op *op = node->op;
    for (int i = 0; i < node->inputs; i++) {
        gd_tensor *t = node->input[i];
        if (!t) continue;
        const bool updated = op->updates_inputs & GD_BIT(i); /* nothing depends on it */
        const bool read = op->derivative ? gd_op_reads_input(op, i) : !updated;
        call->input[i] = read ? value_of(node, t, i) : shape_alone(call, t);
        if (gd_failed(t->ctx)) return t->ctx->status;
    }
    return GD_OK;
}

static gd_status prepare_outputs(const gd_node *node, gd_call *call)
{
    for (int i = 0; i < node->outputs; i++) {
        gd_tensor *t = node->output[i];
        const bool read = gd_op_reads_output(node->op, i);
        call->output[i] = read ? value_of(node, t, node->inputs + i) : shape_alone(call, t);
        call->doutput[i] = in_dtype(t->cotangent, node->dtype);
        if (gd_failed(t->ctx)) return t->ctx->status;
    }
    return GD_OK;
}

/* ---- One node ----------------------------------------------------------------------------- */

/* Whether the gradient of an input is asked for: without elements there is nothing to compute. */
static bool is_asked(const gd_tensor *t)
{
    return t && t->wanted && t->count > 0;
}

/* What a derivative has to replace: it is no tensor. */
static gd_tensor unset;

static gd_status by_derivative(gd_node *node, gd_call *call)
{
    gd_context *ctx = call->context;
    if (prepare_inputs(node, call) || prepare_outputs(node, call)) return ctx->status;
    for (int i = 0; i < node->inputs; i++)
        call->dinput[i] = is_asked(node->input[i]) ? &unset : NULL;
    node->op->derivative(call);
    for (int i = 0; i < node->inputs && !gd_failed(ctx); i++) {
        if (call->dinput[i] == &unset) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: its derivative did not set dinput of %s",
                           node->op->name, gd_input_name(node->op, i).text);
        }
        const gd_tensor *dx = call->dinput[i];
        if (dx && fits(node, dx, node->input[i], "derivative"))
            contribute(node->input[i], call->dinput[i]);
    }
    return ctx->status;
}

static void derive_nodes(gd_context *ctx, int64_t first, int64_t end);

static gd_status by_definition(gd_node *node, gd_call *call)
{
    gd_context *ctx = call->context;
    const int64_t first = ctx->tape_length;
    gd_tensor **shape = call->doutput; /* of the outputs, which the definition replaces */
    if (prepare_inputs(node, call)) return ctx->status;
    for (int i = 0; i < node->outputs; i++)
        call->output[i] = shape[i] = shape_alone(call, node->output[i]);
    if (gd_failed(ctx)) return ctx->status;
    node->op->definition(call);
    const int64_t end = ctx->tape_length;
    gd_mark_wanted(ctx, first, end);
    for (int i = 0; i < node->outputs && !gd_failed(ctx); i++) {
        gd_tensor *y = call->output[i];
        if (!y || y == shape[i]) {
            return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: its definition did not set output %d",
                           node->op->name, i);
        }
        if (fits(node, y, node->output[i], "definition")) contribute(y, node->output[i]->cotangent);
    }
    derive_nodes(ctx, first, end);
    return ctx->status;
}

static gd_status derive_node(gd_context *ctx, gd_node *node)
{
    const gd_op *op = node->op;
    if (!op->derivative && !op->definition) {
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                       "%s: its record has neither a definition nor a derivative, of which a "
                       "differentiable gradient needs one (gd_op in autograd.h)",
                       op->name);
    }
    const int64_t tensors = 2 * ((int64_t)node->inputs + node->outputs);
    gd_tensor **tensor = gd_arena_array(ctx, tensors, sizeof *tensor, "gradients");
    if (!tensor) return ctx->status;
    gd_call call = {.context = ctx,
                    .op = op,
                    .args = node->args,
                    .dtype = node->dtype,
                    .kernel_dtype = node->dtype,
                    .threads = gd_threads(ctx),
                    .inputs = node->inputs,
                    .outputs = node->outputs,
                    .repeated = true,
                    .seed = node->seed,
                    .random_offset = node->random_offset,
                    .random_base = ctx->random_base};
    call.input = tensor;
    call.dinput = call.input + node->inputs;
    call.output = call.dinput + node->inputs;
    call.doutput = call.output + node->outputs;
    const gd_random_state random = ctx->random;
    if (op->random) ctx->random = (gd_random_state){node->seed, node->random_offset};
    gd_status status = op->derivative ? by_derivative(node, &call) : by_definition(node, &call);
    ctx->random = random;
    return status;
}

/* Inputs and outputs that the user freed, but whose memory the tape has kept, can be read by ops while
 * the node is derived. */
static void lend(gd_tensor *const *t, int count, bool *freed, bool back)
{
    for (int i = 0; i < count; i++) {
        if (!t[i] || !t[i]->step || !t[i]->storage || t[i]->storage->released) continue;
        if (!back) freed[i] = t[i]->freed;
        t[i]->freed = back && freed[i];
    }
}

/* ---- The walk ----------------------------------------------------------------------------- */

static void derive_nodes(gd_context *ctx, int64_t first, int64_t end)
{
    for (int64_t i = end - 1; i >= first && !gd_failed(ctx); i--) {
        gd_node *node = ctx->tape[i];
        bool reached = false, asked = false;
        for (int k = 0; k < node->outputs; k++) reached = reached || node->output[k]->cotangent;
        for (int k = 0; k < node->inputs; k++) asked = asked || is_asked(node->input[k]);
        if (!reached || !(asked || (node->segment && node->leads))) continue;
        bool *freed =
            gd_arena_array(ctx, (int64_t)node->inputs + node->outputs, sizeof *freed, "gradients");
        if (!freed) return;
        lend(node->input, node->inputs, freed, false);
        lend(node->output, node->outputs, freed + node->inputs, false);
        derive_node(ctx, node);
        lend(node->output, node->outputs, freed + node->inputs, true);
        lend(node->input, node->inputs, freed, true);
    }
}

gd_status gd_derive(gd_context *ctx, gd_tensor *const *outputs, int count)
{
    const gd_gradients_options *options = ctx->gradients;
    const int no_grad = ctx->no_grad;
    int64_t top;
    if (gd_walk_mark(ctx, outputs, count, options->cotangents, &top)) return ctx->status;
    ctx->no_grad = 0;
    gd_repeat_begin(ctx);
    for (int i = 0; i < count && !gd_failed(ctx); i++) {
        gd_tensor *y = outputs[i], *u = options->cotangents ? options->cotangents[i] : NULL;
        if (!y->wanted) continue;
        if (!u) u = gd_constant(ctx, y->dtype, y->ndim, y->shape, 1);
        contribute(y, u);
    }
    derive_nodes(ctx, 0, top);
    gd_repeat_end(ctx);
    ctx->no_grad = no_grad;
    return ctx->status;
}
