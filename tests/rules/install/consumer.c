/* The slope of y = 3 x, found by gradient descent, with nothing but an installed gradus. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

int main(void)
{
    const double xs[] = {-2, -1, 1, 2}, ys[] = {-6, -3, 3, 6};
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(4), xs);
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(4), ys);

    gd_params *params = gd_params_create(ctx, GD_FLOAT64);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(1), 0);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);

    for (int step = 0; step < 40; step++) {
        gd_tensor *error = gd_sub(gd_mul(w, x), y);
        gd_backward(gd_mean(gd_mul(error, error), NULL, 0, false));
        gd_optimizer_step(sgd, 0.1);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }

    double slope = gd_item(w);
    printf("gradus %s: slope %.6f, %s\n", gd_version(), slope,
           gd_error(ctx) ? gd_error(ctx) : "ok");
    bool failed = gd_error(ctx) || !(fabs(slope - 3) < 1e-6);
    gd_optimizer_free(sgd);
    gd_params_free(params);
    gd_context_free(ctx);
    return failed;
}
