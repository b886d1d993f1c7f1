/* oscillator.c - a network learns the solution of a differential equation, y'' = -y with y(0) = 1 and
 * y'(0) = 0, from the equation alone: its loss contains the second derivative of the network. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

enum { POINTS = 64, HIDDEN = 32, STEPS = 4000 };

/* y = 1 + t^2 n(t) / 10, which has y(0) = 1 and y'(0) = 0 whatever the network n is. t [POINTS, 1] */
static gd_tensor *solution(const gd_mlp *net, gd_tensor *t)
{
    gd_tensor *h = gd_add_scalar(gd_scale(t, 1 / 3.14159265), -1); /* -1 to 1 */
    h = gd_run_mlp(net, h, gd_tanh);
    return gd_add_scalar(gd_mul(gd_mul(t, t), gd_scale(h, 0.1)), 1);
}

/* dy/dt at each point, as a function of t that can be differentiated again. Each y depends on its own t
 * alone, so the gradient of their sum is the slope of each. */
static gd_tensor *slope(gd_tensor *y, gd_tensor *t)
{
    const gd_gradients_options options = {.differentiable = true};
    gd_tensor *dy = NULL;
    gd_gradients(&y, 1, &options, &t, 1, &dy);
    return dy;
}

int main(void)
{
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1, .threads = 1});
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const gd_mlp net = gd_make_mlp(params, 0, 3, (int64_t[]){1, HIDDEN, HIDDEN, 1}, "");
    gd_params_finish(params);

    float times[POINTS];
    for (int i = 0; i < POINTS; i++) times[i] = 6.2831853F * (float)i / (POINTS - 1);
    gd_tensor *t = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(POINTS, 1), times);
    gd_tensor_set_requires_grad(t, true); /* not to be trained, but to be differentiated by */

    gd_optimizer *adam = gd_adam_create(params, NULL);
    const gd_schedule schedule = {
        .kind = GD_SCHEDULE_COSINE, .rate = 0.005, .final_rate = 0.0001, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *y = solution(&net, t), *residual = gd_add(slope(slope(y, t), t), y);
        gd_tensor *loss = gd_mean_all(gd_mul(residual, residual));
        gd_backward(loss);
        if (step % 500 == 0) printf("step %4d  loss %.6f\n", step, gd_item(loss));
        gd_optimizer_step(adam, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(params);
        gd_grad_clear(t);
        gd_step_end(ctx);
    }
    float y[POINTS] = {0};
    double worst = gd_tensor_read(solution(&net, t), y, sizeof y) ? 1 : 0;
    for (int i = 0; i < POINTS; i++) worst = fmax(worst, fabs(y[i] - cos(times[i])));
    printf("the solution is off by at most %.4f from cos(t)\n", worst);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    gd_optimizer_free(adam);
    gd_params_free(params);
    gd_context_free(ctx);
    return worst < 0.01 && fflush(stdout) == 0 ? 0 : 1;
}
