/* average.c - a moving average of the parameters over their updates (Polyak & Juditsky 1992; here
 * exponential), one more state of the optimizer. */
#include "optim/optimizer.h"
#include "optim/graph.h"

#include <math.h>

/* Before the first update, and where a checkpoint has none, the average is the weights. */
static void begin_average(const gd_optimizer *optimizer)
{
    const gd_params *params = optimizer->params;
    const gd_tensor *average = optimizer->average;
    gd_params_slice slice;
    for (int64_t i = 0; gd_params_slice_at(params, i, &slice); i++)
        gd_copy_packed(optimizer->ctx, gd_block_at(average, slice.at), average->dtype,
                       gd_block_at(params->values, slice.begin), params->dtype,
                       slice.end - slice.begin);
}

gd_status gd_optimizer_average(gd_optimizer *optimizer, double decay)
{
    const char *who = "optimizer_average";
    if (!optimizer) return GD_ERROR_ARGUMENT;
    gd_context *ctx = optimizer->ctx;
    if (gd_failed(ctx) || !gd_outside_graph(ctx, who)) return ctx->status;
    if (!gd_option_in_range(ctx, who, "decay", decay, 0, 1)) return ctx->status;
    if (optimizer->average || optimizer->submitted) {
        return gd_fail(ctx, GD_ERROR_STATE, "%s: %s, wanted one call, before the first update", who,
                       optimizer->average ? "it was called before" : "an update was made");
    }
    gd_graphs_forget(ctx);
    optimizer->average_decay = decay;
    if (gd_optimizer_add_state(optimizer, "average", &optimizer->average, who))
        begin_average(optimizer);
    return gd_error_status(ctx);
}

/* Exchanges a slice of the parameters with its average. */
static void swap_slice(const gd_optimizer *optimizer, const gd_params_slice *slice,
                       const gd_tensor *spare)
{
    gd_context *ctx = optimizer->ctx;
    const gd_params *params = optimizer->params;
    const gd_dtype dtype = optimizer->average->dtype;
    const int64_t n = slice->end - slice->begin;
    void *average = gd_block_at(optimizer->average, slice->at), *between = gd_tensor_data(spare);
    gd_update_average(optimizer, slice, between, NULL);
    if (optimizer->master)
        gd_copy_packed(ctx, gd_block_at(optimizer->master, slice->at), dtype, average, dtype, n);
    gd_copy_packed(ctx, gd_block_at(params->values, slice->begin), params->dtype, average, dtype,
                   n);
    gd_copy_packed(ctx, average, dtype, between, dtype, n);
}

gd_status gd_optimizer_swap_average(gd_optimizer *optimizer)
{
    const char *who = "optimizer_swap_average";
    if (!optimizer) return GD_ERROR_ARGUMENT;
    gd_context *ctx = optimizer->ctx;
    gd_params *params = optimizer->params;
    if (gd_failed(ctx) || !gd_outside_graph(ctx, who)) return ctx->status;
    if (!optimizer->average || gd_optimizer_steps(optimizer) == 0) {
        return gd_fail(ctx, GD_ERROR_STATE, "%s: there is no average, wanted %s before", who,
                       optimizer->average ? "an update" : "gd_optimizer_average and an update");
    }
    if (optimizer->average->count == 0) return GD_OK;
    gd_tensor *spare = gd_params_block(ctx, optimizer->average->dtype, optimizer->average->count,
                                       GD_MEMORY_WORKSPACE, who);
    if (!spare) return ctx->status;
    gd_params_slice slice;
    for (int64_t i = 0; gd_params_slice_at(params, i, &slice) && !gd_failed(ctx); i++) {
        swap_slice(optimizer, &slice, spare);
        if (params->replica) params->replica->calls->gather(params->replica, i, params->values);
    }
    gd_tensor_destroy(spare);
    gd_new_version(ctx, params->values->storage);
    optimizer->averaged = !optimizer->averaged;
    return gd_error_status(ctx);
}
