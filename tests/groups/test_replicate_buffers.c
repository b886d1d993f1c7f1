/* test_replicate_buffers.c - several processes: buffers of replicated parameters, which are those
 * of rank 0 or each rank's own. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdlib.h>

#include "ranks.h"

enum { CHANNELS = 5, COLUMN = 4, STEPS = 6 };

static gd_dtype dtype; /* set before fork, so all ranks have it */
static int batches;    /* of a step */
static bool by_hand, own_buffers;

/* Batch b of a rank in a step: all channels are the same. */
static double batch_element(int rank, int64_t step, int b, int row)
{
    return sin((double)(rank * 50 + step * 7 + b * 3 + row * row));
}

/* What the forwards of a step make of a rank's statistics. */
static void track(int rank, int64_t step, double *mean, double *var)
{
    for (int b = 0; b < batches; b++) {
        double m = 0, v = 0;
        for (int i = 0; i < COLUMN; i++) m += batch_element(rank, step, b, i) / COLUMN;
        for (int i = 0; i < COLUMN; i++)
            v += pow(batch_element(rank, step, b, i) - m, 2) / (COLUMN - 1);
        *mean = 0.9 * *mean + 0.1 * m;
        *var = 0.9 * *var + 0.1 * v;
    }
}

/* The largest difference from what the buffers should hold. */
static double gap_of(const gd_params *params, double mean, double var, double fixed)
{
    double gap = 0, values[CHANNELS];
    for (int i = 0; i < 3; i++) {
        gd_tensor_read_f64(gd_params_buffer_at(params, i), values, CHANNELS);
        for (int c = 0; c < CHANNELS; c++) {
            const double want = i == 0 ? mean : i == 1 ? var : fixed;
            gap = fmax(gap, fabs(values[c] - want));
        }
    }
    return gap;
}

static void learn_statistics(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    gd_params *params = gd_params_create(ctx, dtype);
    gd_tensor *scale = gd_params_add(params, "scale", GD_SHAPE(CHANNELS), GD_DECAY);
    gd_batch_norm_options norm = {
        .mean = gd_params_add_buffer(params, "mean", dtype, GD_SHAPE(CHANNELS)),
        .var = gd_params_add_buffer(params, "var", dtype, GD_SHAPE(CHANNELS))};
    gd_tensor *fixed = gd_params_add_buffer(params, "fixed", GD_FLOAT32, GD_SHAPE(CHANNELS));
    gd_params_finish(params);
    gd_tensor_fill(scale, 1 + rank), gd_tensor_fill(fixed, 7 + rank);
    gd_tensor_fill(norm.mean, rank), gd_tensor_fill(norm.var, 1 + rank);
    gd_params_replicate(params, group, &(gd_replicate_options){.own_buffers = own_buffers});
    double mean = 0, var = 1;
    note(mine, gap_of(params, mean, var, 7));
    gd_optimizer *adamw = gd_adamw_create(params, &(gd_adamw_options){.weight_decay = 0.1});
    gd_optimizer_set_rate(adamw, 0.01);
    gd_tensor *x = gd_tensor_create(ctx, dtype, GD_SHAPE(COLUMN, CHANNELS));
    for (int64_t s = 0; s < STEPS; s++) {
        for (int b = 0; b < batches; b++) {
            double values[COLUMN * CHANNELS];
            for (int i = 0; i < COLUMN * CHANNELS; i++)
                values[i] = batch_element(rank, s, b, i / CHANNELS);
            gd_tensor_write_f64(x, values, COLUMN * CHANNELS);
            if (b + 1 == batches) gd_params_last_backward(params);
            gd_tensor *loss = gd_sum_all(gd_sin(gd_batch_norm(x, scale, NULL, &norm)));
            if (by_hand) gd_backward(loss);
            if (!by_hand) gd_optimizer_backward(adamw, loss, 1.0 / batches);
            gd_step_end(ctx);
        }
        if (by_hand) gd_optimizer_step(adamw, 0.01);
        if (!by_hand) gd_optimizer_update(adamw, 1);
        gd_params_clear_grads(params);
        track(own_buffers ? rank : 0, s, &mean, &var);
        note(mine, gap_of(params, mean, var, 7));
    }
    if (!by_hand) { /* an update that is withheld leaves them */
        gd_tensor_fill(x, 3 + rank);
        gd_optimizer_backward(
            adamw, gd_scale(gd_sum_all(gd_batch_norm(x, scale, NULL, &norm)), (double)NAN), 1);
        gd_step_end(ctx);
        gd_optimizer_update(adamw, 1);
        gd_optimizer_continue(adamw);
        gd_params_clear_grads(params);
    }
    note(mine, gap_of(params, mean, var, 7));
    gd_tensor_fill(scale, 20 + rank), gd_tensor_fill(fixed, 30 + rank); /* as if they were loaded */
    gd_tensor_fill(norm.mean, 40 + rank), gd_tensor_fill(norm.var, 50 + rank);
    gd_params_broadcast(params);
    note(mine, gap_of(params, 40, 50, 30));
    double values[CHANNELS];
    gd_tensor_read_f64(scale, values, CHANNELS);
    note(mine, values[CHANNELS - 1] - 20);
    gd_tensor_free(x);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

/* As PyTorch's DistributedDataParallel with broadcast_buffers: the forwards of a step change each
 * rank's own, and every step begins with rank 0's. */
LOOP_TEST(buffers_are_those_of_rank_0, 16)
{
    dtype = _i & 1 ? GD_FLOAT64 : GD_FLOAT32;
    by_hand = _i & 2;
    batches = 1 + !!(_i & 4);
    own_buffers = _i & 8;
    for (int ranks = 1; ranks <= 3; ranks++) {
        ranks_run_well(ranks, learn_statistics);
        for (int r = 0; r < ranks; r++) {
            ck_assert_int_eq(outcomes[r].count, STEPS + 4);
            for (int i = 0; i < STEPS + 4; i++) {
                ck_assert_msg(outcomes[r].number[i] < (_i & 1 ? 1e-13 : 1e-6),
                              "rank %d of %d after %d steps: %g", r, ranks, i,
                              outcomes[r].number[i]);
            }
        }
    }
}

CHECK_MAIN("buffers of replicated parameters")
