/* twin.h - compares an op with its plain twin, the kernels of kernels/NAME/plain_cpu.c. */
#ifndef GRADUS_TEST_TWIN_H
#define GRADUS_TEST_TWIN_H

#include "kernel.h"
#include "op_test.h"

/* Declares the twin's kernels, and defines NAME_twin(): the op's record with these kernels, which
 * read all inputs again in the backward. */
#define TWIN(op)                                         \
    extern const gd_op gd_op_##op;                       \
    GD_KERNEL_PAIR(op##_plain)                           \
    static const gd_op *op##_twin(void)                  \
    {                                                    \
        static gd_op twin;                               \
        twin = gd_op_##op;                               \
        twin.forward[GD_CPU] = op##_plain_forward_cpu;   \
        twin.backward[GD_CPU] = op##_plain_backward_cpu; \
        twin.backward_reads_inputs = GD_ALL_INPUTS;      \
        return &twin;                                    \
    }

/* The gradients of an op's inputs, NULL for one without, after two backwards, of which the second
 * adds; then its first output. *dy is the cotangent, random unless it is set. */
static inline void run_op(const gd_op *op, gd_tensor *const *input, int inputs, const void *args,
                          gd_tensor **dy, uint64_t *seed, double **values)
{
    gd_random_set(gd_tensor_context(*input), (gd_random_state){.seed = 5}); /* the same draws */
    gd_tensor *outputs[GD_CASE_MAX_INPUTS];
    const gd_status status = gd_apply_multi(op, input, inputs, args, outputs);
    gd_tensor *y = outputs[0];
    ck_assert_msg(status == GD_OK, "%s: no output", op->name);
    gd_context *ctx = gd_tensor_context(y);
    if (!*dy) {
        *dy = random_leaf(ctx, gd_tensor_dtype(y), gd_tensor_ndim(y), gd_tensor_shape(y), -1, 1,
                          seed);
    }
    values[inputs] = values_of(y);
    const gd_backward_options options = {.cotangents = dy, .keep_tape = true};
    for (int times = 0; times < 2; times++) gd_backward_from(&y, 1, &options);
    ck_assert_no_error(ctx);
    for (int i = 0; i < inputs; i++) {
        values[i] = input[i] && gd_grad(input[i]) ? values_of(gd_grad(input[i])) : NULL;
        if (values[i]) ck_assert_int_eq(gd_grad_clear(input[i]), GD_OK);
    }
}

/* An op and its twin have the same output and gradients, within `tolerance` for sums of terms of
 * size 1 and two roundings of what is stored. */
static inline void assert_twin(const gd_op *twin, gd_tensor *const *input, int inputs,
                               const void *args, double tolerance, uint64_t *seed)
{
    double *got[GD_CASE_MAX_INPUTS + 1], *want[GD_CASE_MAX_INPUTS + 1];
    const gd_op *op = gd_find_op(gd_tensor_context(*input), twin->name);
    gd_tensor *dy = NULL;
    ck_assert_ptr_nonnull(op);
    run_op(twin, input, inputs, args, &dy, seed, want);
    run_op(op, input, inputs, args, &dy, seed, got);
    for (int i = 0; i <= inputs; i++) {
        ck_assert_int_eq(!got[i], !want[i]);
        if (!got[i]) continue;
        const gd_tensor *like = i < inputs ? input[i] : dy;
        arrays_near(got[i], want[i], gd_tensor_count(like), (bound){2, tolerance, 2},
                    gd_tensor_dtype(like), i < inputs ? gd_input_name(op, i).text : "output");
        free(got[i]), free(want[i]);
    }
}

/* What a function has returned is of this shape, and is what the record gives with these
 * arguments. */
static inline void assert_called(const gd_tensor *y, shape s, const char *op,
                                 gd_tensor *const *input, int inputs, const void *args)
{
    gd_context *ctx = gd_tensor_context(*input);
    ck_assert_no_error(ctx);
    ck_assert(same_shape(shape_of(y), s));
    double *want = values_of(gd_apply(gd_find_op(ctx, op), input, inputs, args));
    assert_near(y, want, 1, (bound){0}, op);
    free(want);
}

#endif
