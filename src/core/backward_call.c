/* backward_call.c - the backward of one node: the tensors that its kernel gets, and where it writes
 * the gradients.
 *
 * A gradient that does not exist yet needs memory. Two buffers are about to be free, that of dy and
 * that of the input: the kernel writes over one of them if the op's record allows that, and nothing
 * will read it again. */
#include "core/core.h"

#include <stdio.h>

/* ---- Where a gradient is written -------------------------------------------------------- */

/* dinput may be written over dy: the gradient of output 0, if it is not needed later. */
static bool can_take_doutput(const gd_node *node, const gd_call *call, int i)
{
    gd_tensor *t = node->call.input[i], *y = node->call.output[0];
    if (!(node->call.op->dinput_over_doutput & GD_BIT(i))) return false;
    return t->step && y->grad_valid && !gd_walk_retains(t->ctx, y) && call->doutput[0] == y->grad &&
           y->grad->storage->views == 1 && t->count == y->count &&
           gd_gradient_dtype(t) == gd_gradient_dtype(y);
}

/* dinput may be written over the input itself, if this node is its last reader. */
static bool can_take_input(const gd_node *node, const gd_call *call, int i, bool keep_tape)
{
    gd_tensor *t = node->call.input[i];
    if (keep_tape || !(node->call.op->dinput_over_input & GD_BIT(i))) return false;
    const gd_storage *storage = t->storage;
    return t->node && gd_gradient_dtype(t) == t->dtype && storage->step && !storage->keep &&
           storage->readers == 1 && !storage->released && call->input[i] == t &&
           gd_tensor_is_contiguous(t) &&
           storage->bytes == (size_t)t->count * gd_dtype_size(t->dtype);
}

/* A gradient header for t on an existing storage. */
static gd_tensor *grad_view(gd_tensor *t, gd_storage *storage)
{
    gd_tensor *grad = gd_grad_header(t, true, gd_gradient_dtype(t));
    if (grad) gd_tensor_attach(grad, storage);
    return t->grad = grad;
}

/* The memory of input i becomes that of its gradient: the storage's content moves to a new header,
 * and the old one, which the value's tensors use, is marked as released. So reading the value after
 * that is an error, as for any value whose memory was reused. */
static gd_tensor *take_input(gd_tensor *t)
{
    gd_storage *moved = gd_storage_create(t->ctx, true), *old = t->storage;
    if (!moved) return NULL;
    moved->data = old->data;
    moved->bytes = old->bytes;
    moved->memory_class = old->memory_class;
    moved->owned = true;
    old->data = NULL;
    old->released = true;
    return grad_view(t, moved);
}

/* The dtype in which the kernel writes the gradient of input i: that in which it takes the input,
 * or float32 if the gradient is stored so and the kernel can write it, or works in it
 * (gd_tape_append). */
static gd_dtype written_dtype(const gd_node *node, const gd_call *call, int i)
{
    const gd_tensor *t = node->call.input[i];
    const gd_dtype dtype = gd_kernel_dtype(call, t);
    const bool wide = node->call.op->dinput_float32 & GD_BIT(i) || node->call.output[0]->wide_grad;
    return wide && gd_gradient_dtype(t) == GD_FLOAT32 && gd_dtype_size(dtype) == 2 ? GD_FLOAT32
                                                                                   : dtype;
}

/* Whether the gradient of t, as it was before this backward, is an input of the node. */
static bool reads_gradient(const gd_node *node, const gd_tensor *t)
{
    for (int i = 0; t->grad && i < node->call.inputs; i++) {
        const gd_tensor *input = gd_node_value(node, i);
        if (input && input->storage == t->grad->storage) return true;
    }
    return false;
}

/* Chooses where the kernel writes the gradient of input i: sets dinput[i] and accumulate[i].
 *
 * Best is the gradient itself: the kernel adds into it, or writes if there is none yet, and nothing
 * has to be copied. That is not possible if the kernel writes another dtype; nor for the second
 * occurrence of an input, as in mul(x, x): a kernel may compute both gradients in one loop, and
 * each would overwrite what the other added; nor if the kernel reads the gradient, as in mul(x,
 * grad(x)). Those get a temporary, which gd_node_backward adds to the gradient. */
static gd_status place_gradient(gd_node *node, gd_call *call, int i, bool *accumulate,
                                bool keep_tape)
{
    gd_tensor *t = node->call.input[i];
    gd_context *ctx = t->ctx;
    bool repeated = false;
    for (int k = 0; k < i; k++) repeated = repeated || node->call.input[k] == t;
    gd_dtype dtype = written_dtype(node, call, i);
    if (repeated || gd_gradient_dtype(t) != dtype || reads_gradient(node, t)) {
        call->dinput[i] = gd_frame_tensor(ctx, dtype, t->ndim, t->shape, node->call.op->name);
        return ctx->status;
    }
    accumulate[i] = t->grad_valid;
    if (!t->grad && can_take_doutput(node, call, i)) {
        grad_view(t, node->call.output[0]->grad->storage);
    } else if (!t->grad && can_take_input(node, call, i, keep_tape)) {
        call->input[i] = take_input(t);
    } else if (call->op->dinput_rows & GD_BIT(i) && gd_grad_take_rows(call, i, t)) {
        accumulate[i] = true;
    } else {
        gd_tensor_need_grad(t);
    }
    call->dinput[i] = t->grad;
    return ctx->status;
}

/* ---- The call --------------------------------------------------------------------------- */

gd_status gd_check_value(const gd_node *node, const gd_tensor *t, const char *whose, int i)
{
    /* A step tensor that the user freed keeps its memory while it has readers. */
    const bool there = t->storage && !t->storage->released && (!t->freed || t->step);
    if (there && t->storage->version == node->versions[i]) return GD_OK;
    return gd_fail(t->ctx, GD_ERROR_STATE, "%s: its %s needs the %s %s%s", node->call.op->name,
                   whose, i < node->call.inputs ? "input" : "output", gd_shape_text(t).text,
                   there ? " as it was in the forward, but that was overwritten since"
                         : ", but that was freed");
}

/* t, value i of the node, as its kernel takes it, if the backward reads it; NULL on error. */
static gd_tensor *value_for_kernel(const gd_node *node, const gd_call *call, gd_tensor *t, int i)
{
    const bool strided = call->op->strided && i < call->inputs;
    if (!gd_node_value(node, i)) return t;
    if (gd_check_value(node, t, "backward", i)) return NULL;
    return gd_frame_prepare(call->context, t, gd_kernel_dtype(call, t), strided, call->op->name);
}

/* The gd_call for the op's backward: values and gradients as its kernels take them. */
static gd_status prepare_call(gd_node *node, gd_call *call, bool *accumulate, bool keep_tape)
{
    gd_context *ctx = call->context;
    const gd_op *op = node->call.op;
    for (int i = 0; i < node->call.outputs; i++) {
        gd_tensor *t = node->call.output[i];
        if (t->grad_valid) {
            const gd_dtype dtype = t->wide_grad ? t->grad->dtype : gd_kernel_dtype(call, t);
            call->doutput[i] = gd_frame_prepare(ctx, t->grad, dtype, false, op->name);
            if (!call->doutput[i]) return ctx->status;
        }
        call->output[i] = value_for_kernel(node, call, t, call->inputs + i);
        if (!call->output[i]) return ctx->status;
    }
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        call->input[i] = t ? value_for_kernel(node, call, t, i) : NULL;
        if (t && !call->input[i]) return ctx->status;
    }
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (t && gd_walk_needs(ctx, t) && place_gradient(node, call, i, accumulate, keep_tape))
            return ctx->status;
    }
    return GD_OK;
}

/* Names the path from the loss to the node: "mean <- mul <- my_op". */
static gd_status refuse_missing_backward(gd_context *ctx, const gd_node *node)
{
    const gd_node *path[16], *n = node;
    char text[384];
    int length = 0;
    for (; n && length < 16; n = n->via) path[length++] = n;
    size_t used = (size_t)snprintf(text, sizeof text, "%s", n ? "... " : "");
    while (length-- > 0 && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 path[length]->call.op->name, length ? " <- " : "");
    return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                   "%s: it has no backward on %s, but a gradient reached it (from the loss: %s)",
                   node->call.op->name, ctx->device_name, text);
}

bool *gd_node_call(const gd_node *node, gd_call *call)
{
    *call = node->call;
    const int64_t tensors = 2 * ((int64_t)call->inputs + call->outputs);
    const int64_t bytes = tensors * (int64_t)sizeof(gd_tensor *) + call->inputs;
    call->threads = gd_context_threads(call->context); /* 1 after a fork */
    call->repeated = false;
    call->input = gd_arena_array(call->context, bytes, 1, "backward");
    if (!call->input) return NULL;
    bool *accumulate = (bool *)(call->input + tensors);
    call->dinput = call->input + call->inputs;
    call->output = call->dinput + call->inputs;
    call->doutput = call->output + call->outputs;
    call->accumulate = accumulate;
    return accumulate;
}

gd_status gd_node_backward(gd_node *node, bool keep_tape)
{
    gd_context *ctx = node->call.context;
    const gd_op *op = node->call.op;
    if (!op->backward[ctx->device->device]) return refuse_missing_backward(ctx, node);
    gd_call call;
    bool *accumulate = gd_node_call(node, &call);
    if (!accumulate) return ctx->status;
    if (node->call.output[0]->wide_grad) call.kernel_dtype = node->call.dtype;
    if (prepare_call(node, &call, accumulate, keep_tape)) return ctx->status;
    gd_status status = gd_run_kernel(op->backward[ctx->device->device], &call, true);
    if (status || gd_failed(ctx)) return gd_fail(ctx, status, "%s: its backward failed", op->name);
    for (int i = 0; i < node->call.inputs; i++) {
        gd_tensor *t = node->call.input[i];
        if (!call.dinput[i]) continue;
        if (call.dinput[i] == t->grad)
            t->grad_valid = true;
        else
            gd_grad_add(t, call.dinput[i], op->name);
    }
    return ctx->status;
}
