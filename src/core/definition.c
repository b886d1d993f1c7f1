/* definition.c - an op without kernels is run by its definition: by the ops that it is made of. */
#include "core/core.h"

gd_status gd_define(gd_call *call)
{
    gd_context *ctx = call->context;
    gd_tensor **shape = gd_arena_array(ctx, call->outputs, sizeof *shape, "a definition");
    if (!shape) return ctx->status;
    memcpy(shape, call->output, (size_t)call->outputs * sizeof *shape);
    call->op->definition(call);
    for (int i = 0; i < call->outputs && !gd_failed(ctx); i++) {
        const gd_tensor *y = call->output[i];
        if (y && y != shape[i])
            gd_check_made(call->op, y, shape[i], "definition");
        else
            gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: its definition did not set output %d",
                    call->op->name, i);
    }
    return ctx->status;
}

/* Frees what the parts of a definition have made and no backward reads. */
static void free_parts(gd_context *ctx, const gd_tensor *before)
{
    for (gd_tensor *t = ctx->step_tensors; t != before; t = t->next) {
        gd_storage *storage = t->storage;
        if (t->freed || !storage || !storage->step || storage->readers > 0) continue;
        t->freed = true;
        if (--storage->views == 0) gd_storage_release(ctx, storage);
    }
}

/* Whether a definition made y after call `number`, in memory of its own: it is neither an input nor
 * a view of one. */
static bool is_own(const gd_call *call, uint64_t number, const gd_tensor *y)
{
    for (int i = 0; i < call->inputs; i++)
        if (call->input[i] && call->input[i]->storage == y->storage) return false;
    return gd_tensor_readable(y) && y->call > number;
}

/* The definition takes real inputs in the dtype of the computation, unless there are no kernels
 * and the record is mixed. Its outputs are rounded once; one that is not its own is copied. */
static gd_status define_outputs(gd_call *call, const gd_spec *output)
{
    gd_context *ctx = call->context;
    const gd_device device = ctx->device->device;
    const bool own = !call->op->forward[device] && call->op->mixed & GD_BIT(device);
    const uint64_t number = ctx->calls;
    gd_tensor *before = ctx->step_tensors;
    gd_call parts = *call;
    parts.input = gd_arena_array(ctx, call->inputs + call->outputs, sizeof *parts.input, "a call");
    if (!parts.input) return ctx->status;
    parts.output = parts.input + call->inputs;
    for (int i = 0; i < parts.inputs; i++) {
        gd_tensor *t = call->input[i];
        const bool convert = !own && t && gd_dtype_is_real(t->dtype) && t->dtype != parts.dtype;
        parts.input[i] = convert ? gd_joining.cast(t, parts.dtype) : t;
    }
    for (int i = 0; i < parts.outputs; i++) {
        const gd_spec *spec = &output[i];
        const gd_dtype dtype = gd_dtype_is_real(spec->dtype) ? parts.dtype : spec->dtype;
        parts.output[i] =
            gd_tensor_header(ctx, parts.op->name, true, dtype, spec->ndim, spec->shape);
    }
    if (!gd_failed(ctx)) gd_define(&parts);
    for (int i = 0; i < parts.outputs && !gd_failed(ctx); i++) {
        gd_tensor *y = parts.output[i];
        const gd_dtype dtype = output[i].dtype;
        if (y->dtype != dtype || !is_own(call, number, y)) y = gd_joining.cast(y, dtype);
        if (!y) break;
        y->call = number;
        y->storage->readers++;
        call->output[i] = y;
    }
    if (gd_failed(ctx)) return ctx->status;
    free_parts(ctx, before);
    for (int i = 0; i < parts.outputs; i++) call->output[i]->storage->readers--;
    return GD_OK;
}

gd_status gd_run_definition(gd_call *call, const gd_spec *output)
{
    gd_context *ctx = call->context;
    const gd_op *outer = ctx->part_of;
    const gd_random_state random = ctx->random;
    if (!outer) ctx->part_of = call->op;
    if (call->op->random) ctx->random = (gd_random_state){call->seed, call->random_offset};
    const gd_status status = define_outputs(call, output);
    ctx->random = random;
    ctx->part_of = outer;
    return status;
}
