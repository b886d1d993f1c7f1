/* tape.c - linked with an example program: at its first gd_backward it prints the first values of
 * every tensor on the tape, a line each, "value n4 1 2 3 ...", then, after the backward, those of
 * the leaves' gradients and the tape as a graph, whose ids these are. Then the program ends. */
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"

enum { SHOWN = 5 };

gd_status __real_gd_backward(gd_tensor *loss);
gd_status __wrap_gd_backward(gd_tensor *loss);

/* Nothing for a tensor whose memory is free again. */
static void print_values(const char *what, const char *id, const gd_tensor *t)
{
    if (!t || !t->count || !t->storage || t->storage->released) return;
    gd_tensor window = *t; /* the program may have freed it: the values are still the tape's */
    window.freed = false;
    double *values = calloc((size_t)t->count, sizeof *values);
    if (values && !gd_tensor_read_f64(&window, values, t->count)) {
        printf("%s %s", what, id);
        for (int64_t i = 0; i < t->count && i < SHOWN; i++)
            printf(" %.4g", values[i] + 0.0); /* no -0 */
        puts(t->count > SHOWN ? " ..." : "");
    }
    free(values);
}

static void print_leaves(gd_context *ctx, bool gradients)
{
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        for (int k = 0; k < ctx->tape[i]->inputs; k++) {
            const gd_tensor *t = ctx->tape[i]->input[k];
            char id[48];
            snprintf(id, sizeof id, "t%lld_%d", (long long)i, k);
            if (!t || t->node) continue;
            if (!gradients) print_values("value", id, t);
            if (gradients && t->grad_valid) print_values("gradient", id, t->grad);
        }
    }
}

gd_status __wrap_gd_backward(gd_tensor *loss)
{
    gd_context *ctx = gd_tensor_context(loss);
    gd_tape_record_norms(ctx, true);
    print_leaves(ctx, false);
    for (int64_t i = 0; i < ctx->tape_length; i++) {
        char id[32];
        snprintf(id, sizeof id, "n%lld", (long long)i);
        print_values("value", id, ctx->tape[i]->output[0]);
    }
    __real_gd_backward(loss);
    print_leaves(ctx, true);
    gd_tape_print_dot(ctx, stdout);
    exit(gd_error(ctx) != NULL);
}
