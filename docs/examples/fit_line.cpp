// fit_line.cpp - the line of fit_line.c from C++, where an owner frees what it holds.
#include <gradus/gradus.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

template <auto FREE>
struct freer {
    template <class T>
    void operator()(T *object) const
    {
        FREE(object);
    }
};

int main()
{
    const std::unique_ptr<gd_context, freer<gd_context_free>> ctx(gd_context_create(nullptr));
    const std::vector<float> xs = {-2, -1, 0, 1, 2}, ys = {-5, -3, -1, 1, 3};
    gd_tensor *x = gd_tensor_from(ctx.get(), GD_FLOAT32, GD_SHAPE(5), xs.data());
    gd_tensor *y = gd_tensor_from(ctx.get(), GD_FLOAT32, GD_SHAPE(5), ys.data());
    const std::unique_ptr<gd_params, freer<gd_params_free>> params(
        gd_params_create(ctx.get(), GD_FLOAT32));
    gd_tensor *w = gd_params_add(params.get(), "w", GD_SHAPE(1), 0);
    gd_tensor *b = gd_params_add(params.get(), "b", GD_SHAPE(1), 0);
    gd_params_finish(params.get());
    const std::unique_ptr<gd_optimizer, freer<gd_optimizer_free>> sgd(
        gd_sgd_create(params.get(), nullptr));
    for (int step = 0; step < 100; step++) {
        gd_tensor *error = gd_sub(gd_add(gd_mul(w, x), b), y);
        gd_backward(gd_mean_all(gd_mul(error, error)));
        gd_optimizer_step(sgd.get(), 0.1);
        gd_params_clear_grads(params.get());
        gd_step_end(ctx.get());
    }
    const double slope = gd_item(w), intercept = gd_item(b);
    std::printf("y = %.4f x + %.4f\n", slope, intercept);
    if (gd_error(ctx.get())) std::printf("%s\n", gd_error(ctx.get()));
    const bool good = std::fabs(slope - 2) < 1e-3 && std::fabs(intercept + 1) < 1e-3;
    return good && std::fflush(stdout) == 0 ? 0 : 1;
}
