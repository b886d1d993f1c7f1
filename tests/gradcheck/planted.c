/* planted.c - how a bug gets into a record. */
#include "planted.h"
#include "attention/attention.h"
#include "matmul/matmul.h"

#include <stdlib.h>
#include <string.h>

static planted_op *planted(const gd_call *call)
{
    return (planted_op *)(uintptr_t)call->op;
}

static gd_status forward(const gd_call *call)
{
    return planted_forward(call, planted(call)->real);
}

static gd_status run_true(const gd_call *call, const bool *accumulate)
{
    gd_call real = *call;
    real.op = planted(call)->real;
    real.accumulate = accumulate;
    return real.op->backward[GD_CPU](&real);
}

gd_status planted_true(const gd_call *call)
{
    return run_true(call, call->accumulate);
}

/* ---- Spoilers ----------------------------------------------------------------------------- */

/* The true gradient alone goes to the spoiler; what was held is added after. */
static gd_status spoiled(const gd_call *call)
{
    planted_op *p = planted(call);
    static const bool overwrite[PLANTED_MAX];
    double *held[PLANTED_MAX] = {NULL};
    p->calls++;
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->dinput[i];
        if (!t || !call->accumulate[i]) continue;
        held[i] = malloc((size_t)gd_tensor_count(t) * sizeof(double) + 1);
        memcpy(held[i], gd_tensor_data(t), (size_t)gd_tensor_count(t) * sizeof(double));
    }
    gd_status status = run_true(call, overwrite);
    for (int i = 0; i < call->inputs; i++) {
        gd_tensor *t = call->dinput[i];
        if (!t) continue;
        double *g = gd_tensor_data(t);
        if (i == p->bug->input)
            p->bug->spoil(&(planted_gradient){.p = p,
                                              .call = call,
                                              .g = g,
                                              .factor = p->bug->factor,
                                              .n = gd_tensor_count(t),
                                              .columns = planted_columns(t)});
        for (int64_t k = 0; k < gd_tensor_count(t) && held[i]; k++) g[k] += held[i][k];
        free(held[i]);
    }
    return status;
}

/* ---- Formulas ----------------------------------------------------------------------------- */

static double *values_of(const gd_tensor *t)
{
    if (!t) return NULL;
    double *v = calloc((size_t)gd_tensor_count(t) + 1, sizeof *v);
    gd_tensor_read_f64(t, v, gd_tensor_count(t));
    return v;
}

static gd_status by_formula(const gd_call *call)
{
    planted_math m = {.call = call, .variant = planted(call)->bug->variant};
    for (int i = 0; i < call->inputs; i++) {
        m.x[i] = values_of(call->input[i]);
        if (call->input[i])
            m.g[i] = calloc((size_t)gd_tensor_count(call->input[i]) + 1, sizeof(double));
    }
    for (int i = 0; i < call->outputs; i++) {
        m.y[i] = values_of(call->output[i]);
        m.dy[i] = values_of(call->doutput[i]);
    }
    for (int i = 0; i < call->saves; i++) m.save[i] = values_of(call->save[i]);
    planted(call)->bug->formula(&m);
    for (int i = 0; i < call->inputs; i++) {
        double *to = call->dinput[i] ? gd_tensor_data(call->dinput[i]) : NULL;
        for (int64_t k = 0; to && k < gd_tensor_count(call->dinput[i]); k++)
            to[k] = (call->accumulate[i] ? to[k] : 0) + m.g[i][k];
    }
    for (int i = 0; i < PLANTED_MAX; i++) {
        free(m.x[i]);
        free(m.y[i]);
        free(m.dy[i]);
        free(m.save[i]);
        free(m.g[i]);
    }
    return gd_error_status(call->context);
}

/* ---- Lines -------------------------------------------------------------------------------- */

extern int gd_planted;
int gd_planted; /* which fault the planted kernels have; 0: none */

static gd_status by_line(const gd_call *call)
{
    const planted_bug *bug = planted(call)->bug;
    gd_planted = bug->line;
    gd_status status = bug->backward ? bug->backward(call) : planted_true(call);
    gd_planted = 0;
    return status;
}

/* ---- Planting ----------------------------------------------------------------------------- */

/* Products of which the transpose has the same shape, and where one matrix serves several; one bias
 * for all heads. */
static const matmul_args plain = {false, false};
static const attention_args biased = {.causal = true, .scale = 0.5};
static const gd_case own_cases[] = {
    {"square4", &plain, GD_INPUTS({GD_DIMS(4, 4)}, {GD_DIMS(4, 4)})},
    {"one_b_for_three", &plain, GD_INPUTS({GD_DIMS(3, 4, 4)}, {GD_DIMS(4, 4)})},
    {"bias_of_all_heads", &biased,
     GD_INPUTS({GD_DIMS(1, 5, 4, 3)}, {GD_DIMS(1, 6, 2, 3)}, {GD_DIMS(1, 6, 2, 2)},
               {GD_DIMS(5, 6)})},
};

const gd_case *planted_case(const planted_bug *bug, const gd_op *op)
{
    if (bug->own) return bug->own;
    if (!bug->check) return &op->cases[0];
    for (int i = 0; i < op->case_count; i++)
        if (!strcmp(op->cases[i].name, bug->check)) return &op->cases[i];
    for (size_t i = 0; i < sizeof own_cases / sizeof *own_cases; i++)
        if (!strcmp(own_cases[i].name, bug->check)) return &own_cases[i];
    return NULL;
}

bool planted_make(planted_op *p, gd_context *ctx, const planted_bug *bug)
{
    const gd_op *real = gd_find_op(ctx, bug->op);
    if (!real) return false;
    *p = (planted_op){.op = *real, .real = real, .bug = bug};
    p->op.kernels = NULL;
    p->op.forward[GD_CPU] = forward;
    p->op.backward[GD_CPU] = bug->line      ? by_line
                             : bug->formula ? by_formula
                             : bug->spoil   ? spoiled
                                            : bug->backward;
    if (bug->formula ||
        (bug->line && bug->backward)) { /* it reads whatever and whenever it likes */
        p->op.backward_reads_inputs = UINT32_MAX;
        p->op.backward_reads_outputs = UINT32_MAX;
        p->op.dinput_over_doutput = p->op.dinput_over_input = 0;
    }
    if (bug->edit) bug->edit(&p->op);
    return true;
}
