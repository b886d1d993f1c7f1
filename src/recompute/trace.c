/* trace.c - comparing the second run of a segment of gd_recompute with its first.
 *
 * A segment's gradients are right only if its run in the backward computes what the one in the
 * forward did. So the first run leaves a list of its calls, and each call of the second is compared
 * with the one of the same number before it runs: the op, its arguments, its offset in the random
 * stream, and the dtype, shape and origin of each input. Two inputs have the same origin if they
 * are the same output of the same call of the run, or if they were made before it and are the same
 * view of the same content. The version of a storage identifies its content (gd_new_version).
 *
 * What the run has itself written to has no version that could be compared. What an op with a
 * backward updates is not compared: nothing that the second run computes depends on it. */
#include "recompute/trace.h"

#include <stdio.h>

typedef struct origin {
    gd_tensor *t; /* NULL: an optional input that was not given */
    const gd_storage *storage;
    uint64_t call;    /* counted from the beginning of the run; 0: not made in it */
    uint64_t version; /* 0: written to in the run */
} origin;

typedef struct gd_traced_call {
    struct gd_traced_call *next;
    gd_call call;
    origin *input;
} traced_call;

/* The end of a run stands in the list as a call that reads what the segment returns. */
static const gd_op end = {.name = "the end", .inputs = 1, .input_names = {"y"}};

static origin origin_of(const gd_trace *trace, gd_tensor *t)
{
    if (!t) return (origin){.t = NULL};
    const uint64_t version = t->storage ? t->storage->version : 0;
    return (origin){.t = t,
                    .storage = t->storage,
                    .call = t->call > trace->calls ? t->call - trace->calls : 0,
                    .version = version > trace->versions ? 0 : version};
}

/* ---- The first run ------------------------------------------------------------------------ */

static gd_status append(gd_trace *trace, const gd_call *call)
{
    gd_context *ctx = call->context;
    traced_call *c = gd_arena_allocate(ctx, sizeof *c, "recompute");
    origin *input = gd_arena_array(ctx, call->inputs, sizeof *input, "recompute");
    const size_t args_size = call->op->plain_args ? call->op->args_size : 0;
    void *args = gd_arena_array(ctx, 1, args_size, "recompute");
    if (gd_failed(ctx)) return ctx->status;
    for (int i = 0; i < call->inputs; i++) {
        input[i] = origin_of(trace, call->input[i]);
        trace->wanted = trace->wanted || gd_tensor_requires_grad(input[i].t);
    }
    if (args_size) memcpy(args, call->args, args_size);
    trace->reads += call->inputs;
    *c = (traced_call){.call = *call, .input = input};
    c->call.args = args;
    *trace->next = c;
    trace->next = &c->next;
    return GD_OK;
}

/* ---- The second run ----------------------------------------------------------------------- */

typedef struct tensor_text {
    char text[224];
} tensor_text;

static tensor_text text_of(const gd_tensor *t)
{
    tensor_text text;
    snprintf(text.text, sizeof text.text, "%s%s%s", t ? gd_dtype_name(t->dtype) : "", t ? " " : "",
             gd_shape_text(t).text);
    return text;
}

/* The tensors have the same spec. */
static bool same_view(const gd_tensor *a, const gd_tensor *b)
{
    return a->offset == b->offset &&
           !memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides);
}

/* `what` names the tensor: "op 2 of the segment, mul: b". */
static gd_status compare_tensor(gd_context *ctx, const char *what, const origin *now,
                                const origin *then)
{
    const gd_tensor *t = now->t, *wanted = then->t;
    if (!t && !wanted) return GD_OK;
    if (!t || !wanted || t->dtype != wanted->dtype || !gd_same_shape(t, wanted)) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "recompute: %s is %s in its second run, wanted %s as in the first", what,
                       text_of(t).text, text_of(wanted).text);
    }
    const bool same_call = now->call == then->call && (!now->call || t->output == wanted->output);
    const bool same = same_call && same_view(t, wanted);
    if (same && (now->call || now->version == then->version)) return GD_OK;
    return gd_fail(ctx, GD_ERROR_STATE, "recompute: %s %s is %s", what, text_of(t).text,
                   same && now->storage == then->storage
                       ? "needed as it was in the first run, but that was overwritten since"
                       : "another tensor in its second run, wanted the one of the first");
}

static const char *other_part(const gd_call *now, const gd_call *then)
{
    const size_t args = now->op->plain_args ? now->op->args_size : 0;
    if (now->inputs != then->inputs) return "another number of inputs";
    if (args && memcmp(now->args, then->args, args)) return "other arguments";
    if (now->seed != then->seed || now->random_offset != then->random_offset)
        return "other random numbers";
    return NULL;
}

static gd_status compare(gd_trace *trace, const gd_call *call)
{
    gd_context *ctx = call->context;
    const gd_op *op = call->op;
    traced_call *c = *trace->next;
    if (op != c->call.op) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "recompute: op %lld of the segment is %s in its second run, wanted %s as in "
                       "the first",
                       (long long)trace->number, op->name, c->call.op->name);
    }
    const char *other = other_part(call, &c->call);
    if (other) {
        return gd_fail(ctx, GD_ERROR_STATE,
                       "recompute: op %lld of the segment, %s, has %s in its second run, wanted "
                       "the same as in the first",
                       (long long)trace->number, op->name, other);
    }
    char what[320] = "what the segment returns";
    for (int i = 0; i < call->inputs; i++) {
        if (op->backward[ctx->device->device] && op->updates_inputs & GD_BIT(i)) continue;
        const origin now = origin_of(trace, call->input[i]);
        if (op != &end) {
            snprintf(what, sizeof what, "op %lld of the segment, %s: %s", (long long)trace->number,
                     op->name, gd_input_name(op, i).text);
        }
        if (compare_tensor(ctx, what, &now, &c->input[i])) break;
    }
    trace->next = &c->next;
    return ctx->status;
}

/* ---- Both --------------------------------------------------------------------------------- */

static gd_status add(gd_call_listener *listener, const gd_call *call)
{
    gd_trace *trace = (gd_trace *)listener;
    trace->number++;
    return trace->again ? compare(trace, call) : append(trace, call);
}

int gd_trace_leaves(const gd_trace *trace, gd_tensor **list, int count)
{
    for (const traced_call *c = trace->first; c; c = c->next) {
        for (int i = 0; i < c->call.inputs; i++) {
            gd_tensor *t = c->input[i].t;
            bool listed = !t || t->step || !t->requires_grad;
            for (int k = 0; k < count && !listed; k++) listed = list[k] == t;
            if (!listed) list[count++] = t;
        }
    }
    return count;
}

void gd_trace_begin(gd_context *ctx, gd_trace *trace, bool again)
{
    if (!again) *trace = (gd_trace){.first = NULL};
    trace->listener = (gd_call_listener){.outer = ctx->segment, .frame = ctx->frame, .call = add};
    trace->next = &trace->first;
    trace->number = 0;
    trace->calls = ctx->calls;
    trace->versions = ctx->versions;
    trace->again = again;
    ctx->segment = &trace->listener;
}

void gd_trace_end(gd_context *ctx, gd_trace *trace, gd_tensor *y)
{
    const gd_call call = {.context = ctx, .op = &end, .inputs = 1, .input = &y};
    ctx->segment = trace->listener.outer;
    if (!gd_failed(ctx)) add(&trace->listener, &call);
}
