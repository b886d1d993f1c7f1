// The headers and the library from C++.
#include <gradus/gradus.h>

#include <cstdio>
#include <vector>

int main()
{
    gd_context *ctx = gd_context_create(nullptr);
    gd_tensor *x = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(2, 3));
    gd_tensor_fill(x, 2.0);
    gd_tensor_set_requires_grad(x, true);
    gd_tensor *loss = gd_sum_all(gd_mul(x, x));
    gd_backward(loss);
    std::vector<double> dx(6);
    gd_tensor_read_f64(gd_grad(x), dx.data(), 6);
    int rows = 1; // a dimension may have any type of whole numbers, and is evaluated once
    const gd_tensor *shaped = gd_reshape(x, GD_SHAPE(++rows, dx.size() / 2));
    gd_tensor *cubes = gd_sum_all(gd_mul(gd_mul(x, x), x)), *slope = nullptr, *curvature = nullptr;
    gd_gradients_options again{};
    again.differentiable = true;
    gd_gradients(&cubes, 1, &again, &x, 1, &slope); // 3 x^2
    slope = gd_sum_all(slope);
    gd_gradients(&slope, 1, nullptr, &x, 1, &curvature); // 6 x
    std::vector<double> second(6);
    gd_tensor_read_f64(curvature, second.data(), 6);
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const std::int64_t widths[] = {3, 4, 2};
    const gd_mlp mlp = gd_make_mlp(params, 0, 2, widths, "mlp");
    const gd_norm_layer norm = gd_make_norm(params, GD_LAYER_NORM, 0, 2, "norm");
    gd_params_finish(params);
    const gd_tensor *y = gd_run_norm(&norm, gd_run_mlp(&mlp, x, gd_relu), false);
    const bool failed = gd_tensor_dim(y, 1) != 2 || rows != 2 || gd_tensor_dim(shaped, 1) != 3 ||
                        gd_error(ctx) != nullptr || gd_item(loss) != 24.0 || dx[5] != 4.0 ||
                        second[5] != 12.0;
    std::printf("%s\n", failed ? "wrong" : "ok");
    gd_params_free(params);
    gd_context_free(ctx);
    return failed;
}
