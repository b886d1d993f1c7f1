/* fit_line.c - a line fitted to five points by gradient descent. */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

int main(void)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(5), (float[]){-2, -1, 0, 1, 2});
    gd_tensor *y = gd_tensor_from(ctx, GD_FLOAT32, GD_SHAPE(5), (float[]){-5, -3, -1, 1, 3});
    gd_tensor_set_name(x, "x");
    gd_tensor_set_name(y, "y");
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(1), 0);
    gd_tensor *b = gd_params_add(params, "b", GD_SHAPE(1), 0);
    gd_params_finish(params);
    gd_optimizer *sgd = gd_sgd_create(params, NULL);
    for (int step = 0; step < 100; step++) {
        gd_tensor *error = gd_sub(gd_add(gd_mul(w, x), b), y);
        gd_tensor *loss = gd_mean_all(gd_mul(error, error));
        gd_backward(loss);
        if (step % 20 == 0) printf("step %2d  loss %.6f\n", step, gd_item(loss));
        gd_optimizer_step(sgd, 0.1);
        gd_params_clear_grads(params);
        gd_step_end(ctx);
    }
    double slope = gd_item(w), intercept = gd_item(b);
    printf("y = %.4f x + %.4f\n", slope, intercept);
    if (gd_error(ctx)) printf("%s\n", gd_error(ctx));
    gd_optimizer_free(sgd);
    gd_params_free(params);
    gd_context_free(ctx);
    return fabs(slope - 2) < 1e-3 && fabs(intercept + 1) < 1e-3 && fflush(stdout) == 0 ? 0 : 1;
}
