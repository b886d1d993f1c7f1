/* rank_buffers.h - buffers of replicated parameters: after the start, each update and a load all
 * ranks have those that a run of rank 0 alone has, to the last bit, whatever the batches of the
 * others. */
#ifndef GRADUS_TEST_RANK_BUFFERS_H
#define GRADUS_TEST_RANK_BUFFERS_H

#include "ranks.h"

enum { BUFFER_CHANNELS = 5, BUFFERS = 3 };

static bool buffers_by_hand; /* without gd_optimizer_update */

static inline void fill_all(gd_params *params, double value)
{
    gd_tensor_fill(gd_params_at(params, 0), value);
    for (int i = 0; i < BUFFERS; i++) gd_tensor_fill(gd_params_buffer_at(params, i), value + i);
}

static inline void note_buffers(const gd_params *params, outcome *mine)
{
    double values[BUFFER_CHANNELS];
    for (int i = 0; i < BUFFERS; i++) {
        gd_tensor_read_f64(gd_params_buffer_at(params, i), values, BUFFER_CHANNELS);
        for (int k = 0; k < BUFFER_CHANNELS; k++) note(mine, values[k]);
    }
}

/* Batch norm's statistics, of other batches on each rank; the update of the third step is
 * withheld. */
static inline void learn_statistics(gd_context *ctx, gd_group *group, int rank, outcome *mine)
{
    enum { ROWS = 6, STEPS = 5, BATCHES = 2 };
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *scale = gd_params_add(params, "scale", GD_SHAPE(BUFFER_CHANNELS), GD_DECAY);
    const gd_batch_norm_options norm = {
        .mean = gd_params_add_buffer(params, "mean", GD_FLOAT32, GD_SHAPE(BUFFER_CHANNELS)),
        .var = gd_params_add_buffer(params, "var", GD_FLOAT32, GD_SHAPE(BUFFER_CHANNELS))};
    gd_params_add_buffer(params, "fixed", GD_FLOAT64, GD_SHAPE(BUFFER_CHANNELS));
    gd_params_finish(params);
    fill_all(params, 1 + rank);
    gd_params_replicate(params, group, NULL);
    note_buffers(params, mine);
    gd_optimizer *adamw = gd_adamw_create(params, NULL);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ROWS, BUFFER_CHANNELS));
    for (int b = 0; b < STEPS * BATCHES; b++) {
        gd_random_set(ctx, (gd_random_state){.seed = (uint64_t)(10 * b + rank)});
        gd_random_normal(x, rank, 1);
        if (b % BATCHES > 0) gd_params_last_backward(params);
        gd_tensor *loss = gd_sum_all(gd_sin(gd_batch_norm(x, scale, NULL, &norm)));
        const bool withheld = !buffers_by_hand && b / BATCHES == 2;
        if (buffers_by_hand)
            gd_backward(loss);
        else
            gd_optimizer_backward(adamw, withheld ? gd_scale(loss, (double)NAN) : loss, 1);
        gd_step_end(ctx);
        if (b % BATCHES == 0) continue;
        if (buffers_by_hand)
            gd_optimizer_step(adamw, 0.01);
        else
            gd_optimizer_update(adamw, 1);
        if (withheld) gd_optimizer_continue(adamw);
        gd_params_clear_grads(params);
        note_buffers(params, mine);
    }
    fill_all(params, 40 + rank); /* as if they were loaded */
    gd_params_broadcast(params);
    note_buffers(params, mine);
    double values[BUFFER_CHANNELS];
    gd_tensor_read_f64(scale, values, BUFFER_CHANNELS);
    note(mine, values[BUFFER_CHANNELS - 1]);
    gd_tensor_free(x);
    gd_optimizer_free(adamw);
    gd_params_free(params);
}

static inline void buffers_are_those_of_rank_0(int most)
{
    static double alone[RANK_NUMBERS];
    ranks_run_well(1, learn_statistics);
    const size_t count = (size_t)outcomes[0].count;
    memcpy(alone, outcomes[0].number, count * sizeof *alone);
    ck_assert(alone[0] == 1 && alone[count / 2] != 1 && alone[count - 1] == 40);
    for (int ranks = 2; ranks <= most; ranks++) {
        ranks_run_well(ranks, learn_statistics);
        for (int r = 0; r < ranks; r++) {
            ck_assert_uint_eq((size_t)outcomes[r].count, count);
            ck_assert_msg(!memcmp(outcomes[r].number, alone, count * sizeof *alone),
                          "rank %d of %d has other buffers than rank 0 alone", r, ranks);
        }
    }
}

#endif
