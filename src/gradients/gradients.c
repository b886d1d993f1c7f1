/* gradients.c - gradients as tensors: gd_gradients.
 *
 * A gradient that is a number comes from the walk of backward.c, with the same kernels. While it runs,
 * the gradient of each input is put aside, and the walk computes another; it leaves alone what leads
 * to no input (gd_walk_needs). One that is to be differentiated comes from derive.c. */
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
        const bool real = gd_dtype_is_real(inputs[i]->dtype);
        if (!real || (!inputs[i]->requires_grad && !options->zeros))
            return refuse_input(inputs[i], i);
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

/* What an input had before. */
typedef struct own_gradient {
    bool repeated; /* the input has an entry already */
    gd_tensor *grad, *retained;
    bool grad_valid;
} own_gradient;

/* Puts the gradient of an input aside: that of a leaf gets other memory, of the step. */
static gd_status put_aside(gd_tensor *t, own_gradient *own)
{
    gd_context *ctx = t->ctx;
    const gd_dtype dtype = gd_gradient_dtype(t);
    *own = (own_gradient){false, t->grad, t->retained, t->grad_valid};
    t->grad = t->retained = NULL;
    t->grad_valid = false;
    t->cotangent = t; /* see gd_walk_retains */
    if (t->step) return GD_OK;
    gd_tensor *grad = gd_tensor_header(ctx, "gradients", true, dtype, t->ndim, t->shape);
    if (grad && !gd_tensor_allocate(grad, GD_MEMORY_GRADIENTS, "gradients")) t->grad = grad;
    return ctx->status;
}

/* Gives it back; leaves the new one, NULL if there is none, as the cotangent. */
static void take_back(gd_tensor *t, const own_gradient *own)
{
    t->cotangent = t->retained ? t->retained : t->grad_valid ? t->grad : NULL;
    if (t->grad && !t->cotangent) gd_grad_release(t);
    t->grad = own->grad;
    t->retained = own->retained;
    t->grad_valid = own->grad_valid;
}

static gd_status by_kernels(gd_context *ctx, gd_tensor *const *outputs, int count,
                            gd_tensor *const *inputs, int n)
{
    const gd_gradients_options *options = ctx->gradients;
    own_gradient *own = gd_arena_array(ctx, n, sizeof *own, "gradients");
    if (!own) return ctx->status;
    int given = 0;
    for (; given < n && !gd_failed(ctx); given++) {
        gd_tensor *t = inputs[given];
        own[given].repeated = t->wanted;
        if (!t->wanted) put_aside(t, &own[given]);
        t->wanted = true;
    }
    ctx->in_backward = true;
    if (!gd_failed(ctx))
        gd_backward_walk(ctx, outputs, count, options->cotangents, options->keep_tape);
    ctx->in_backward = false;
    for (int i = 0; i < given; i++)
        if (!own[i].repeated) take_back(inputs[i], &own[i]);
    return ctx->status;
}

/* ---- Both --------------------------------------------------------------------------------- */

/* The gradient of an input, of which the walk has left the cotangent. */
static gd_tensor *result(gd_tensor *t, int i, const gd_gradients_options *options)
{
    gd_context *ctx = t->ctx;
    gd_tensor *g = t->cotangent;
    if (!g && !t->reached && !options->zeros) {
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
    g->storage->keep = true;
    return g;
}

static void collect(gd_tensor *const *inputs, int n, const gd_gradients_options *options,
                    gd_tensor **gradients)
{
    gd_context *ctx = inputs[0]->ctx;
    for (int i = 0; i < n && !gd_failed(ctx); i++) {
        if (inputs[i]->wanted) inputs[i]->cotangent = result(inputs[i], i, options);
        inputs[i]->wanted = false;
        gradients[i] = inputs[i]->cotangent;
    }
    for (int i = 0; i < n && gd_failed(ctx); i++) gradients[i] = NULL;
}

static void forget(gd_tensor *const *t, int count)
{
    for (int i = 0; i < count; i++) {
        if (!t[i]) continue;
        t[i]->wanted = t[i]->reached = false;
        t[i]->cotangent = NULL;
    }
}

gd_status gd_gradients(gd_tensor *const *outputs, int count, const gd_gradients_options *options,
                       gd_tensor *const *inputs, int n, gd_tensor **gradients)
{
    const gd_gradients_options chosen = options ? *options : (gd_gradients_options){0};
    for (int i = 0; gradients && i < n; i++) gradients[i] = NULL;
    gd_context *ctx = outputs && count > 0 && outputs[0] ? outputs[0]->ctx : NULL;
    if (!ctx && inputs && n > 0 && inputs[0]) ctx = inputs[0]->ctx;
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (gd_failed(ctx)) return ctx->status;
    if (!outputs || count < 1) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "gradients: there are no outputs, wanted one or more");
    }
    if (check(ctx, outputs, count, &chosen, inputs, n, gradients)) return ctx->status;
    const int no_grad = ctx->no_grad;
    ctx->gradients = &chosen;
    ctx->before = ctx->user_tensors;
    if (chosen.differentiable) {
        for (int i = 0; i < n; i++) inputs[i]->wanted = true;
        gd_derive(ctx, outputs, count);
        ctx->no_grad = 0;
    } else {
        by_kernels(ctx, outputs, count, inputs, n);
    }
    collect(inputs, n, &chosen, gradients);
    ctx->no_grad = no_grad;
    ctx->gradients = NULL;
    forget(inputs, n);
    forget(outputs, count);
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        forget(ctx->tape[i]->input, ctx->tape[i]->inputs);
        forget(ctx->tape[i]->output, ctx->tape[i]->outputs);
    }
    return ctx->status;
}
