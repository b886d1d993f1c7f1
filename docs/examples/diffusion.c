/* diffusion.c - points of a spiral out of noise (Ho et al. 2020, arXiv:2006.11239). A network learns to tell
 * how much noise is in a point; to make points, it takes noise away from noise in a hundred steps. The
 * picture, diffusion.svg, is what it makes, in front of the spiral. */
#include "gallery.h"

enum { T = 100, BATCH = 256, WIDE = 128, STEPS = 4000, SAMPLES = 1000, CURVE = 500, IN = 10 };
static const double pi = 3.141592653589793;

/* The point of the spiral at u, 0 to 1. */
static void spiral(double u, double at[2])
{
    const double radius = 0.3 + 1.5 * u, angle = 3 * pi * u;
    at[0] = radius * cos(angle), at[1] = radius * sin(angle);
}

/* How much of a point's square is left of the data after t steps, from 1 to almost 0 (Nichol & Dhariwal
 * 2021). */
static double left_after(int t)
{
    return pow(cos((double)t / T * 0.49 * pi), 2);
}

/* What the network reads: a point, and t as four angles. */
static void put_input(float *in, double x, double y, int t)
{
    in[0] = (float)x, in[1] = (float)y;
    for (int k = 0; k < 4; k++) {
        in[2 + 2 * k] = (float)sin(pi * t / T * (1 << k) / 2);
        in[3 + 2 * k] = (float)cos(pi * t / T * (1 << k) / 2);
    }
}

/* Points of the spiral with noise of any step in them, and the noise. */
static void draw_batch(gd_tensor *in, gd_tensor *noise, uint64_t *seed)
{
    static float rows[BATCH][IN], wanted[BATCH][2];
    for (int i = 0; i < BATCH; i++) {
        double at[2];
        const int t = 1 + (int)(T * gallery_uniform(seed));
        const double keep = sqrt(left_after(t)), add = sqrt(1 - left_after(t));
        spiral(gallery_uniform(seed), at);
        for (int k = 0; k < 2; k++) wanted[i][k] = (float)gallery_normal(seed);
        put_input(rows[i], keep * at[0] + add * (double)wanted[i][0],
                  keep * at[1] + add * (double)wanted[i][1], t);
    }
    gd_tensor_write(in, rows, sizeof rows), gd_tensor_write(noise, wanted, sizeof wanted);
}

/* From noise to points [SAMPLES, 2], step by step. */
static void make_points(const gd_mlp *net, gd_context *ctx, float *points, uint64_t *seed)
{
    static float rows[SAMPLES][IN], noise[SAMPLES][2];
    gd_tensor *in = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(SAMPLES, IN));
    for (int i = 0; i < 2 * SAMPLES; i++) points[i] = (float)gallery_normal(seed);
    gd_no_grad_begin(ctx);
    for (int t = T; t > 0 && !gd_error(ctx); t--) {
        const double left = left_after(t), alpha = left / left_after(t - 1);
        const double again = t > 1 ? sqrt((1 - alpha) * (1 - left / alpha) / (1 - left)) : 0;
        for (int i = 0; i < SAMPLES; i++)
            put_input(rows[i], (double)points[2 * i], (double)points[2 * i + 1], t);
        gd_tensor_write(in, rows, sizeof rows);
        gd_tensor_read(gd_run_mlp(net, in, gd_relu), noise, sizeof noise);
        gd_step_end(ctx);
        for (int i = 0; i < 2 * SAMPLES; i++) {
            const double less = (1 - alpha) / sqrt(1 - left) * (double)noise[i / 2][i % 2];
            points[i] =
                (float)(((double)points[i] - less) / sqrt(alpha) + again * gallery_normal(seed));
        }
    }
    gd_no_grad_end(ctx);
    gd_tensor_free(in);
}

int main(int argc, char **argv)
{
    static float all[2 * (SAMPLES + CURVE)];
    static int32_t colour[SAMPLES + CURVE];
    float *points = all + 2 * CURVE;
    uint64_t seed = 1;
    double off = 0;
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(params, 0, 4, (int64_t[]){IN, WIDE, WIDE, WIDE, 2}, "");
    gd_params_finish(params);
    gd_tensor *in = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, IN));
    gd_tensor *noise = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(BATCH, 2));
    gd_optimizer *adam = gd_adam_create(params, NULL);
    gd_optimizer_average(adam, 0.995);
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 3e-3, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        draw_batch(in, noise, &seed);
        gd_tensor *loss = gd_mse_loss(gd_run_mlp(&net, in, gd_relu), noise, GD_MEAN);
        gd_backward(loss);
        if (step % 500 == 0) printf("step %4d  loss %.3f\n", step, gd_item(loss));
        gd_optimizer_step(adam, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    gd_optimizer_swap_average(adam);
    make_points(&net, ctx, points, &seed);
    for (int i = 0; i < SAMPLES; i++) {
        double near = INFINITY, at[2];
        for (int k = 0; k < CURVE; k++) {
            spiral((k + 0.5) / CURVE, at);
            all[2 * k] = (float)at[0], all[2 * k + 1] = (float)at[1];
            near =
                fmin(near, hypot((double)points[2 * i] - at[0], (double)points[2 * i + 1] - at[1]));
        }
        off += near / SAMPLES;
        colour[CURVE + i] = 1;
    }
    printf("the points are %.3f from the spiral\n", off);
    const bool drawn = gallery_scatter("diffusion.svg", all, colour, CURVE + SAMPLES, 2, NULL, 0);
    return gallery_end(adam, params, ctx, drawn, off < 0.04);
}
