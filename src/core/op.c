/* op.c - running an op: check, find memory, convert, compute, record.
 *
 * apply(), at the end of this file, is the outline; each of its steps is a function above, in the
 * order in which they run. docs/architecture.md describes them too. */
#include "core/core.h"

/* ---- The dtype of a call ------------------------------------------------------------------ */

/* Adds a tensor or spec of type `dtype` to a call. It computes in double if anything is double, in
 * float otherwise. On a GPU it stores in the dtype that all share; if they differ, and on the CPU,
 * in the one it computes in. `seen`: there was a real one before. */
static void widen(gd_call *call, gd_dtype dtype, bool *seen)
{
    if (!gd_dtype_is_real(dtype)) return;
    if (dtype == GD_FLOAT64) call->dtype = GD_FLOAT64;
    bool same = !*seen || call->kernel_dtype == dtype;
    bool convert = call->context->device->device == GD_CPU || !same;
    call->kernel_dtype = convert ? call->dtype : dtype;
    *seen = true;
}

/* ---- Checking a call ---------------------------------------------------------------------- */

static gd_context *context_of(gd_tensor *const *inputs, int count)
{
    for (int i = 0; inputs && i < count; i++) {
        if (inputs[i] && !gd_is_garbage((uintptr_t)inputs[i])) return inputs[i]->ctx;
    }
    return NULL;
}

/* The message names the input; until there is one, that costs nothing. */
static gd_status refuse_input(gd_context *ctx, const gd_op *op, int i, const gd_tensor *t,
                              bool optional)
{
    const gd_text name = gd_input_name(op, i);
    if (gd_is_garbage((uintptr_t)t)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is at %p, wanted a tensor%s", op->name, name.text,
                (const void *)t, optional ? " or NULL" : "");
    } else if (!t || t->ctx != ctx) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %s", op->name, name.text,
                t ? "a tensor of another context, wanted all inputs from one"
                  : "NULL, wanted a tensor");
    } else {
        gd_tensor_usable(t, op->name, name.text);
    }
    return ctx->status;
}

static gd_status check_inputs(gd_context *ctx, const gd_op *op, const gd_op_counts *wanted,
                              gd_tensor *const *inputs, int count)
{
    const bool any = wanted->inputs == GD_ANY_INPUTS;
    if (any ? count < 1 : count != wanted->inputs) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: given %d inputs, wanted %d%s", op->name, count,
                       any ? 1 : wanted->inputs, any ? " or more" : "");
    }
    for (int i = 0; i < count; i++) {
        const gd_tensor *t = inputs[i];
        const bool optional = wanted->optional_inputs & GD_BIT(i);
        if (!t && optional) continue;
        if (!t || gd_is_garbage((uintptr_t)t) || t->ctx != ctx || !gd_tensor_readable(t))
            return refuse_input(ctx, op, i, t, optional);
        if (op->updates_inputs & GD_BIT(i) && !gd_tensor_writable(t, op->name)) return ctx->status;
    }
    return GD_OK;
}

bool gd_accepts(const gd_op *op, gd_tensor *const *inputs, int count, const void *args)
{
    gd_context *ctx = context_of(inputs, count);
    gd_op_counts counts;
    if (!ctx || gd_failed(ctx)) return false;
    const gd_signature *signature = gd_signature_read(ctx, op, NULL, &counts);
    if (!signature || check_inputs(ctx, op, &counts, inputs, count)) return false;
    gd_spec output[2], save[4];
    gd_shapes shapes = {.output = output, .save = save};
    const gd_call call = {
        .context = ctx, .op = op, .args = args, .inputs = count, .input = (gd_tensor **)inputs};
    return gd_signature_check(signature, &call, &shapes) == GD_OK;
}

static gd_status check_args(gd_context *ctx, const gd_op *op, const void *args)
{
    if (!op->forward[ctx->device->device] && !op->definition && !op->view) {
        return gd_fail(ctx, GD_ERROR_UNSUPPORTED, "%s: there is no forward for %s", op->name,
                       ctx->device_name);
    }
    if (!args == !op->args_size) return GD_OK;
    return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: args is %s, wanted the %zu bytes of args_size",
                   op->name, args ? "given" : "NULL", op->args_size);
}

/* ---- Running ------------------------------------------------------------------------------ */

/* The state of gd_apply_multi; arrays are in the arena, since the tape may keep them. The call has
 * the user's tensors; the kernel gets a copy in which those that it cannot take (16 bits on the
 * CPU, unsupported strides) are replaced by temporaries. */
typedef struct apply_state {
    gd_call call;
    gd_shapes shapes;
    gd_tensor **kernel_input, **kernel_output; /* after conversion */
    bool record;     /* an input requires a gradient, an output may, and recording is on */
    bool seen_real;  /* by widen() */
    int gradient;    /* an input that is a gradient, or made of one unrecorded; -1: none */
    uint64_t number; /* of the call */
} apply_state;

static gd_status prepare_state(apply_state *state, gd_context *ctx, const gd_op *op,
                               const gd_op_counts *counts, gd_tensor *const *inputs, int count,
                               const void *args)
{
    gd_call *call = &state->call;
    *state =
        (apply_state){.call = {.context = ctx,
                               .op = op,
                               .args = args,
                               .threads = gd_context_threads(ctx),
                               .part_of = ctx->part_of,
                               .repeated = ctx->repeats > 0 && op->backward[ctx->device->device],
                               .inputs = count,
                               .outputs = counts->outputs,
                               .saves = counts->saves},
                      .gradient = -1};
    const size_t results = (size_t)call->outputs + (size_t)call->saves,
                 tensors = (size_t)count * 2 + (size_t)call->outputs + results;
    state->shapes.output =
        gd_arena_array(ctx, 1, results * sizeof(gd_spec) + tensors * sizeof(gd_tensor *), "a call");
    if (!state->shapes.output) return ctx->status;
    state->shapes.save = state->shapes.output + call->outputs;
    call->input = (gd_tensor **)(state->shapes.output + results);
    state->kernel_input = call->input + count;
    state->kernel_output = state->kernel_input + count;
    call->output = state->kernel_output + call->outputs;
    call->save = call->output + call->outputs;
    memcpy(call->input, inputs, (size_t)count * sizeof *inputs);
    call->dtype = call->kernel_dtype = GD_FLOAT32;
    for (int i = 0; i < count; i++) {
        const gd_tensor *t = inputs[i];
        if (!t) continue;
        widen(call, t->dtype, &state->seen_real);
        state->record = state->record || (t->requires_grad && ctx->no_grad == 0);
        if (t->gradient && state->gradient < 0) state->gradient = i;
    }
    return GD_OK;
}

/* Finds the shapes, then sets the type to compute in and the offset in the random stream. */
static gd_status run_shape(apply_state *state, const gd_signature *signature)
{
    gd_call *call = &state->call;
    gd_context *ctx = call->context;
    const gd_status status = gd_signature_check(signature, call, &state->shapes);
    if (status || gd_failed(ctx))
        return gd_fail(ctx, status, "%s: its shape() refused the inputs", call->op->name);
    bool real_output = false;
    for (int i = 0; i < call->outputs; i++) {
        widen(call, state->shapes.output[i].dtype, &state->seen_real);
        real_output = real_output || gd_dtype_is_real(state->shapes.output[i].dtype);
    }
    state->record = state->record && real_output; /* whole numbers have no gradient */
    if (call->op->random) {
        call->seed = ctx->random.seed;
        call->random_offset = gd_random_take(ctx, state->shapes.random_words);
        call->random_base = ctx->random_base;
    }
    state->number = ++ctx->calls;
    return ctx->segment ? gd_notify_call(call, ctx->frame->outer) : GD_OK;
}

/* How a gradient was computed is not on the tape: a backward would take it for a constant. */
static gd_status refuse_second_derivative(const gd_call *call, int input)
{
    return gd_call_fail(
        call, GD_ERROR_UNSUPPORTED,
        "%s %s is a gradient, or made of one, and how that was computed is not on the "
        "tape: use gd_gradients with differentiable, or give "
        "gd_detach of it if it is to be a constant",
        gd_input_name(call->op, input).text, gd_shape_text(call->input[input]).text);
}

/* Whether all elements of a view are within its storage. */
static bool view_fits(const gd_tensor *t, const gd_storage *storage)
{
    int64_t low = t->offset, high = t->offset, reach;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0) return true;
        int64_t *end = t->strides[i] < 0 ? &low : &high;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &reach) ||
            __builtin_add_overflow(*end, reach, end)) {
            return false;
        }
    }
    return low >= 0 && high < (int64_t)(storage->bytes / gd_dtype_size(t->dtype));
}

/* Outputs as views of input[0], if the op offers that. False: it must compute. */
static bool run_view(apply_state *state)
{
    gd_call *call = &state->call;
    gd_context *ctx = call->context;
    const gd_op *op = call->op;
    gd_tensor *x = call->input[0];
    if (!op->view || !x) return false;
    for (int i = 0; i < call->outputs; i++) {
        const gd_spec *spec = &state->shapes.output[i];
        int64_t strides[GD_MAX_DIMS] = {0}, offset = 0;
        if (!op->view(call, i, strides, &offset)) {
            if (op->forward[ctx->device->device]) return false;
            gd_fail(ctx, GD_ERROR_UNSUPPORTED, "%s: it has neither a view of x nor a forward",
                    op->name);
            return true;
        }
        gd_tensor *t = gd_tensor_header(ctx, op->name, true, spec->dtype, spec->ndim, spec->shape);
        if (!t) return true; /* the error is set, which ends the call */
        memcpy(t->strides, strides, sizeof strides);
        const bool overflows = __builtin_add_overflow(x->offset, offset, &t->offset);
        if (overflows || t->dtype != x->dtype || !view_fits(t, x->storage)) {
            gd_fail(ctx, GD_ERROR_ARGUMENT,
                    "%s: its view() of %s, with offset %lld, is not within the memory of %s %s",
                    op->name, gd_shape_text(t).text, (long long)offset, gd_dtype_name(x->dtype),
                    gd_shape_text(x).text);
            return true;
        }
        gd_tensor_attach(t, x->storage);
        call->output[i] = t;
    }
    return true;
}

static gd_status allocate_results(apply_state *state)
{
    gd_call *call = &state->call;
    gd_context *ctx = call->context;
    const char *name = call->op->name;
    const bool wants_saves = state->record && call->op->backward[ctx->device->device];
    for (int i = 0; i < call->outputs + (wants_saves ? call->saves : 0); i++) {
        const gd_spec *spec = &state->shapes.output[i]; /* the saves follow, as in call->output */
        if (i >= call->outputs && spec->ndim < 0) continue;
        gd_tensor *t = gd_tensor_header(ctx, name, true, spec->dtype, spec->ndim, spec->shape);
        if (!t || gd_tensor_allocate(t, GD_MEMORY_ACTIVATIONS, name)) return ctx->status;
        call->output[i] = t;
    }
    return GD_OK;
}

/* The kernel has written to t, or to a temporary in its place, which is copied back. */
static void write_back(gd_tensor *t, const gd_tensor *written)
{
    if (written == t || t->count == 0) return;
    t->ctx->services->copy(gd_layout_of(t), gd_layout_of(written), t->ctx);
}

static gd_status run_forward(apply_state *state)
{
    const gd_call *call = &state->call;
    gd_context *ctx = call->context;
    const gd_op *op = call->op;
    gd_call kernel_call = *call;
    kernel_call.input = state->kernel_input;
    kernel_call.output = state->kernel_output;
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->input[i];
        if (!t) continue;
        kernel_call.input[i] =
            gd_frame_prepare(ctx, t, gd_kernel_dtype(call, t), op->strided, op->name);
        if (!kernel_call.input[i]) return ctx->status;
    }
    for (int i = 0; i < call->outputs; i++) {
        gd_tensor *t = call->output[i];
        gd_dtype dtype = gd_kernel_dtype(call, t);
        kernel_call.output[i] =
            t->dtype == dtype ? t : gd_frame_tensor(ctx, dtype, t->ndim, t->shape, op->name);
        if (!kernel_call.output[i]) return ctx->status;
    }
    gd_status status = gd_run_kernel(op->forward[ctx->device->device], &kernel_call, false);
    if (status || gd_failed(ctx)) return gd_fail(ctx, status, "%s: its forward failed", op->name);
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->input[i];
        if (t && !gd_tensor_readable(t))
            return gd_fail(ctx, GD_ERROR_STATE, "%s: its forward freed its input %s", op->name,
                           gd_shape_text(t).text);
        if (!t || !(op->updates_inputs & GD_BIT(i)) || call->repeated) continue;
        gd_new_version(ctx, t->storage);
        write_back(t, kernel_call.input[i]);
    }
    for (int i = 0; i < call->outputs; i++) write_back(call->output[i], kernel_call.output[i]);
    return GD_OK;
}

/* ---- All of it ---------------------------------------------------------------------------- */

static gd_status apply(apply_state *state, gd_context *ctx, const gd_op *op,
                       gd_tensor *const *inputs, int count, const void *args)
{
    gd_op_counts counts;
    const gd_signature *signature = gd_signature_read(ctx, op, "apply", &counts);
    if (!signature || check_inputs(ctx, op, &counts, inputs, count) || check_args(ctx, op, args) ||
        prepare_state(state, ctx, op, &counts, inputs, count, args) || run_shape(state, signature))
        return ctx->status;
    const gd_call *call = &state->call;
    if (state->record && state->gradient >= 0)
        return refuse_second_derivative(call, state->gradient);
    const bool own = op->forward[ctx->device->device] || op->view,
               defined = !own || (op->kernels && !op->kernels(call));
    if (defined)
        gd_run_definition(&state->call, state->shapes.output);
    else if (!run_view(state) && !allocate_results(state))
        run_forward(state);
    if (gd_failed(ctx)) return ctx->status;
    for (int i = 0; i < call->outputs; i++) {
        gd_tensor *y = call->output[i];
        y->call = state->number;
        y->output = i;
        y->gradient = state->gradient >= 0 && gd_dtype_is_real(y->dtype) && ctx->no_grad == 0;
    }
    if (defined) return GD_OK; /* its parts were recorded */
    return !state->record || gd_tape_append(call) ? GD_OK : ctx->status;
}

/* Returns the first output, NULL on an error, and fills `outputs` unless it is NULL. */
static gd_tensor *call_op(const gd_op *op, gd_tensor *const *inputs, int count, const void *args,
                          gd_tensor **outputs)
{
    gd_context *ctx = context_of(inputs, count);
    if (!ctx || !op || gd_failed(ctx)) return NULL;
    apply_state state; /* prepare_state() sets it */
    const gd_moment before = gd_now(ctx);
    const gd_random_state random_before = ctx->random;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    const gd_status status = apply(&state, ctx, op, inputs, count, args);
    gd_frame_end(ctx, &frame);
    if (status) { /* nothing of a failed call stays */
        gd_drop_since(ctx, before, NULL);
        ctx->random = random_before;
        return NULL;
    }
    const size_t made = (size_t)state.call.outputs;
    if (outputs) memcpy(outputs, state.call.output, made * sizeof *outputs);
    return state.call.output[0];
}

gd_tensor *gd_apply(const gd_op *op, gd_tensor *const *inputs, int count, const void *args)
{
    return call_op(op, inputs, count, args, NULL);
}

gd_status gd_apply_multi(const gd_op *op, gd_tensor *const *inputs, int count, const void *args,
                         gd_tensor **outputs)
{
    if (op && outputs && call_op(op, inputs, count, args, outputs)) return GD_OK;
    const int wanted = op && outputs ? gd_op_count(op).outputs : 0;
    for (int i = 0; i < wanted; i++) outputs[i] = NULL;
    const gd_context *ctx = context_of(inputs, count);
    return ctx && ctx->status ? ctx->status : GD_ERROR_ARGUMENT;
}
