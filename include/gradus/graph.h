/* graph.h - a whole step as one launch.
 *
 * A training step on a GPU consists of some hundred kernels, and the host takes longer to launch
 * the small ones than they run. But every step launches the same kernels on the same memory. So the
 * launches of one step are captured in a CUDA graph, and a later step is one call that replays it:
 *
 *     static gd_status step(void *user)         // one step; it is called to be captured
 *     {
 *         learner *l = user;
 *         gd_tensor *loss = gd_cross_entropy(forward(l, l->x), l->targets);
 *         gd_optimizer_backward(l->adamw, loss, 1);
 *         gd_optimizer_update(l->adamw, 1.0);
 *         return gd_params_clear_grads(l->params);
 *     }
 *     ...
 *     gd_graph *graph = gd_graph_create(ctx, NULL);
 *     for (int i = 0; i < steps && !gd_error(ctx); i++) {
 *         gd_tensor_write(l.x, ...);            // the next batch, to the same tensors
 *         gd_optimizer_set_rate(l.adamw, gd_schedule_rate(&schedule, i));
 *         gd_graph_run(graph, step, &l);
 *         while (gd_optimizer_report(l.adamw, false, &report)) ...  // of steps that are done
 *     }
 *
 * Nothing in this loop waits for the device. On the CPU, and if nothing can be captured, the same
 * code just calls the function.
 *
 * What may change from step to step: the values in the tensors, the learning rate, the loss scale,
 * the number of updates, random numbers (each run draws the next ones), and whether an update is
 * made. All of these are on the device. Anything else that the function reads on the host, such as
 * a dropout probability or max_norm, keeps the value it had when the function was last called.
 */
#ifndef GRADUS_GRAPH_H
#define GRADUS_GRAPH_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_graph gd_graph;

typedef struct gd_graph_options {
    bool off; /* call the function in every run; its results are the same to the last bit */
} gd_graph_options;

/* NULL for the defaults; NULL on error. Do not free it from its function; NULL is
 * fine. */
GD_API gd_graph *gd_graph_create(gd_context *ctx, const gd_graph_options *options);
GD_API void gd_graph_free(gd_graph *graph);

/* The function of a graph. It must not wait for the device (no gd_item, no gd_tensor_read or
 * _write, no gd_clip_grad_norm), and must create tensors only by ops. Anything else is refused on
 * every device, so that code that runs on the CPU runs on a GPU. */
typedef gd_status (*gd_graph_function)(void *user);

/* Runs function(user), and ends the step (gd_step_end). On a GPU the first run calls the function;
 * the second calls it to be captured; later ones replay the capture. There is one capture for each
 * pair of function and user, and for each state of your tensors: their memory, shapes and strides,
 * whether they require a gradient and have one. If any of these is new, such as the shape of a
 * batch, the function is captured again; the graph keeps the eight captures last used. */
GD_API gd_status gd_graph_run(gd_graph *graph, gd_graph_function function, void *user);

/* How many runs were replayed, and how many captures were made, so far. */
typedef struct gd_graph_counts {
    int64_t replays, captures;
} gd_graph_counts;
GD_API gd_graph_counts gd_graph_count(const gd_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
