/* probe.c - a copy of an op's record with instrumented kernels. Outputs are filled with NaN before
 * the forward, gradients that are to be written before the backward; and after a backward
 * everything that it may read must have the same bits as before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradcheck/check.h"

static bool overlap_any(const gd_tensor *a, gd_tensor *const *list, int count)
{
    for (int i = 0; list && i < count; i++)
        if (gd_check_overlap(a, list[i])) return true;
    return false;
}

/* ---- Forward ------------------------------------------------------------------------------ */

/* Fills tensors with NaN, but for those that are `spared`. */
static void poison(const gd_call *call, gd_tensor *const *list, int count, uint32_t spared)
{
    for (int i = 0; i < count; i++) {
        gd_tensor *t = list[i];
        if (!t || !gd_dtype_is_real(gd_tensor_dtype(t)) || spared & GD_BIT(i)) continue;
        if (!overlap_any(t, call->input, call->inputs)) gd_tensor_fill(t, NAN);
    }
}

/* The call with the real op's record, which may be part of a larger struct. */
static gd_call real_call(const gd_call *call)
{
    gd_call real = *call;
    const gd_probe *probe = (const gd_probe *)call->op;
    real.op = probe->real;
    if (probe->threads) real.threads = probe->threads;
    return real;
}

static gd_status watched_forward(const gd_call *call)
{
    gd_call real = real_call(call);
    poison(call, call->output, call->outputs, 0);
    poison(call, call->save, call->saves, 0);
    return real.op->forward[gd_context_device(call->context)](&real);
}

static gd_status watched_shape(const gd_call *call, gd_shapes *out)
{
    gd_call real = real_call(call);
    return real.op->shape ? real.op->shape(&real, out) : GD_OK;
}

static bool watched_view(const gd_call *call, int index, int64_t *strides, int64_t *offset)
{
    gd_call real = real_call(call);
    return real.op->view(&real, index, strides, offset);
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* A tensor that the backward must not change, and its bits before. */
typedef struct gd_snapshot {
    const gd_tensor *tensor;
    const char *name; /* "input %d" */
    int index;
    size_t bytes;
    char *bits; /* [2 bytes] before, and room for those after */
} gd_snapshot;

enum { MAX_SNAPSHOTS = 32 };

static int remember(const gd_call *call, gd_snapshot *kept, int count, gd_tensor *t,
                    const char *name, int index)
{
    if (!t || count == MAX_SNAPSHOTS || overlap_any(t, call->dinput, call->inputs)) return count;
    gd_snapshot *k = &kept[count];
    size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    *k = (gd_snapshot){t, name, index, bytes, malloc(2 * bytes + 1)};
    if (!k->bits)
        gd_fail(call->context, GD_ERROR_MEMORY, "gradcheck: out of memory: a copy of a tensor");
    if (k->bits && bytes) gd_tensor_read(t, k->bits, bytes);
    return count + 1;
}

static int remember_all(const gd_call *call, gd_snapshot *kept)
{
    const gd_op *op = call->op;
    int n = 0;
    for (int i = 0; i < call->inputs; i++)
        if (op->backward_reads_inputs & GD_BIT(i))
            n = remember(call, kept, n, call->input[i], "the backward changes input %d", i);
    for (int i = 0; i < call->outputs; i++) {
        if (op->backward_reads_outputs & GD_BIT(i))
            n = remember(call, kept, n, call->output[i], "the backward changes output %d", i);
        n = remember(call, kept, n, call->doutput[i],
                     "the backward changes the gradient of output %d", i);
    }
    for (int i = 0; i < call->saves; i++)
        n = remember(call, kept, n, call->save[i],
                     "the backward changes what the forward saved (save %d)", i);
    return n;
}

static void compare_all(gd_probe *p, const gd_snapshot *kept, int count)
{
    for (const gd_snapshot *k = kept; k < kept + count; k++) {
        if (k->bits && k->bytes && !gd_tensor_read(k->tensor, k->bits + k->bytes, k->bytes) &&
            memcmp(k->bits, k->bits + k->bytes, k->bytes) && !p->complaint[0])
            snprintf(p->complaint, sizeof p->complaint, k->name, k->index);
        free(k->bits);
    }
}

/* Writes NaN, or what is to be there, to gradients that are not added to, unless their memory is
 * also read. */
static void poison_gradients(const gd_call *call, gd_probe *p)
{
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->dinput[i];
        if (t && !call->accumulate[i] && !overlap_any(t, call->doutput, call->outputs) &&
            !overlap_any(t, call->input, call->inputs) &&
            !overlap_any(t, call->output, call->outputs) &&
            !overlap_any(t, call->save, call->saves))
            gd_tensor_fill(t, p->fill);
    }
}

/* Integers may be indices: replaces them by others in the same range. */
static void spoil_leaf(gd_checker *c, gd_argument *a)
{
    if (gd_dtype_is_real(a->spec.dtype)) {
        gd_tensor_fill(a->leaf, NAN);
        return;
    }
    for (int64_t i = 0; i < a->count; i++) c->moved[i] = a->value[(i + 1) % a->count];
    gd_tensor_write_f64(a->leaf, c->moved, a->count);
}

/* Overwrites the inputs and outputs that the backward does not read according to the record;
 * `restore` restores the inputs. */
static void spoil(const gd_call *call, gd_probe *p, bool restore)
{
    gd_checker *c = p->checker;
    for (int i = 0; i < c->inputs; i++) {
        gd_argument *a = &c->input[i];
        if (!a->leaf || call->op->backward_reads_inputs & GD_BIT(i)) continue;
        if (restore)
            gd_tensor_write_f64(a->leaf, a->value, a->count);
        else
            spoil_leaf(c, a);
    }
    if (!restore) poison(call, call->output, call->outputs, call->op->backward_reads_outputs);
}

static gd_status watched_backward(const gd_call *call)
{
    gd_probe *p = (gd_probe *)(uintptr_t)call->op;
    gd_snapshot kept[MAX_SNAPSHOTS];
    poison_gradients(call, p);
    if (p->spoil) spoil(call, p, false);
    int count = remember_all(call, kept);
    gd_status status = gd_error_status(call->context);
    gd_call real = real_call(call);
    if (!status) status = real.op->backward[gd_context_device(call->context)](&real);
    compare_all(p, kept, count);
    if (p->spoil) spoil(call, p, true);
    return status ? status : gd_error_status(call->context);
}

void gd_check_probe(gd_probe *probe, const gd_op *op, gd_checker *c)
{
    *probe = (gd_probe){.op = *op, .real = op, .checker = c, .fill = NAN};
    probe->op.shape = watched_shape;
    if (op->view) probe->op.view = watched_view;
    for (int device = 0; device < GD_DEVICE_COUNT; device++) {
        if (op->forward[device]) probe->op.forward[device] = watched_forward;
        if (op->backward[device]) probe->op.backward[device] = watched_backward;
    }
}
