/* ops.c - every op, forward and backward, on the largest of its record's cases: small problems,
 * which show the overhead of a call. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t elements(const gd_case_input *input)
{
    int64_t count = input->absent ? 0 : 1;
    for (int d = 0; d < input->ndim; d++) count *= input->shape[d];
    return count;
}

static const gd_case *largest_case(const gd_op *op)
{
    const gd_case *largest = NULL;
    int64_t most = -1;
    for (int i = 0; i < op->case_count; i++) {
        int64_t count = 0;
        for (int k = 0; k < op->cases[i].inputs; k++) count += elements(&op->cases[i].input[k]);
        if (count > most) largest = &op->cases[i], most = count;
    }
    return largest;
}

static gd_tensor *make_input(gd_context *ctx, gd_dtype dtype, const gd_case_input *input)
{
    bool index = input->fill == GD_FILL_INDEX;
    if (input->absent) return NULL;
    gd_tensor *t = gd_tensor_create(ctx, index ? GD_INT32 : dtype, input->ndim, input->shape);
    switch (input->fill) {
    case GD_FILL_INDEX:
        gd_random_integers(t, (int64_t)input->a, (int64_t)input->b);
        break;
    case GD_FILL_UNIFORM:
        gd_random_uniform(t, input->a, input->b);
        break;
    case GD_FILL_CONSTANT:
        gd_tensor_fill(t, input->a);
        break;
    default:
        gd_random_normal(t, input->a, input->b != 0 ? input->b : 1);
    }
    if (!index && !input->fixed) gd_tensor_set_requires_grad(t, true);
    return t;
}

/* Times one op; a backward that it does not have is left out. */
static gd_status time_op(gd_context *ctx, const bench_options *o, const gd_op *op, double *seconds)
{
    enum { WARM_UP = 2 };
    const gd_case *c = largest_case(op);
    gd_tensor *inputs[GD_CASE_MAX_INPUTS], *outputs[GD_CASE_MAX_INPUTS];
    if (!c || !op->backward[GD_CPU] || op->outputs > GD_CASE_MAX_INPUTS) return GD_OK;
    timed_op t = bench_time_op(op);
    for (int k = 0; k < c->inputs; k++) inputs[k] = make_input(ctx, o->dtype, &c->input[k]);
    for (int i = -WARM_UP; i < o->repeats && !gd_error(ctx); i++) {
        gd_apply_multi(&t.op, inputs, c->inputs, c->args, outputs);
        gd_backward_from(outputs, op->outputs, NULL);
        for (int k = 0; k < c->inputs; k++)
            if (inputs[k]) gd_grad_clear(inputs[k]);
        gd_step_end(ctx);
        seconds[i < 0 ? 0 : i] = t.forward_seconds;
        seconds[o->repeats + (i < 0 ? 0 : i)] = t.backward_seconds;
    }
    for (int k = 0; k < c->inputs; k++) gd_tensor_free(inputs[k]);
    if (gd_error(ctx)) return gd_error_status(ctx);
    char names[2][128];
    snprintf(names[0], sizeof names[0], "%s_forward", op->name);
    snprintf(names[1], sizeof names[1], "%s_backward", op->name);
    bench_series series[] = {{names[0], 0, seconds, o->repeats},
                             {names[1], 0, seconds + o->repeats, o->repeats}};
    bench_print(series, 2, NULL, o->json);
    return GD_OK;
}

int bench_ops(const bench_options *o)
{
    gd_context *ctx = bench_context(o);
    double *seconds = calloc((size_t)(2 * o->repeats), sizeof *seconds);
    gd_status status = seconds ? gd_error_status(ctx) : GD_ERROR_MEMORY;
    const gd_op *op;
    for (int i = 0; !status && (op = gd_op_at(NULL, i)); i++)
        if (!o->op || !strcmp(o->op, op->name)) status = time_op(ctx, o, op, seconds);
    free(seconds);
    if (status) return bench_fail(ctx);
    gd_context_free(ctx);
    return EXIT_SUCCESS;
}
