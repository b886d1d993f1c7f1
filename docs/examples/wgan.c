/* wgan.c - points that look like others: a generator makes them of noise, and a critic tells both apart,
 * by a function whose slope is near 1 (WGAN-GP, Gulrajani et al. 2017, arXiv:1704.00028). The penalty
 * for other slopes has the gradient of the critic in the loss. The points are eight clouds on a circle;
 * the picture, wgan.svg, is what the generator makes, in the colour of the nearest cloud. */
#include "gallery.h"

enum { HIDDEN = 64, NOISE = 2, BATCH = 256, STEPS = 1600, CRITIC_STEPS = 5, SAMPLES = 1000 };
enum { CLOUDS = 8 };
static const double radius = 2, deviation = 0.2, penalty = 0.1;

typedef struct net {
    gallery_net layers;
    gd_optimizer *adam;
} net;

static net make_net(gd_context *ctx, int64_t inputs, int64_t outputs)
{
    const int64_t widths[] = {inputs, HIDDEN, HIDDEN, HIDDEN, outputs};
    net n = {.layers = gallery_net_create(ctx, 4, widths, sqrt(2))};
    n.adam = gd_adam_create(n.layers.params, &(gd_adam_options){.beta1 = 0.5, .beta2 = 0.9});
    return n;
}

static gd_tensor *run(const net *n, gd_tensor *x)
{
    return gd_run_mlp(&n->layers.mlp, x, gd_relu);
}

/* mean(critic(made)) - mean(critic(real)) + penalty mean((|slope| - 1)^2), with the slopes of the critic
 * at points between a real and a made one. */
static gd_tensor *critic_loss(const net *critic, gd_tensor *real, gd_tensor *made,
                              gd_tensor *between)
{
    const gd_gradients_options again = {.differentiable = true};
    gd_tensor *score = run(critic, between), *slope;
    gd_gradients(&score, 1, &again, &between, 1, &slope);
    gd_tensor *off = gd_add_scalar(gd_norm(slope, 2, (int[]){1}, 1, false), -1);
    gd_tensor *apart = gd_sub(gd_mean_all(run(critic, made)), gd_mean_all(run(critic, real)));
    return gd_add(apart, gd_scale(gd_mean_all(gd_mul(off, off)), penalty));
}

static void step_net(const net *n, gd_tensor *loss, double rate)
{
    gd_backward(loss);
    gd_optimizer_step(n->adam, rate);
}

static void draw_clouds(gd_tensor *real, uint64_t *seed)
{
    static float at[BATCH][2];
    for (int i = 0; i < BATCH; i++) {
        const double angle = 6.283185307179586 * floor(CLOUDS * gallery_uniform(seed)) / CLOUDS;
        at[i][0] = (float)(radius * cos(angle) + deviation * gallery_normal(seed));
        at[i][1] = (float)(radius * sin(angle) + deviation * gallery_normal(seed));
    }
    gd_tensor_write(real, at, sizeof at);
}

/* The cloud that is nearest to a point; *far: how far its centre is. */
static int nearest(const float *at, double *far)
{
    int best = 0;
    *far = INFINITY;
    for (int c = 0; c < CLOUDS; c++) {
        const double angle = 6.283185307179586 * c / CLOUDS;
        const double d =
            hypot((double)at[0] - radius * cos(angle), (double)at[1] - radius * sin(angle));
        if (d < *far) *far = d, best = c;
    }
    return best;
}

int main(int argc, char **argv)
{
    static float at[SAMPLES][2];
    static int32_t cloud[SAMPLES];
    uint64_t seed = 1;
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    const net maker = make_net(ctx, NOISE, 2), critic = make_net(ctx, 2, 1);
    gd_tensor *real = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 2));
    gd_tensor *part = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 1));
    gd_tensor *noise = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, NOISE));
    gd_tensor *between = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 2));
    gd_tensor_set_requires_grad(between, true);
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 2e-3, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        const double rate = gd_schedule_rate(&schedule, step);
        for (int k = 0; k < CRITIC_STEPS; k++) {
            draw_clouds(real, &seed);
            gd_random_uniform(noise, -1, 1);
            gd_random_uniform(part, 0, 1);
            gd_tensor *made = gd_detach(run(&maker, noise));
            gd_tensor_copy(between, gd_add(real, gd_mul(part, gd_sub(made, real))));
            gd_tensor *loss = critic_loss(&critic, real, made, between);
            step_net(&critic, loss, rate);
            if (step % 200 == 0 && k == 0) printf("step %3d  loss %.4f\n", step, gd_item(loss));
            gd_params_clear_grads(critic.layers.params);
            gd_grad_clear(between);
            gd_step_end(ctx);
        }
        gd_random_uniform(noise, -1, 1);
        step_net(&maker, gd_neg(gd_mean_all(run(&critic, run(&maker, noise)))), rate);
        gd_params_clear_grads(maker.layers.params);
        gd_params_clear_grads(critic.layers.params); /* the maker's loss has reached it, too */
        gd_step_end(ctx);
    }
    gd_tensor *many = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(SAMPLES, NOISE));
    gd_random_uniform(many, -1, 1);
    gd_no_grad_begin(ctx);
    gd_tensor_read(run(&maker, many), at, sizeof at);
    gd_no_grad_end(ctx);
    int near = 0, of[CLOUDS] = {0}, clouds = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double far;
        cloud[i] = nearest(at[i], &far);
        if (far < 3 * deviation) near++, of[cloud[i]]++;
    }
    for (int c = 0; c < CLOUDS; c++) clouds += of[c] >= SAMPLES / CLOUDS / 4;
    printf("%d of %d clouds, %.1f%% of the points near one\n", clouds, CLOUDS,
           100. * near / SAMPLES);
    const bool drawn = gallery_scatter("wgan.svg", at[0], cloud, SAMPLES, 3, NULL, 0);
    gd_optimizer_free(critic.adam);
    gd_params_free(critic.layers.params);
    return gallery_end(maker.adam, maker.layers.params, ctx, drawn,
                       clouds == CLOUDS && near >= 0.9 * SAMPLES);
}
