/* spy.c - watches a backward. Each node's record is replaced by a copy whose backward calls the
 * real one and looks at the gradients before and after. */
#include "spy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 256, TENSORS = 1024, INPUTS = 16 };

static struct {
    gd_op op;
    const gd_op *real;
    const gd_node *node;
} spies[NODES];

static struct {
    const gd_tensor *of;
    double sum[SPY_SHOWN];
} totals[TENSORS];

static int shown_values;

/* The first values of a tensor. False: its memory is free again. */
static bool values_of(const gd_tensor *t, double *shown)
{
    if (!t || !t->count || !t->storage || t->storage->released) return false;
    gd_tensor window = *t; /* the program may have freed it: the values are still the tape's */
    window.freed = false;
    double *values = calloc((size_t)t->count, sizeof *values);
    const bool read = values && !gd_tensor_read_f64(&window, values, t->count);
    for (int64_t i = 0; read && i < t->count && i < SPY_SHOWN; i++) shown[i] = values[i];
    free(values);
    return read;
}

static void print_numbers(const char *what, const char *id, const double *values, int64_t count)
{
    printf("%s %s", what, id);
    for (int64_t i = 0; i < count && i < shown_values; i++)
        printf(" %.17g", values[i] + 0.0); /* no -0 */
    puts(count > shown_values ? " ..." : "");
}

static double *total_of(const gd_tensor *t)
{
    int i = 0;
    while (i + 1 < TENSORS && totals[i].of && totals[i].of != t) i++;
    totals[i].of = t;
    return totals[i].sum;
}

static gd_status spy_backward(const gd_call *call)
{
    int64_t n = 0;
    while (&spies[n].op != call->op) n++;
    gd_call real = *call;
    real.op = spies[n].real;
    double before[INPUTS][SPY_SHOWN] = {{0}};
    for (int k = 0; k < call->inputs && k < INPUTS; k++)
        if (call->dinput[k] && call->accumulate[k]) values_of(call->dinput[k], before[k]);
    const gd_status status = real.op->backward[GD_CPU](&real);
    for (int k = 0; k < call->inputs && k < INPUTS; k++) {
        double part[SPY_SHOWN] = {0};
        if (!call->dinput[k] || !values_of(call->dinput[k], part)) continue;
        double *total = total_of(spies[n].node->call.input[k]);
        for (int i = 0; i < SPY_SHOWN; i++) total[i] += part[i] -= before[k][i];
        char id[48];
        snprintf(id, sizeof id, "n%lld_%d", (long long)n, k);
        print_numbers("part", id, part, call->dinput[k]->count);
        print_numbers("total", id, total, call->dinput[k]->count);
    }
    return status;
}

static void spy_on(gd_context *ctx)
{
    memset(totals, 0, sizeof totals);
    for (int64_t n = 0; n < ctx->tape_length && n < NODES; n++) {
        gd_node *node = ctx->tape[n];
        spies[n].real = node->call.op;
        spies[n].node = node;
        spies[n].op = *node->call.op;
        if (node->call.op->backward[GD_CPU]) spies[n].op.backward[GD_CPU] = spy_backward;
        node->call.op = &spies[n].op;
    }
}

static void print_values(const char *id, const gd_tensor *t)
{
    double values[SPY_SHOWN];
    if (values_of(t, values)) print_numbers("value", id, values, t->count);
}

gd_status spy_tape(gd_tensor *loss, int shown, gd_status (*backward)(gd_tensor *))
{
    gd_context *ctx = gd_tensor_context(loss);
    shown_values = shown;
    gd_tape_record_norms(ctx, true);
    for (int64_t n = 0; n < ctx->tape_length; n++) {
        char id[48];
        for (int k = 0; k < ctx->tape[n]->call.inputs; k++) {
            const gd_tensor *t = ctx->tape[n]->call.input[k];
            snprintf(id, sizeof id, "t%lld_%d", (long long)n, k);
            if (t && !t->node) print_values(id, t);
        }
        snprintf(id, sizeof id, "n%lld", (long long)n);
        print_values(id, ctx->tape[n]->call.output[0]);
    }
    spy_on(ctx);
    const gd_status status = backward(loss);
    if (!status) gd_tape_print_dot(ctx, stdout);
    return status;
}
