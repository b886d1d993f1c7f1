/* exercise.h - shared by the exercises: an op in float64 whose backward is checked. */
#ifndef GRADUS_EXERCISE_H
#define GRADUS_EXERCISE_H

#include <gradus/gradus.h>
#include <stdio.h>

/* The numbers of a tensor that may be absent. */
static inline double *numbers(const gd_tensor *t)
{
    return t ? gd_tensor_data(t) : NULL;
}

/* y has the shape of the first input. */
static inline gd_status like_first_input(const gd_call *call, gd_shapes *out)
{
    out->output[0] = gd_spec_like(call->input[0]);
    return GD_OK;
}

/* y = op(inputs), squared, so that every element has a gradient of its own; twice, so that the
 * second gradient meets what the first has left. */
static inline gd_tensor *twice(void *op, gd_tensor *const *inputs, int count)
{
    gd_tensor *once = gd_apply(op, inputs, count, NULL);
    gd_tensor *again = gd_apply(op, inputs, count, NULL);
    return gd_add(gd_mul(once, once), again);
}

/* Checks the op on inputs [4, 3] and, if it has two, [3]; says everything about it. Returns 0 if
 * the backward is right. */
static inline int check_exercise(const gd_op *op)
{
    static const double values[] = {0.5, -1, 1.5, -0.25, 2, -1.5, 0.75, -0.5, 1, -2, 0.25, 1.25};
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *inputs[] = {gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(4, 3), values),
                           gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(3), values + 4)};
    gd_gradcheck_report report;
    for (int i = 0; i < op->inputs; i++) gd_tensor_set_requires_grad(inputs[i], true);
    gd_status status = gd_gradcheck_function(ctx, op->name, twice, (void *)(uintptr_t)op, inputs,
                                             op->inputs, NULL, &report);
    bool right = !status && report.verdict == GD_VERDICT_PASS;
    if (status) {
        printf("%s\n", gd_error(ctx));
    } else {
        gd_gradcheck_print(&report, stdout, true);
        gd_gradcheck_report_free(&report);
    }
    puts(right ? "The backward belongs to the forward." : "The backward is wrong: find the bug.");
    gd_context_free(ctx);
    return right ? 0 : 1;
}

#endif
