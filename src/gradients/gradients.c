/* gradients.c - gradients as tensors: gd_gradients.
 *
 * A gradient that is a number comes from the walk of backward.c, with the same kernels. While it
 * runs, the gradient of each input is put aside, and the walk computes another; it leaves alone
 * what leads to no input (gd_walk_needs). One that is to be differentiated comes from derive.c. */
#include "gradients/derive.h"

/* ---- Checks ------------------------------------------------------------------------------- */

static gd_status refuse_input(const gd_tensor *t, int i)
{
    return gd_fail(t->ctx, GD_ERROR_ARGUMENT,
                   "gradients: input %d is %s %s, wanted a tensor that requires a gradient or was "
                   "made of one",
                   i, gd_dtype_name(t->dtype), gd_shape_text(t).text);
}

static gd_status check(gd_context *ctx, gd_tensor *const *outputs, int count,
                       const gd_gradients_options *options, gd_tensor *const *inputs, int n,
                       gd_tensor **gradients)
{
    const char *who = "gradients";
    if (!gd_outside_calls(ctx, who, false)) return ctx->status;
    if (!inputs || n < 1 || !gradients) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "gradients: %s, wanted [n] tensors",
                       !gradients ? "gradients is NULL"
                       : inputs   ? "there are no inputs"
                                  : "inputs is NULL");
    }
    if (gd_check_tensors(ctx, outputs, count, who, "output") ||
        gd_check_tensors(ctx, inputs, n, who, "input"))
        return ctx->status;
    for (int i = 0; i < n; i++) {
        /* with zeros, too: an op that reads it may have been recorded, and others not */
        if (!inputs[i]->requires_grad) return refuse_input(inputs[i], i);
    }
    for (int i = 0; options->cotangents && i < count; i++) {
        const gd_tensor *u = options->cotangents[i];
        if (u && u->gradient && options->differentiable) {
            return gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                           "gradients: cotangent %d is a gradient, or made of one, that is not "
                           "differentiable: give gd_detach of it if it is to be a constant",
                           i);
        }
    }
    return GD_OK;
}

/* ---- By the kernels ----------------------------------------------------------------------- */

/* Puts the gradient of an input aside: that of a leaf gets other memory, of the step. */
static gd_status put_aside(gd_tensor *t)
{
    gd_context *ctx = t->ctx;
    gd_wanted *w = t->wanted;
    if (w->aside) return GD_OK; /* the input is given twice */
    const gd_dtype dtype = gd_gradient_dtype(t);
    w->aside = true;
    w->grad = t->grad;
    w->retained = t->retained;
    w->grad_valid = t->grad_valid;
    t->grad = t->retained = NULL;
    t->grad_valid = false;
    if (t->step) return GD_OK;
    gd_tensor *grad = gd_grad_header(t, true, dtype);
    if (grad && !gd_tensor_allocate(grad, GD_MEMORY_GRADIENTS, "gradients")) t->grad = grad;
    return ctx->status;
}

/* Gives it back; leaves the new one, NULL if there is none, as the cotangent. */
static void take_back(gd_tensor *t)
{
    gd_wanted *w = t->wanted;
    if (!w->aside) return;
    w->aside = false;
    w->cotangent = gd_grad_now(t);
    if (t->grad && !w->cotangent) gd_grad_release(t);
    t->grad = w->grad;
    t->retained = w->retained;
    t->grad_valid = w->grad_valid;
}

static void by_kernels(gd_context *ctx, gd_tensor *const *outputs, int count,
                       gd_tensor *const *inputs, int n)
{
    const gd_gradients_options *options = &ctx->gradients->options;
    for (int i = 0; i < n && !gd_failed(ctx); i++) put_aside(inputs[i]);
    ctx->in_backward = true;
    if (!gd_failed(ctx))
        gd_backward_walk(ctx, outputs, count, options->cotangents, options->keep_tape);
    ctx->in_backward = false;
    for (int i = 0; i < n; i++) take_back(inputs[i]);
}

/* ---- Both --------------------------------------------------------------------------------- */

/* Whether a node that the walk has marked reads t, so that an output depends on it. */
static bool is_read(const gd_tensor *t)
{
    const gd_context *ctx = t->ctx;
    for (int64_t i = 0; i < ctx->tape_length; i++)
        for (int k = 0; ctx->tape[i]->marked && k < ctx->tape[i]->call.inputs; k++)
            if (ctx->tape[i]->call.input[k] == t) return true;
    return false;
}

/* The gradient of input i, of which the walk has left the cotangent. */
static gd_tensor *result(const gd_wanted *w, int i, const gd_gradients_options *options)
{
    gd_tensor *t = w->t, *g = w->cotangent;
    gd_context *ctx = t->ctx;
    if (!g && !options->zeros && !is_read(t)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT,
                "gradients: no output depends on input %d %s; set zeros if its gradient is to be 0",
                i, gd_shape_text(t).text);
        return NULL;
    }
    const gd_dtype dtype = gd_gradient_dtype(t);
    if (!g) g = gd_constant(ctx, dtype, t->ndim, t->shape, 0);
    /* a packed tensor of its own */
    const bool fit = g && g->dtype == dtype && g->storage->step && !g->storage->keep &&
                     g->storage->views == 1 && gd_tensor_is_contiguous(g);
    if (g && !fit) g = gd_joining.cast(g, dtype);
    if (!g) return NULL;
    g->owned = false;
    g->gradient = !options->differentiable;
    if (!g->gradient && !g->requires_grad) ctx->calls_at_constant = ctx->calls;
    g->storage->keep = true;
    return g;
}

static void collect(gd_tensor *const *inputs, int n, const gd_gradients_options *options,
                    gd_tensor **gradients)
{
    const gd_context *ctx = inputs[0]->ctx;
    for (int i = 0; i < n && !gd_failed(ctx); i++) {
        gd_wanted *w = inputs[i]->wanted;
        if (!w->aside) w->cotangent = result(w, i, options);
        w->aside = true; /* of an input that is given twice there is one gradient */
        gradients[i] = w->cotangent;
    }
    for (int i = 0; i < n && gd_failed(ctx); i++) gradients[i] = NULL;
}

gd_status gd_gradients(gd_tensor *const *outputs, int count, const gd_gradients_options *options,
                       gd_tensor *const *inputs, int n, gd_tensor **gradients)
{
    gd_gradients_walk walk = {.options = options ? *options : (gd_gradients_options){0}};
    for (int i = 0; gradients && i < n; i++) gradients[i] = NULL;
    gd_context *ctx = outputs && count > 0 && outputs[0] ? outputs[0]->ctx : NULL;
    if (!ctx && inputs && n > 0 && inputs[0]) ctx = inputs[0]->ctx;
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (gd_failed(ctx)) return ctx->status;
    if (!outputs || count < 1) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "gradients: there are no outputs, wanted one or more");
    }
    if (check(ctx, outputs, count, &walk.options, inputs, n, gradients)) return ctx->status;
    const int no_grad = ctx->no_grad;
    ctx->gradients = &walk;
    ctx->before = ctx->user_tensors;
    for (int i = 0; i < n && !gd_failed(ctx); i++) gd_want(inputs[i]);
    if (!gd_failed(ctx)) {
        if (walk.options.differentiable) {
            gd_derive(ctx, outputs, count);
            ctx->no_grad = 0;
        } else {
            by_kernels(ctx, outputs, count, inputs, n);
        }
        collect(inputs, n, &walk.options, gradients);
    }
    for (const gd_wanted *w = walk.first; w; w = w->next) w->t->wanted = NULL;
    ctx->no_grad = no_grad;
    ctx->gradients = NULL;
    return ctx->status;
}
