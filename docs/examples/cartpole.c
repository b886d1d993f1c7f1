/* cartpole.c - a pole on a cart, kept upright by pushes (Barto, Sutton & Anderson 1983), by PPO (Schulman et
 * al. 2017, arXiv:1707.06347): sixteen carts are driven as the policy is; then it takes small steps to what
 * went better than its critic expected. In cartpole.svg: the mean length of episodes, 500 at most. */
#include "gallery.h"

enum { CARTS = 16, TIMES = 128, ALL = 2048, BATCH = 256, EPOCHS = 6, ROUNDS = 80, LONGEST = 500 };

static float cart[CARTS][4];   /* place, speed, angle of the pole, its speed */
static int length[CARTS];      /* of the episode so far */
static double steps, episodes; /* of those that have ended */

/* What was seen and done, how likely that was, how much it was better than expected, and what it was. */
static float state[ALL][4], logp[ALL], gain[ALL], worth[ALL];
static int32_t action[ALL];

static void reset(int i, uint64_t *seed)
{
    length[i] = 0;
    for (int k = 0; k < 4; k++) cart[i][k] = (float)(0.1 * gallery_uniform(seed) - 0.05);
}

/* A fiftieth of a second; whether the episode is over. */
static bool push(int i, int right)
{
    float *s = cart[i];
    const double sine = sin((double)s[2]), cosine = cos((double)s[2]);
    const double part = ((right ? 10 : -10) + 0.05 * (double)(s[3] * s[3]) * sine) / 1.1;
    const double turn = (9.8 * sine - cosine * part) / (2. / 3 - 0.05 * cosine * cosine / 1.1);
    const double rate[] = {(double)s[1], part - 0.05 * turn * cosine / 1.1, (double)s[3], turn};
    for (int k = 0; k < 4; k++) s[k] += (float)(0.02 * rate[k]);
    return ++length[i] >= LONGEST || fabsf(s[0]) > 2.4f || fabsf(s[2]) > 0.2095f;
}

/* Pushes each cart TIMES times, as the policy draws, or as is likeliest. */
static void drive(const gd_mlp net[2], gd_tensor *x, bool draws, uint64_t *seed)
{
    static float value[ALL + CARTS], p[CARTS][2];
    static bool over[ALL];
    gd_no_grad_begin(gd_tensor_context(x));
    for (int t = 0; t <= TIMES; t++) {
        gd_tensor_write(x, cart, sizeof cart);
        gd_tensor_read(gd_softmax(gd_run_mlp(&net[0], x, gd_tanh), -1), p, sizeof p);
        gd_tensor_read(gd_run_mlp(&net[1], x, gd_tanh), value + t * CARTS, sizeof(float[CARTS]));
        gd_step_end(gd_tensor_context(x));
        for (int i = 0; i < CARTS && t < TIMES; i++) {
            const int k = t * CARTS + i;
            action[k] = (draws ? gallery_uniform(seed) : 0.5) < (double)p[i][1];
            logp[k] = logf(p[i][action[k]]);
            memcpy(state[k], cart[i], sizeof cart[i]);
            over[k] = push(i, action[k]);
            if (over[k]) steps += length[i], episodes++, reset(i, seed);
        }
    }
    gd_no_grad_end(gd_tensor_context(x));
    for (int k = ALL - 1; k >= 0; k--) { /* generalized advantages (arXiv:1506.02438) */
        const float next = over[k] ? 0 : 0.99f, later = k + CARTS < ALL ? gain[k + CARTS] : 0;
        gain[k] = 1 + next * value[k + CARTS] - value[k] + next * 0.95f * later;
        worth[k] = gain[k] + value[k];
    }
}

/* Minus what the policy gains, if it moves by a fifth at most, and the critic's error. */
static gd_tensor *loss_of(const gd_mlp net[2], gd_tensor *x, gd_tensor *done, gd_tensor *const *of)
{
    const gd_cross_entropy_options each = {.reduction = GD_NONE};
    gd_tensor *less = gd_cross_entropy_with(gd_run_mlp(&net[0], x, gd_tanh), done, &each);
    gd_tensor *ratio = gd_exp(gd_neg(gd_add(less, of[0])));
    gd_tensor *moved = gd_mul(ratio, of[1]), *held = gd_mul(gd_clamp(ratio, 0.8, 1.2), of[1]);
    gd_tensor *error = gd_mse_loss(gd_squeeze(gd_run_mlp(&net[1], x, gd_tanh), 1), of[2], GD_MEAN);
    return gd_sub(gd_scale(error, 1e-3), gd_mean_all(gd_minimum(moved, held)));
}

int main(int argc, char **argv)
{
    static float points[2 * ROUNDS];
    static int32_t colour[ROUNDS];
    float *const data[] = {logp, gain, worth};
    uint64_t seed = 1;
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net[2] = {gd_make_mlp(params, 0, 3, (int64_t[]){4, 64, 64, 2}, "policy"),
                           gd_make_mlp(params, 0, 3, (int64_t[]){4, 64, 64, 1}, "critic")};
    gd_params_finish(params);
    gd_optimizer *adam = gd_adam_create(params, NULL);
    gd_tensor *carts = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(CARTS, 4)), *of[3];
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ALL, 4));
    gd_tensor *done = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(ALL));
    for (int i = 0; i < 3; i++) of[i] = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(ALL));
    gd_batches *batches =
        gd_batches_create(ctx, ALL, &(gd_batches_options){.size = BATCH, .seed = 1});
    for (int round = 0; round < ROUNDS && !gd_error(ctx); round++) {
        steps = episodes = 0;
        drive(net, carts, true, &seed);
        points[2 * round] = (float)(6. * round / ROUNDS - 3);
        points[2 * round + 1] = (float)(steps / fmax(episodes, 1) / 100 - 2.5);
        gd_tensor_write(x, state, sizeof state), gd_tensor_write(done, action, sizeof action);
        for (int k = 0; k < 3; k++) gd_tensor_write(of[k], data[k], sizeof gain);
        for (int i = 0; i < EPOCHS * ALL && !gd_error(ctx); i += BATCH) {
            gd_tensor *at = gd_batches_next(batches), *rows[3];
            for (int k = 0; k < 3; k++) rows[k] = gd_index_select(of[k], 0, at);
            gd_backward(
                loss_of(net, gd_index_select(x, 0, at), gd_index_select(done, 0, at), rows));
            gd_optimizer_step(adam, 2e-3 * (1 - (double)round / ROUNDS));
            gd_params_clear_grads(params);
            gd_step_end(ctx);
        }
    }
    gd_batches_free(batches);
    steps = episodes = 0;
    for (int i = 0; i < CARTS; i++) reset(i, &seed);
    for (int i = 0; i < 8; i++) drive(net, carts, false, &seed);
    const double mean = steps / fmax(episodes, 1);
    printf("the pole is up for %.0f of %d steps, in %.0f episodes\n", mean, LONGEST, episodes);
    const bool drawn = gallery_scatter("cartpole.svg", points, colour, ROUNDS, 3, NULL, 0);
    return gallery_end(adam, params, ctx, drawn, mean >= 475);
}
