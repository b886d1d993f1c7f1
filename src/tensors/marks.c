/* marks.c - what a user says of a tensor: that its gradient is wanted or kept, that its memory
 * stays until the step ends, that gradients end there. */
#include "core/core.h"

/* The node that reads t and was recorded when t required no gradient, if there is one whose
 * backward may run: others that read t then were not recorded, so that t would get a part of its
 * gradient. */
static const gd_node *reader_without_gradient(const gd_tensor *t)
{
    const gd_context *ctx = t->ctx;
    for (int64_t n = ctx->tape_length - 1; n >= 0; n--) {
        const gd_node *node = ctx->tape[n];
        for (int i = 0; i < node->call.inputs && !node->used; i++)
            if (node->call.input[i] == t && !node->required[i]) return node;
    }
    return NULL;
}

gd_status gd_tensor_set_requires_grad(gd_tensor *t, bool on)
{
    if (!t) return GD_ERROR_ARGUMENT;
    if (gd_failed(t->ctx)) return t->ctx->status;
    const char *fault = t->step    ? "was made by an op, wanted one of yours"
                        : t->freed ? "was freed"
                        : on && !gd_dtype_is_real(t->dtype) ? "is int32, wanted a real dtype"
                                                            : NULL;
    if (fault) {
        return gd_fail(t->ctx, t->freed ? GD_ERROR_STATE : GD_ERROR_ARGUMENT,
                       "set_requires_grad: the tensor %s %s", gd_shape_text(t).text, fault);
    }
    if (on && t->buffer) {
        return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                       "set_requires_grad: \"%s\" is a buffer, wanted a parameter (gd_params_add)",
                       t->name);
    }
    const gd_node *reader = on && !t->requires_grad ? reader_without_gradient(t) : NULL;
    if (reader) {
        return gd_fail(t->ctx, GD_ERROR_STATE,
                       "set_requires_grad: %s of this step has read the tensor %s when it required "
                       "no gradient, wanted the call before the ops",
                       reader->call.op->name, gd_shape_text(t).text);
    }
    t->requires_grad = on;
    if (on) t->ctx->calls_at_require = t->ctx->calls;
    if (!t->owned && t->storage) { /* a group's parameters are counted already */
        gd_storage_reclassify(t->ctx, t->storage, on ? GD_MEMORY_PARAMETERS : GD_MEMORY_OTHER);
    }
    return GD_OK;
}

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
