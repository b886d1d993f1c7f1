/* composed.h - the functions of ops.h that are a few ops, and so have no record with cases: inputs
 * for each, for gradcheck (test_composed.c) and for a comparison of a GPU with the CPU
 * (test_cuda_composed.c). Without a row: those that are one op under another name or with other
 * arguments (transpose, narrow, squeeze, sum_all, ...). */
#ifndef GRADUS_TEST_COMPOSED_H
#define GRADUS_TEST_COMPOSED_H

#include "check_main.h"
#include "gradus/gradus.h"

#include <string.h>

enum { COMPOSED_INPUTS = 7 };

typedef struct composed {
    const char *name;
    gd_function function; /* one output, whatever the function has */
    int count;
    struct {
        int ndim;
        int64_t shape[4];
        int fill; /* COMPOSED_REAL, COMPOSED_SIGNS, or above 0: whole numbers below it */
    } input[COMPOSED_INPUTS];
} composed;

enum {
    COMPOSED_REAL = 0,
    COMPOSED_SIGNS = -1 /* 1 or -1, of the real inputs' dtype, without a gradient */
};

#define COMPOSED(name) \
    static inline gd_tensor *composed_##name(void *user, gd_tensor *const *in, int count)
#define COMPOSED_UNUSED (void)user, (void)count

COMPOSED(upsample_nearest)
{
    COMPOSED_UNUSED;
    return gd_upsample_nearest(in[0], 2, 3);
}

COMPOSED(conv1d)
{
    COMPOSED_UNUSED;
    return gd_conv1d(
        in[0], in[1], in[2],
        &(gd_conv_options){.stride = {2, 0}, .padding = {3, 0}, .dilation = {2, 0}, .groups = 2});
}

COMPOSED(lstm_cell)
{
    COMPOSED_UNUSED;
    const gd_rnn_weights weights = {in[3], in[4], in[5], in[6]};
    gd_tensor *both[2] = {NULL, NULL};
    both[0] = gd_lstm_cell(in[0], in[1], in[2], &weights, &both[1]);
    return gd_concat(both, 2, -1);
}

COMPOSED(lstm_cell_from_zeros)
{
    COMPOSED_UNUSED;
    const gd_rnn_weights weights = {in[1], in[2], NULL, in[3]};
    return gd_lstm_cell(in[0], NULL, NULL, &weights, NULL);
}

COMPOSED(gru_cell)
{
    COMPOSED_UNUSED;
    const gd_rnn_weights weights = {in[2], in[3], in[4], in[5]};
    return gd_gru_cell(in[0], in[1], &weights);
}

/* The second layer reads the first one's columns. */
COMPOSED(gru_of_two_layers)
{
    COMPOSED_UNUSED;
    const gd_rnn_weights weights[2] = {{in[1], in[2], in[3], NULL}, {in[4], in[5], NULL, in[6]}};
    gd_tensor *last = NULL, *y = gd_gru(in[0], weights, 2, NULL, &last);
    return gd_add(y, gd_permute(last, (const int[]){1, 0, 2})); /* T = count */
}

COMPOSED(cosine_similarity)
{
    COMPOSED_UNUSED;
    return gd_cosine_similarity(in[0], in[1], 1, 1e-8);
}

COMPOSED(cosine_embedding_loss)
{
    COMPOSED_UNUSED;
    return gd_cosine_embedding_loss(in[0], in[1], in[2], 0.1, GD_MEAN);
}

COMPOSED(linear_cross_entropy_smooth)
{
    COMPOSED_UNUSED;
    return gd_linear_cross_entropy(in[0], in[1], in[2],
                                   &(gd_cross_entropy_options){.label_smoothing = 0.1});
}

COMPOSED(min)
{
    COMPOSED_UNUSED;
    return gd_min(in[0], (const int[]){0, 2}, 2, true);
}

COMPOSED(argmin)
{
    COMPOSED_UNUSED;
    return gd_argmin(in[0], 1, false);
}

COMPOSED(index_select)
{
    COMPOSED_UNUSED;
    return gd_index_select(in[0], 1, in[1]);
}

COMPOSED(sort)
{
    COMPOSED_UNUSED;
    return gd_sort(in[0], 1, true, NULL);
}

COMPOSED(topk)
{
    COMPOSED_UNUSED;
    return gd_topk(in[0], 3, -1, false, NULL);
}

COMPOSED(stack)
{
    COMPOSED_UNUSED;
    return gd_stack((gd_tensor *[]){in[1], in[0], in[1]}, 3, 1);
}

COMPOSED(roll)
{
    COMPOSED_UNUSED;
    return gd_roll(in[0], 1, -12);
}

COMPOSED(split)
{
    COMPOSED_UNUSED;
    gd_tensor *part[3];
    gd_split(in[0], 1, 3, (const int64_t[]){2, 3, 0}, part);
    return gd_concat((gd_tensor *[]){gd_scale(part[1], 2), part[2], part[0]}, 3, 1);
}

#undef COMPOSED
#undef COMPOSED_UNUSED

static const composed composed_table[] = {
    {"upsample_nearest", composed_upsample_nearest, 1, {{4, {2, 3, 4, 5}, 0}}},
    {"conv1d", composed_conv1d, 3, {{3, {3, 4, 17}, 0}, {3, {6, 2, 3}, 0}, {1, {6}, 0}}},
    {"lstm_cell",
     composed_lstm_cell,
     7,
     {{2, {3, 4}, 0},
      {2, {3, 5}, 0},
      {2, {3, 5}, 0},
      {2, {20, 4}, 0},
      {2, {20, 5}, 0},
      {1, {20}, 0},
      {1, {20}, 0}}},
    {"lstm_cell from zeros",
     composed_lstm_cell_from_zeros,
     4,
     {{2, {3, 4}, 0}, {2, {20, 4}, 0}, {2, {20, 5}, 0}, {1, {20}, 0}}},
    {"gru_cell",
     composed_gru_cell,
     6,
     {{2, {3, 4}, 0},
      {2, {3, 5}, 0},
      {2, {15, 4}, 0},
      {2, {15, 5}, 0},
      {1, {15}, 0},
      {1, {15}, 0}}},
    {"gru of two layers",
     composed_gru_of_two_layers,
     7,
     {{3, {3, 2, 4}, 0},
      {2, {15, 4}, 0},
      {2, {15, 5}, 0},
      {1, {15}, 0},
      {2, {15, 5}, 0},
      {2, {15, 5}, 0},
      {1, {15}, 0}}},
    {"cosine_similarity", composed_cosine_similarity, 2, {{3, {2, 7, 3}, 0}, {3, {2, 7, 3}, 0}}},
    {"cosine_embedding_loss",
     composed_cosine_embedding_loss,
     3,
     {{2, {9, 7}, 0}, {2, {9, 7}, 0}, {1, {9}, COMPOSED_SIGNS}}},
    {"linear_cross_entropy, smoothed",
     composed_linear_cross_entropy_smooth,
     3,
     {{2, {5, 4}, 0}, {2, {6, 4}, 0}, {1, {5}, 6}}},
    {"min", composed_min, 1, {{3, {3, 4, 5}, 0}}},
    {"argmin", composed_argmin, 1, {{3, {3, 9, 5}, 0}}},
    {"index_select", composed_index_select, 2, {{3, {3, 4, 5}, 0}, {1, {9}, 4}}},
    {"sort", composed_sort, 1, {{3, {3, 19, 2}, 0}}},
    {"topk", composed_topk, 1, {{2, {4, 11}, 0}}},
    {"stack", composed_stack, 2, {{2, {3, 4}, 0}, {2, {3, 4}, 0}}},
    {"roll", composed_roll, 1, {{3, {2, 5, 3}, 0}}},
    {"split", composed_split, 1, {{3, {2, 5, 3}, 0}}},
};

enum { COMPOSED_ROWS = sizeof composed_table / sizeof *composed_table };

/* Input k, with the same numbers in every context, rounded to that dtype. */
static inline gd_tensor *composed_input(gd_context *ctx, const composed *c, int k, gd_dtype dtype,
                                        gd_dtype rounded)
{
    gd_context *cpu = gd_context_create(&(gd_context_options){.seed = 100 + (uint64_t)k});
    const int fill = c->input[k].fill, ndim = c->input[k].ndim;
    const int64_t *shape = c->input[k].shape;
    gd_tensor *numbers = gd_tensor_create(cpu, fill ? GD_INT32 : rounded, ndim, shape);
    if (fill == COMPOSED_REAL)
        gd_random_normal(numbers, 0, 1);
    else
        gd_random_integers(numbers, 0, fill > 0 ? fill : 2);
    double value[256];
    const int64_t n = gd_tensor_count(numbers);
    ck_assert_int_le(n, 256);
    gd_tensor_read_f64(numbers, value, n);
    ck_assert_no_error(cpu);
    gd_tensor_free(numbers);
    gd_context_free(cpu);
    for (int i = 0; fill == COMPOSED_SIGNS && i < n; i++) value[i] = 2 * value[i] - 1;
    gd_tensor *t = gd_tensor_create(ctx, fill > 0 ? GD_INT32 : dtype, ndim, shape);
    gd_tensor_write_f64(t, value, n);
    gd_tensor_set_requires_grad(t, fill == COMPOSED_REAL);
    ck_assert_no_error(ctx);
    return t;
}

#endif
