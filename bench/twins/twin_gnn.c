/* twin_gnn.c - two graph convolutions: a node's mean of its neighbours, for the classes of the
 * nodes that have one (Kipf & Welling 2017). */
#include "twin.h"

enum { NODES = 500, EDGES = 3000, FEATURES = 64, HIDDEN = 64, CLASSES = 5, STEPS = 100 };

/* The mean of x [N, C] over the sources of each node's edges; ends is [E, C]. */
static gd_tensor *mean_of_neighbours(gd_tensor *x, gd_tensor *sources, gd_tensor *ends,
                                     gd_tensor *degree)
{
    gd_tensor *sum = gd_scatter_add(gd_scale(x, 0), 0, ends, gd_index_select(x, 0, sources));
    return gd_div(sum, degree);
}

int main(void)
{
    gd_context *ctx = twin_context();
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer first = gd_make_linear(p, 0, FEATURES, HIDDEN, "first");
    const gd_linear_layer second = gd_make_linear(p, 0, HIDDEN, CLASSES, "second");
    gd_optimizer *adamw = twin_adamw(p);
    gd_tensor *x = twin_floats(ctx, 1, 1, GD_SHAPE(NODES, FEATURES));
    gd_tensor *y = twin_ints(ctx, 2, CLASSES, GD_SHAPE(NODES));
    gd_tensor *sources = twin_ints(ctx, 3, NODES, GD_SHAPE(EDGES));
    gd_tensor *ends = twin_ints(ctx, 4, NODES, GD_SHAPE(EDGES, 1));
    gd_tensor *one = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(NODES, 1));
    gd_tensor *degree = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(NODES, 1));
    gd_tensor_fill(one, 1);
    gd_tensor_copy(degree, gd_scatter_add(one, 0, ends,
                                          gd_expand(gd_narrow(one, 0, 0, 1), GD_SHAPE(EDGES, 1))));
    gd_tensor *wide = gd_tensor_create(ctx, GD_INT32, GD_SHAPE(EDGES, HIDDEN));
    gd_tensor_copy(wide, gd_expand(ends, GD_SHAPE(EDGES, HIDDEN)));
    for (int step = 0; step < STEPS && !gd_error(ctx); step++) {
        gd_tensor *h = gd_relu(gd_run_linear(&first, mean_of_neighbours(x, sources, wide, degree)));
        h = gd_run_linear(&second, mean_of_neighbours(h, sources, wide, degree));
        gd_tensor *loss = gd_cross_entropy(gd_narrow(h, 0, 0, 100), gd_narrow(y, 0, 0, 100));
        twin_update(adamw, 0.01, p, loss);
    }
    return twin_end(p, adamw);
}
