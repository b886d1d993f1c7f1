/* op.c - running an op: check, find memory, convert, compute, record.
 *
 * gd_apply_multi, at the end of this file, is the outline; each of its steps is a function above,
 * in the order in which they run. docs/architecture.md describes them too. */
#include "core/core.h"

/* ---- The list of ops ---------------------------------------------------------------------- */

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

/* The fault of a record, or NULL. */
static const char *record_fault(const gd_op *op)
{
    if (!op->name || !*op->name) return "it has no name";
    if (!op->shape) return "it has no shape()";
    if (op->outputs < 1) return "it has no output";
    if (op->saves < 0) return "its number of saves is negative";
    if (op->inputs < 1 && op->inputs != GD_ANY_INPUTS) return "it has no inputs";
    if (op->args_size > INT32_MAX) return "its args_size is more than 2^31 - 1 bytes";
    if (op->case_count < 0 || (op->case_count && !op->cases)) return "its cases are missing";
    bool forward = false;
    for (int i = 0; i < GD_DEVICE_COUNT; i++) {
        if (op->backward[i] && !op->forward[i]) return "it has a backward without a forward";
        forward = forward || op->forward[i];
    }
    return forward ? NULL : "it has no forward";
}

static gd_status check_record(gd_context *ctx, const gd_op *op, const char *who)
{
    const char *fault = record_fault(op);
    if (!fault) return GD_OK;
    return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: the record of \"%s\" is not usable: %s", who,
                   op->name ? op->name : "", fault);
}

gd_status gd_register_op(gd_context *ctx, const gd_op *op)
{
    if (gd_error_status(ctx)) return gd_error_status(ctx);
    if (!op) return gd_fail(ctx, GD_ERROR_ARGUMENT, "register_op: op is NULL, wanted a record");
    if (check_record(ctx, op, "register_op")) return ctx->status;
    if (gd_find_op(ctx, op->name)) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "register_op: the name \"%s\" is taken", op->name);
    }
    if (!gd_host_grow(ctx, (void **)&ctx->user_ops, &ctx->user_op_capacity, ctx->user_op_count + 1,
                      sizeof *ctx->user_ops, "the list of ops")) {
        return gd_error_status(ctx);
    }
    ctx->user_ops[ctx->user_op_count++] = op;
    return GD_OK;
}

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
static gd_status refuse_input(gd_context *ctx, const gd_op *op, int i, const gd_tensor *t)
{
    const gd_text name = gd_input_name(op, i);
    if (gd_is_garbage((uintptr_t)t)) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is at %p, wanted a tensor%s", op->name, name.text,
                (const void *)t, op->optional_inputs & GD_BIT(i) ? " or NULL" : "");
    } else if (!t || t->ctx != ctx) {
        gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: %s is %s", op->name, name.text,
                t ? "a tensor of another context, wanted all inputs from one"
                  : "NULL, wanted a tensor");
    } else {
        gd_tensor_usable(t, op->name, name.text);
    }
    return ctx->status;
}

static gd_status check_inputs(gd_context *ctx, const gd_op *op, gd_tensor *const *inputs, int count)
{
    if (op->inputs == GD_ANY_INPUTS ? count < 1 : count != op->inputs) {
        return gd_fail(ctx, GD_ERROR_ARGUMENT, "%s: given %d inputs, wanted %d%s", op->name, count,
                       op->inputs == GD_ANY_INPUTS ? 1 : op->inputs,
                       op->inputs == GD_ANY_INPUTS ? " or more" : "");
    }
    for (int i = 0; i < count; i++) {
        const gd_tensor *t = inputs[i];
        if (!t && op->optional_inputs & GD_BIT(i)) continue;
        if (!t || gd_is_garbage((uintptr_t)t) || t->ctx != ctx || !gd_tensor_readable(t))
            return refuse_input(ctx, op, i, t);
        if (op->updates_inputs & GD_BIT(i) && !gd_tensor_writable(t, op->name)) return ctx->status;
    }
    return GD_OK;
}

bool gd_accepts(const gd_op *op, gd_tensor *const *inputs, int count, const void *args)
{
    gd_context *ctx = context_of(inputs, count);
    if (!ctx || gd_failed(ctx) || check_inputs(ctx, op, inputs, count)) return false;
    gd_spec output[2], save[4];
    gd_shapes shapes = {.output = output, .save = save};
    const gd_call call = {
        .context = ctx, .op = op, .args = args, .inputs = count, .input = (gd_tensor **)inputs};
    return op->shape(&call, &shapes) == GD_OK;
}

static gd_status check_args(gd_context *ctx, const gd_op *op, const void *args)
{
    if (!op->forward[ctx->device->device]) {
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
    bool wanted;     /* an input requires a gradient, and the op has one */
    bool record;     /* and recording is on */
    bool seen_real;  /* by widen() */
    uint64_t number; /* of the call */
} apply_state;

static gd_status prepare_state(apply_state *state, gd_context *ctx, const gd_op *op,
                               gd_tensor *const *inputs, int count, const void *args)
{
    const char *what = "a call";
    gd_call *call = &state->call;
    *call = (gd_call){.context = ctx,
                      .op = op,
                      .args = args,
                      .threads = gd_threads(ctx),
                      .repeated = ctx->repeats > 0 && op->backward[ctx->device->device],
                      .inputs = count,
                      .outputs = op->outputs,
                      .saves = op->saves};
    const int64_t tensors = 2 * ((int64_t)count + op->outputs) + op->saves;
    gd_tensor **tensor = gd_arena_array(ctx, tensors, sizeof *tensor, what);
    state->shapes.output =
        gd_arena_array(ctx, (int64_t)op->outputs + op->saves, sizeof(gd_spec), what);
    if (gd_failed(ctx)) return ctx->status;
    state->shapes.save = state->shapes.output + op->outputs;
    call->input = tensor;
    state->kernel_input = call->input + count;
    call->output = state->kernel_input + count;
    state->kernel_output = call->output + op->outputs;
    call->save = state->kernel_output + op->outputs;
    memcpy(call->input, inputs, (size_t)count * sizeof *inputs);
    call->dtype = call->kernel_dtype = GD_FLOAT32;
    for (int i = 0; i < count; i++) {
        if (!inputs[i]) continue;
        widen(call, inputs[i]->dtype, &state->seen_real);
        if (!inputs[i]->requires_grad) continue;
        ctx->saw_gradient = true;
        state->wanted = true;
    }
    state->record = state->wanted && ctx->no_grad == 0;
    return GD_OK;
}

/* Calls shape(), then sets the type to compute in and the offset in the random stream. */
static gd_status run_shape(apply_state *state)
{
    gd_call *call = &state->call;
    gd_context *ctx = call->context;
    gd_status status = call->op->shape(call, &state->shapes);
    if (status == GD_OK) status = ctx->status;
    if (status) {
        return gd_fail(ctx, status, "%s: its shape() refused the inputs", call->op->name);
    }
    bool real_output = false;
    for (int i = 0; i < call->outputs; i++) {
        widen(call, state->shapes.output[i].dtype, &state->seen_real);
        real_output = real_output || gd_dtype_is_real(state->shapes.output[i].dtype);
    }
    if (!real_output) state->wanted = state->record = false; /* whole numbers have no gradient */
    if (call->op->random) {
        call->seed = ctx->random.seed;
        call->random_offset = gd_random_take(ctx, state->shapes.random_words);
        call->random_base = ctx->random_base;
    }
    state->number = ++ctx->calls;
    return gd_notify_call(call, ctx->frame->outer);
}

/* An input that is a gradient, or made of one without being recorded; -1: none. */
static int gradient_input(const gd_call *call)
{
    for (int i = 0; i < call->inputs; i++)
        if (call->input[i] && call->input[i]->gradient) return i;
    return -1;
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
    int64_t strides[GD_MAX_DIMS], offset;
    if (!op->view || !x) return false;
    for (int i = 0; i < call->outputs; i++) {
        const gd_spec *spec = &state->shapes.output[i];
        memset(strides, 0, sizeof strides);
        offset = 0;
        if (!op->view(call, i, strides, &offset)) return false;
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
    bool wants_saves = state->record && call->op->backward[ctx->device->device];
    for (int i = 0; i < call->outputs + call->saves; i++) {
        bool save = i >= call->outputs;
        const gd_spec *spec = &state->shapes.output[i]; /* the saves follow */
        if (save && (!wants_saves || spec->ndim < 0)) continue;
        gd_tensor *t = gd_tensor_header(ctx, name, true, spec->dtype, spec->ndim, spec->shape);
        if (!t || gd_tensor_allocate(t, GD_MEMORY_ACTIVATIONS, name)) return ctx->status;
        *(save ? &call->save[i - call->outputs] : &call->output[i]) = t;
    }
    return GD_OK;
}

/* Inputs that the kernel has updated: a temporary is copied back. */
static void write_back(const apply_state *state)
{
    const gd_call *call = &state->call;
    gd_context *ctx = call->context;
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->input[i], *updated = state->kernel_input[i];
        if (!t || call->repeated || !(call->op->updates_inputs & GD_BIT(i))) continue;
        gd_new_version(ctx, t->storage);
        if (updated == t || t->count == 0) continue;
        ctx->services->copy(gd_tensor_layout(t), gd_tensor_layout(updated), ctx);
    }
}

static gd_status run_forward(apply_state *state)
{
    gd_call kernel_call = state->call;
    gd_context *ctx = kernel_call.context;
    const gd_op *op = kernel_call.op;
    for (int i = 0; i < kernel_call.inputs; i++) {
        gd_tensor *t = kernel_call.input[i];
        if (!t) continue;
        state->kernel_input[i] =
            gd_frame_prepare(ctx, t, gd_kernel_dtype(&kernel_call, t), op->strided, op->name);
        if (!state->kernel_input[i]) return ctx->status;
    }
    for (int i = 0; i < kernel_call.outputs; i++) {
        gd_tensor *t = kernel_call.output[i];
        gd_dtype dtype = gd_kernel_dtype(&kernel_call, t);
        state->kernel_output[i] =
            t->dtype == dtype ? t : gd_frame_tensor(ctx, dtype, t->ndim, t->shape, op->name);
        if (!state->kernel_output[i]) return ctx->status;
    }
    kernel_call.input = state->kernel_input;
    kernel_call.output = state->kernel_output;
    gd_status status = gd_run_kernel(op->forward[ctx->device->device], &kernel_call, false);
    if (status || gd_failed(ctx)) {
        return gd_fail(ctx, status, "%s: its forward failed", op->name);
    }
    for (int i = 0; i < kernel_call.inputs; i++) {
        const gd_tensor *t = state->call.input[i];
        if (t && t->freed) {
            return gd_fail(ctx, GD_ERROR_STATE, "%s: its forward freed its input %s", op->name,
                           gd_shape_text(t).text);
        }
    }
    for (int i = 0; i < kernel_call.outputs; i++) {
        gd_tensor *t = state->call.output[i];
        if (state->kernel_output[i] == t || t->count == 0) continue;
        ctx->services->copy(gd_tensor_layout(t), gd_tensor_layout(state->kernel_output[i]), ctx);
    }
    write_back(state);
    return GD_OK;
}

static gd_status apply(apply_state *state, gd_context *ctx, const gd_op *op,
                       gd_tensor *const *inputs, int count, const void *args)
{
    gd_status status = check_record(ctx, op, "apply");
    if (!status) status = check_inputs(ctx, op, inputs, count);
    if (!status) status = check_args(ctx, op, args);
    if (!status) status = prepare_state(state, ctx, op, inputs, count, args);
    if (!status) status = run_shape(state);
    if (status) return status;
    const int gradient = gradient_input(&state->call);
    if (state->record && gradient >= 0) return refuse_second_derivative(&state->call, gradient);
    if (!run_view(state)) {
        status = allocate_results(state);
        if (!status) status = run_forward(state);
    }
    if (status || gd_failed(ctx)) return ctx->status;
    for (int i = 0; i < op->outputs; i++) {
        state->call.output[i]->call = state->number;
        state->call.output[i]->output = i;
        const bool real = gd_dtype_is_real(state->call.output[i]->dtype);
        state->call.output[i]->gradient = gradient >= 0 && real && ctx->no_grad == 0;
    }
    if (state->record) return gd_tape_append(&state->call) ? GD_OK : ctx->status;
    /* An op of a segment is recorded when the segment runs again, in the backward. */
    if (state->wanted && ctx->segments && !ctx->in_backward) gd_count_uses(&state->call);
    return GD_OK;
}

gd_status gd_apply_multi(const gd_op *op, gd_tensor *const *inputs, int count, const void *args,
                         gd_tensor **outputs)
{
    for (int i = 0; op && outputs && i < op->outputs; i++) outputs[i] = NULL;
    gd_context *ctx = context_of(inputs, count);
    if (!ctx || !op || !outputs) return GD_ERROR_ARGUMENT;
    if (gd_failed(ctx)) return ctx->status;
    apply_state state = {.record = false};
    gd_tensor *tensor_before = ctx->step_tensors;
    gd_storage *storage_before = ctx->step_storages;
    gd_random_state random_before = ctx->random;
    gd_call_frame frame;
    gd_frame_begin(ctx, &frame);
    gd_status status = apply(&state, ctx, op, inputs, count, args);
    gd_frame_end(ctx, &frame);
    if (status) { /* nothing of a failed call stays */
        gd_drop_since(ctx, tensor_before, storage_before, NULL);
        ctx->random = random_before;
        return status;
    }
    memcpy(outputs, state.call.output, (size_t)op->outputs * sizeof *outputs);
    return GD_OK;
}

gd_tensor *gd_apply(const gd_op *op, gd_tensor *const *inputs, int count, const void *args)
{
    enum { FEW = 8 };
    gd_tensor *few[FEW], **outputs = few;
    gd_context *ctx = context_of(inputs, count);
    if (!op || !ctx || gd_failed(ctx)) return NULL;
    if (op->outputs > FEW) {
        outputs = gd_arena_array(ctx, op->outputs, sizeof *outputs, op->name);
        if (!outputs) return NULL;
    }
    return gd_apply_multi(op, inputs, count, args, outputs) ? NULL : outputs[0];
}
