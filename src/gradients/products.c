/* products.c - products with a Jacobian and with a Hessian, by gradients of gradients
 * (derivatives.h). */
#include "core/core.h"

#include "gradus/derivatives.h"

/* Drops what was recorded for gradients [n], but not what is kept: the products. */
static void drop(gd_context *ctx, gd_moment then, gd_tensor *const *gradients, int n)
{
    for (int i = 0; i < n; i++)
        if (gradients[i]) gradients[i]->storage->keep = false;
    gd_drop_since(ctx, then, NULL);
}

static gd_status check_vectors(gd_context *ctx, const char *who, gd_tensor *const *inputs,
                               gd_tensor *const *vectors, int n)
{
    if (inputs && gd_check_tensors(ctx, inputs, n, who, "input")) return ctx->status;
    for (int i = 0; inputs && i < n; i++)
        if (gd_check_like(inputs[i], "input", vectors ? vectors[i] : NULL, who, "vector", i))
            return ctx->status;
    return GD_OK;
}

gd_status gd_jvp(gd_tensor *const *outputs, int count, gd_tensor *const *inputs,
                 gd_tensor *const *vectors, int n, const gd_product_options *options,
                 gd_tensor **products)
{
    const bool differentiable = options && options->differentiable;
    for (int i = 0; products && i < count; i++) products[i] = NULL;
    gd_context *ctx = outputs && count > 0 && outputs[0] ? outputs[0]->ctx : NULL;
    if (!ctx) return GD_ERROR_ARGUMENT;
    if (gd_failed(ctx) || check_vectors(ctx, "jvp", inputs, vectors, n)) return ctx->status;
    const gd_moment then = gd_now(ctx);
    gd_tensor **u = gd_arena_array(ctx, count, sizeof *u, "jvp");
    gd_tensor **g = gd_arena_array(ctx, n, sizeof *g, "jvp");
    for (int i = 0; i < count && !gd_failed(ctx); i++) {
        const gd_tensor *y = outputs[i];
        if (!y) break; /* gd_gradients refuses it */
        u[i] = gd_constant(ctx, y->dtype, y->ndim, y->shape, 0);
        if (u[i]) u[i]->requires_grad = gd_dtype_is_real(y->dtype);
    }
    if (gd_failed(ctx)) return ctx->status;
    const gd_gradients_options first = {.cotangents = u, .differentiable = true, .zeros = true};
    const gd_gradients_options second = {
        .cotangents = vectors, .keep_tape = true, .differentiable = differentiable, .zeros = true};
    if (!gd_gradients(outputs, count, &first, inputs, n, g))
        gd_gradients(g, n, &second, u, count, products);
    if (!differentiable) drop(ctx, then, g, n);
    return ctx->status;
}

gd_status gd_hvp(gd_tensor *loss, gd_tensor *const *inputs, gd_tensor *const *vectors, int n,
                 const gd_product_options *options, gd_tensor **products)
{
    const bool differentiable = options && options->differentiable;
    for (int i = 0; products && i < n; i++) products[i] = NULL;
    if (!loss) return GD_ERROR_ARGUMENT;
    gd_context *ctx = loss->ctx;
    if (gd_failed(ctx) || check_vectors(ctx, "hvp", inputs, vectors, n)) return ctx->status;
    if (loss->count != 1) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "hvp: loss is %s, wanted one element",
                       gd_shape_text(loss).text);
    }
    const gd_moment then = gd_now(ctx);
    gd_tensor **g = gd_arena_array(ctx, n, sizeof *g, "hvp");
    if (!g) return ctx->status;
    const gd_gradients_options first = {.differentiable = true, .zeros = true};
    const gd_gradients_options second = {
        .cotangents = vectors, .keep_tape = true, .differentiable = differentiable, .zeros = true};
    if (!gd_gradients(&loss, 1, &first, inputs, n, g))
        gd_gradients(g, n, &second, inputs, n, products);
    if (!differentiable) drop(ctx, then, g, n);
    return ctx->status;
}
