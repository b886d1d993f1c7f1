/* tape.c - linked with an example program: at its first gd_backward it prints the first values of
 * every tensor on the tape, a line each, "value n4 1 2 3 ...", then, as the backward goes, what
 * arrives at each input of a node and what has arrived there so far, "part n4_1 1 2 3 ..." and
 * "total n4_1 ...", and last the tape as a graph, whose ids these are. Then the program ends. */
#include <stdio.h>
#include <stdlib.h>

#include "spy.h"

gd_status __real_gd_backward(gd_tensor *loss);
gd_status __wrap_gd_backward(gd_tensor *loss);

static void print_numbers(const char *what, const char *id, const double *values, int64_t count)
{
    printf("%s %s", what, id);
    for (int64_t i = 0; i < count && i < SPY_SHOWN; i++)
        printf(" %.4g", values[i] + 0.0); /* no -0 */
    puts(count > SPY_SHOWN ? " ..." : "");
}

static void print_values(const char *id, const gd_tensor *t)
{
    double values[SPY_SHOWN];
    if (spy_values(t, values)) print_numbers("value", id, values, t->count);
}

static void print_arrival(const spy_arrival *a)
{
    char id[48];
    snprintf(id, sizeof id, "n%lld_%d", (long long)a->node, a->input);
    print_numbers("part", id, a->part, a->count);
    print_numbers("total", id, a->total, a->count);
}

gd_status __wrap_gd_backward(gd_tensor *loss)
{
    gd_context *ctx = gd_tensor_context(loss);
    gd_tape_record_norms(ctx, true);
    for (int64_t n = 0; n < ctx->tape_length; n++) {
        char id[48];
        for (int k = 0; k < ctx->tape[n]->inputs; k++) {
            const gd_tensor *t = ctx->tape[n]->input[k];
            snprintf(id, sizeof id, "t%lld_%d", (long long)n, k);
            if (t && !t->node) print_values(id, t);
        }
        snprintf(id, sizeof id, "n%lld", (long long)n);
        print_values(id, ctx->tape[n]->output[0]);
    }
    spy_on(ctx, print_arrival);
    __real_gd_backward(loss);
    gd_tape_print_dot(ctx, stdout);
    exit(gd_error(ctx) != NULL);
}
