/* grads.c - the gradients of a group, which are one block: completing, scaling and clipping them;
 * and the slices of the block that this rank updates. */
#include "optim/params.h"

#include <math.h>

bool gd_params_slice_at(const gd_params *params, int64_t index, gd_params_slice *slice)
{
    if (!params || !params->values || index < 0) return false;
    if (params->replica) return params->replica->calls->slice_at(params->replica, index, slice);
    *slice = (gd_params_slice){0, params->values->count, 0};
    return index == 0;
}

void gd_params_zero_missing_grads(gd_params *params, int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < params->count; i++) {
        const gd_tensor *t = params->list[i].tensor;
        if (t->grad_valid || t->count == 0 || t->offset < begin || t->offset >= end) continue;
        gd_grad_zero(t->grad);
    }
}

/* A bucket sent early had its missing gradients zeroed then; now another stream writes to it. */
gd_status gd_params_complete_grads(gd_params *params)
{
    if (params->replica) return params->replica->calls->reduce(params->replica);
    gd_params_zero_missing_grads(params, 0, params->grads->count);
    return params->ctx->status;
}

gd_status gd_params_scale_grads(gd_params *params, double factor)
{
    if (!gd_params_ready(params, "params_scale_grads")) return gd_params_status(params);
    gd_context *ctx = params->ctx;
    if (!isfinite(factor)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT,
                       "params_scale_grads: factor is %g, wanted a finite number", factor);
    }
    if (params->replica && !params->replica->begun) /* no mean was taken yet */
        gd_params_zero_missing_grads(params, 0, params->grads->count);
    else if (gd_params_complete_grads(params))
        return ctx->status;
    gd_grad_scale(params->grads, factor);
    return ctx->status;
}

/* The sum of squares of all gradients, of their means where they are shared. */
static double sum_squares(gd_params *params)
{
    gd_context *ctx = params->ctx;
    gd_replica *replica = params->replica;
    double sum = NAN;
    if (!replica) return gd_sum_squares(params->grads);
    replica->calls->squares(replica, replica->norm);
    if (!replica->calls->sum(replica, replica->norm, 1))
        ctx->device->download(ctx, &sum, replica->norm, sizeof sum);
    return gd_failed(ctx) ? (double)NAN : sum;
}

gd_status gd_clip_grad_norm(gd_params *params, double max_norm, double *norm)
{
    if (norm) *norm = NAN; /* unless it can be measured */
    if (!gd_params_ready(params, "clip_grad_norm")) return gd_params_status(params);
    gd_context *ctx = params->ctx;
    if (isnan(max_norm)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "clip_grad_norm: max_norm is nan, wanted a number");
    }
    if (!gd_outside_graph(ctx, "clip_grad_norm")) return ctx->status;
    if (gd_params_complete_grads(params)) return ctx->status;
    double length = sqrt(sum_squares(params));
    double factor = max_norm / (length + 1e-6);
    if (!gd_failed(ctx) && !isfinite(length))
        gd_notice(
            ctx, GD_NOTICE_NORM,
            "clip_grad_norm: the norm of the gradient is %g: an update by it makes parameters "
            "nan, but for gd_optimizer_update, which makes none; gd_tape_find_nonfinite names "
            "the op",
            length);
    if (max_norm > 0 && isfinite(length) && factor < 1) gd_grad_scale(params->grads, factor);
    if (norm) *norm = length;
    return ctx->status;
}
