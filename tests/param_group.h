/* param_group.h - a group of parameters to work on: decaying and other ones mixed, of sizes that
 * leave gaps in its block. */
#ifndef GRADUS_TEST_PARAM_GROUP_H
#define GRADUS_TEST_PARAM_GROUP_H

#include "op_test.h"

/* Followed by one more byte: names of 127, the most, that differ in the last. */
#define LONG_NAME                                                    \
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias." \
    "decoder.block.0.layer.0.EncDecAttention.relative_attention_bias."

enum { PARAMETERS = 5, TOTAL = 3 * 7 + 7 + 1 + 40 + 2 };

static const struct {
    const char *name;
    int ndim;
    int64_t shape[2];
    unsigned flags;
} parameter[PARAMETERS] = {{"w1", 2, {3, 7}, GD_DECAY},
                           {"b1", 1, {7}, 0},
                           {LONG_NAME "1", 0, {0}, 0},
                           {LONG_NAME "2", 2, {20, 2}, GD_DECAY | GD_MUON},
                           {"b2", 1, {2}, 0}};

static inline gd_params *group(gd_context *ctx, gd_dtype dtype)
{
    gd_params *params = gd_params_create(ctx, dtype);
    for (int i = 0; i < PARAMETERS; i++) {
        gd_params_add(params, parameter[i].name, parameter[i].ndim, parameter[i].shape,
                      parameter[i].flags);
    }
    gd_params_finish(params);
    return params;
}

/* Gives t the gradient `values`, in place of what a tape would send: a leaf that is itself the
 * output of a backward gets the cotangent. */
static inline void give_grad(gd_tensor *t, const double *values)
{
    gd_context *ctx = gd_tensor_context(t);
    gd_tensor *u = gd_tensor_create(ctx, gd_tensor_dtype(t), gd_tensor_ndim(t), gd_tensor_shape(t));
    gd_tensor_write_f64(u, values, gd_tensor_count(u));
    gd_backward_from(&t, 1, &(gd_backward_options){.cotangents = &u});
    gd_tensor_free(u);
    ck_assert_no_error(ctx);
}

/* All parameters' values, or gradients, one after the other. */
static inline void read_all(const gd_params *params, double *values)
{
    for (int i = 0; i < gd_params_count(params); i++) {
        gd_tensor *t = gd_params_at(params, i);
        gd_tensor_read_f64(t, values, gd_tensor_count(t));
        values += gd_tensor_count(t);
    }
}

static inline void read_grads(const gd_params *params, double *values)
{
    for (int i = 0; i < gd_params_count(params); i++) {
        gd_tensor *t = gd_params_at(params, i);
        ck_assert_ptr_nonnull(gd_grad(t));
        gd_tensor_read_f64(gd_grad(t), values, gd_tensor_count(t));
        values += gd_tensor_count(t);
    }
}

static inline void write_all(gd_params *params, const double *values)
{
    for (int i = 0; i < gd_params_count(params); i++) {
        gd_tensor *t = gd_params_at(params, i);
        gd_tensor_write_f64(t, values, gd_tensor_count(t));
        values += gd_tensor_count(t);
    }
}

static inline void give_all(gd_params *params, const double *grads)
{
    for (int i = 0; i < gd_params_count(params); i++) {
        give_grad(gd_params_at(params, i), grads);
        grads += gd_tensor_count(gd_params_at(params, i));
    }
}

/* Numbers that look random and are floats exactly. */
static inline void some_numbers(double *values, int n, int seed)
{
    for (int i = 0; i < n; i++) {
        values[i] = (double)((float)sin(12.9898 * i + 78.233 * seed) * (i % 3 ? 1.0F : 0.01F));
    }
}

#endif
