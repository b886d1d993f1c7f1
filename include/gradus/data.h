/* data.h - batches of examples: which of them come next, in a new order each epoch.
 *
 * The data lies in tensors whose first axis counts the examples; a batch is their rows at an index:
 *
 *     gd_batches *batches = gd_batches_create(
 *         ctx, 60000, &(gd_batches_options){.size = 128, .seed = 1, .saved_with = adamw});
 *     while (gd_batches_made(batches) < 4 * gd_batches_per_epoch(batches) && !gd_error(ctx)) {
 *         gd_tensor *at = gd_batches_next(batches);
 *         gd_tensor *logits = forward(gd_index_select(images, 0, at));
 *         gd_backward(gd_cross_entropy(logits, gd_index_select(labels, 0, at)));
 *         gd_optimizer_step(adamw, rate);
 *         gd_params_clear_grads(params);
 *         gd_step_end(ctx);
 *     }
 *
 * Of a step that is a graph (graph.h), gd_batches_next is called between two runs; the function
 * reads the tensor that it returned, which is always the same one.
 *
 * Batch k is a function of the options and of k alone, on every device, for any number of threads
 * and ranks: a run that is resumed at batch k reads what it would have read.
 */
#ifndef GRADUS_DATA_H
#define GRADUS_DATA_H

#include "gradus/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_batches gd_batches;

typedef struct gd_batches_options {
    int64_t size;   /* examples of a batch, of all ranks together */
    uint64_t seed;  /* of the orders */
    bool in_order;  /* 0, 1, 2 ... in every epoch */
    bool drop_last; /* without the last batch of an epoch, if it has fewer examples */
    /* This process takes part `rank` of each batch, which has `ranks` equal parts; 0, 0:
     * all of it. */
    int rank, ranks;
    /* NULL, or its files (safetensors.h) contain how many batches were made, and loading one goes
     * on from there. One for an optimizer, to be freed before it is. */
    gd_optimizer *saved_with;
} gd_batches_options;

/* Of 1 to INT32_MAX examples. NULL on error. */
GD_API gd_batches *gd_batches_create(gd_context *ctx, int64_t examples,
                                     const gd_batches_options *options);
GD_API void gd_batches_free(gd_batches *batches); /* NULL is fine */

/* The examples of the next batch: GD_INT32 [size / ranks], fewer in a last batch. It belongs to
 * `batches`, and is overwritten by the next call. NULL on error. */
GD_API gd_tensor *gd_batches_next(gd_batches *batches);

/* How many were made since the beginning, with what was loaded; 0 for NULL. An epoch ends where
 * this is a multiple of gd_batches_per_epoch. */
GD_API int64_t gd_batches_made(const gd_batches *batches);
GD_API int64_t gd_batches_per_epoch(const gd_batches *batches);
GD_API gd_status gd_batches_seek(gd_batches *batches, int64_t made);

/* Index i, 0 <= i < n, in a random order of 0 ... n - 1 that depends on `key`; a Feistel network
 * (Luby and Rackoff 1988, "How to construct pseudorandom permutations from pseudorandom
 * functions"), so that any index can be computed alone. */
GD_API int64_t gd_shuffled(int64_t i, int64_t n, uint64_t key);

/* The key of an epoch's order. */
GD_API uint64_t gd_shuffle_key(uint64_t seed, int64_t epoch);

#ifdef __cplusplus
}
#endif
#endif
