/* burgers.c - a network that is the solution of a differential equation: Burgers' equation,
 *
 *     u_t + u u_x = nu u_xx,   u(0, x) = -sin(pi x),   u(t, 0) = u(t, 1) = 0,
 *
 * half of a wave, which steepens at x = 0 (Raissi et al. 2019, "Physics-informed neural networks"). Nobody
 * tells it a value of u: the loss is what the equation leaves over, and has derivatives of u in it.
 * The known solution (Cole 1951, Hopf 1950) is the judge. The picture, burgers.png, is u with the time
 * to the right and x up, and beside it where it is wrong. */
#include "gallery.h"

enum { HIDDEN = 32, POINTS = 1024, STEPS = 4000, GRID = 64, TERMS = 400 };
static const double nu = 0.03, pi = 3.141592653589793;

/* u [n, 1] at points (t, x) [n, 2]: -sin(pi x) + t x (1 - x) f(t, x), which is right at the beginning and
 * at both ends, whatever the network f is. */
static gd_tensor *solution(const gallery_net *n, gd_tensor *points)
{
    gd_tensor *h = gd_run_mlp(&n->mlp, points, gd_tanh);
    gd_tensor *t = gd_narrow(points, 1, 0, 1), *x = gd_narrow(points, 1, 1, 1);
    gd_tensor *inside = gd_mul(x, gd_add_scalar(gd_neg(x), 1));
    return gd_sub(gd_mul(gd_mul(t, inside), h), gd_sin(gd_scale(x, pi)));
}

/* The mean of (u_t + u u_x - nu u_xx)^2. Both gradients may be differentiated again: the first is, for
 * u_xx, and both are by the weights. */
static gd_tensor *residual(const gallery_net *n, gd_tensor *points)
{
    const gd_gradients_options again = {.differentiable = true};
    gd_tensor *u = solution(n, points), *slope, *curvature, *u_x;
    gd_gradients(&u, 1, &again, &points, 1, &slope); /* [n, 2]: u_t and u_x */
    u_x = gd_narrow(slope, 1, 1, 1);
    gd_gradients(&u_x, 1, &again, &points, 1, &curvature); /* u_xt and u_xx */
    gd_tensor *left = gd_add(gd_narrow(slope, 1, 0, 1), gd_mul(u, u_x));
    gd_tensor *off = gd_sub(left, gd_scale(gd_narrow(curvature, 1, 1, 1), nu));
    return gd_mean_all(gd_mul(off, off));
}

/* u by the transformation of Cole and Hopf, u = -int sin(pi y) f(y) G dy / int f(y) G dy with y = x - z,
 * f(y) = exp(-cos(pi y) / (2 pi nu)) and G = exp(-z^2 / (4 nu t)), by the trapezoidal rule. */
static double known(double t, double x)
{
    double above = 0, below = 0;
    if (t == 0) return -sin(pi * x);
    for (int i = -TERMS; i <= TERMS; i++) {
        const double s = 7. * i / TERMS, y = x - s * sqrt(4 * nu * t);
        const double part = exp(-cos(pi * y) / (2 * pi * nu) - s * s);
        above -= sin(pi * y) * part;
        below += part;
    }
    return above / below;
}

int main(int argc, char **argv)
{
    static float at[GRID * GRID][2], u[2][GRID * GRID]; /* the network's, and what is wrong */
    double wrong = 0, size = 0;
    (void)argv;
    if (!gallery_arguments(argc, "")) return 2;
    gd_context *ctx = gd_context_create(&(gd_context_options){.seed = 1});
    const int64_t widths[] = {2, HIDDEN, HIDDEN, HIDDEN, 1};
    const gallery_net n = gallery_net_create(ctx, 4, widths, 5. / 3);
    gd_tensor *points = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(POINTS, 2));
    gd_tensor_set_requires_grad(points, true);
    gd_optimizer *adam = gd_adamw_create(n.params, NULL);
    const gd_schedule schedule = {.kind = GD_SCHEDULE_COSINE, .rate = 5e-3, .steps = STEPS};
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_random_uniform(points, 0, 1);
        gd_tensor *loss = residual(&n, points);
        gd_backward(loss);
        if (step % 500 == 0) printf("step %4d  loss %.2e\n", step, gd_item(loss));
        gd_optimizer_step(adam, gd_schedule_rate(&schedule, step));
        gd_params_clear_grads(n.params);
        gd_grad_clear(points);
        gd_step_end(ctx);
    }
    for (int i = 0; i < GRID * GRID; i++) {
        at[i][0] = (float)(i % GRID) / (GRID - 1);
        at[i][1] = 1 - (float)(i / GRID) / (GRID - 1);
    }
    gd_tensor *grid = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(GRID * GRID, 2), at);
    gd_no_grad_begin(ctx);
    gd_tensor_read(solution(&n, grid), u[0], sizeof u[0]);
    gd_no_grad_end(ctx);
    for (int i = 0; i < GRID * GRID; i++) {
        const double right = known((double)at[i][0], (double)at[i][1]);
        u[1][i] = (float)fabs((double)u[0][i] - right);
        wrong += pow((double)u[0][i] - right, 2);
        size += right * right;
    }
    const double error = sqrt(wrong / size);
    printf("the error is %.1e of u\n", error);
    const bool drawn = gallery_grid("burgers.png", u[0], 2, GRID, GRID, 2, 4);
    return gallery_end(adam, n.params, ctx, drawn, error < 2e-3);
}
