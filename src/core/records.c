/* records.c - the list of ops. */
#include "core/core.h"

const gd_op *gd_op_at(const gd_context *ctx, int index)
{
    if (index < 0) return NULL;
    if (index < gd_builtin_op_count) return gd_builtin_ops[index];
    index -= gd_builtin_op_count;
    return ctx && index < ctx->user_op_count ? ctx->user_ops[index] : NULL;
}

const gd_op *gd_find_op(const gd_context *ctx, const char *name)
{
    const gd_op *op;
    for (int i = 0; name && (op = gd_op_at(ctx, i)); i++) {
        if (!strcmp(op->name, name)) return op;
    }
    return NULL;
}

gd_status gd_register_op(gd_context *ctx, const gd_op *op)
{
    gd_op_counts counts;
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (!op) return gd_fail(ctx, GD_ERROR_ARGUMENT, "register_op: op is NULL, wanted a record");
    if (!gd_signature_read(ctx, op, "register_op", &counts)) return ctx->status;
    if (gd_find_op(ctx, op->name)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "register_op: the name \"%s\" is taken", op->name);
    }
    if (!gd_host_grow(ctx, (void **)&ctx->user_ops, &ctx->user_op_capacity, ctx->user_op_count + 1,
                      sizeof *ctx->user_ops, "the list of ops")) {
        return ctx->status;
    }
    ctx->user_ops[ctx->user_op_count++] = op;
    return GD_OK;
}
