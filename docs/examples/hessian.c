/* hessian.c - the derivative of a derivative: of one number, and of cross entropy by its logits, whose
 * Hessian is that of softmax: H v = p v - p (p . v). */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

/* x^3 at 2, and its three derivatives: 8, 12, 12, 6. */
static bool one_number(gd_context *ctx)
{
    static const double right[] = {8, 12, 12, 6};
    gd_tensor *x = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1), (double[]){2});
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *f = gd_mul(gd_mul(x, x), x);
    bool good = true;
    for (int order = 0; order < 4; order++) {
        printf("derivative %d of x^3 at 2: %g\n", order, gd_item(f));
        good = good && gd_item(f) == right[order];
        if (order == 3) break; /* 6 does not depend on x any more */
        const gd_gradients_options again = {.differentiable = true};
        gd_tensor *slope;
        gd_gradients(&f, 1, &again, &x, 1, &slope);
        f = slope;
    }
    gd_step_end(ctx);
    gd_tensor_free(x);
    return good;
}

static bool cross_entropy(gd_context *ctx)
{
    const double logits[] = {2, 1, -1}, direction[] = {1, 0, 0.5};
    double p[3], Hv[3] = {0}, along = 0, worst = 0;
    gd_tensor *z = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1, 3), logits);
    gd_tensor *v = gd_tensor_from(ctx, GD_FLOAT64, GD_SHAPE(1, 3), direction);
    gd_tensor *target = gd_tensor_from(ctx, GD_INT32, GD_SHAPE(1), (int32_t[]){0}), *product;
    gd_tensor_set_requires_grad(z, true);
    gd_hvp(gd_cross_entropy(z, target), &z, &v, 1, NULL, &product);
    gd_tensor_read_f64(product, Hv, 3);
    gd_tensor_read_f64(gd_softmax(z, 1), p, 3);
    for (int i = 0; i < 3; i++) along += p[i] * direction[i];
    for (int i = 0; i < 3; i++) {
        const double right = p[i] * (direction[i] - along);
        printf("p %.4f  H v %.4f  p (v - p . v) %.4f\n", p[i], Hv[i], right);
        worst = fmax(worst, fabs(Hv[i] - right));
    }
    gd_step_end(ctx);
    return worst < 1e-15;
}

int main(void)
{
    gd_context *ctx = gd_context_create(NULL);
    const bool good = one_number(ctx) && cross_entropy(ctx) && !gd_error(ctx);
    if (gd_error(ctx)) puts(gd_error(ctx));
    gd_context_free(ctx);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
