/* group.h - training on several devices: one process per device, all running the same program.
 *
 * A group is the processes of one run. Each has a rank, from 0; they meet in a folder.
 * Parameters that are replicated over a group start with rank 0's values, get the mean of all
 * ranks' gradients, and stay equal to the last bit:
 *
 *     gd_group_options o = gd_group_environment();   // as torchrun, mpirun or Slurm set it
 *     o.folder = "run";                              // which all ranks share
 *     gd_group *group = gd_group_create(ctx, &o);
 *     ... gd_params_create, gd_params_add, gd_params_finish, fill ...
 *     gd_params_replicate(params, group, NULL);      // before the optimizer is made
 *     gd_optimizer *adamw = gd_adamw_create(params, NULL);
 *     for (...) {
 *         ... this rank's part of the batch, forward ...
 *         gd_params_last_backward(params);           // complete gradients are sent at once
 *         gd_optimizer_backward(adamw, loss, 1);
 *         gd_optimizer_update(adamw, 1.0);           // by the mean gradient and its norm
 *         gd_params_clear_grads(params);
 *         gd_step_end(ctx);
 *     }
 *
 * Communication (ZeRO-1: Rajbhandari et al. 2020, arXiv:1910.02054). The block of gradients is
 * divided into buckets, ranges of whole parameters, in the order in which a backward completes
 * them. As soon as a bucket is complete its mean is computed by a reduce-scatter, while the
 * backward continues: rank r gets the r-th slice. A rank stores the optimizer's state of its own
 * slices only, 1/N of all, updates these, and an all-gather sends the values to all ranks. Sizes
 * need not be divisible: n elements are divided into N slices of n / N / 16 * 16, and the last
 * rank's slice also has the rest.
 *
 * Same bits. With the same number of ranks every run gives the same bits. On the CPU sums are taken
 * in the order of ranks. NCCL is restricted to one algorithm and one protocol, without NVLink
 * multicast, whose sums are not repeatable.
 *
 * Failures. If a rank has an error, ends, or is silent for longer than the timeout, every other
 * rank gets an error that names it and the call: "reduce_scatter: rank 2 is gone". Then the group
 * can only be freed.
 *
 * Every rank must make the same calls on a group in the same order. A NULL group is a group of one,
 * so a program needs no separate code for a single device.
 */
#ifndef GRADUS_GROUP_H
#define GRADUS_GROUP_H

#include "gradus/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The group ---------------------------------------------------------------------------- */

typedef struct gd_group gd_group;

typedef struct gd_group_options {
    int rank, ranks; /* 0 <= rank < ranks; ranks unset: 1 */
    /* among those of this host, to choose a GPU. The group does not choose it: the context's
     * device is the user's choice */
    int local_rank;
    const char *folder; /* in which the ranks meet; only gd_group_create reads it */
    double timeout;     /* seconds that a rank may be silent while another waits; unset: 600 */
    /* gd_group_environment: an error in the environment, in one sentence; else "" */
    char problem[256];
} gd_group_options;

/* The options from the environment: RANK, WORLD_SIZE and LOCAL_RANK (torchrun); else
 * OMPI_COMM_WORLD_* (Open MPI), PMI_* (MPICH, Intel MPI), or SLURM_* of a job step (srun). A group
 * of one if none are set. The folder is the caller's choice. */
GD_API gd_group_options gd_group_environment(void);

/* Returns when all ranks have met, or with an error after the timeout. The context's device
 * determines how they communicate: GPUs by NCCL (in a build that has it), on one host or several;
 * CPUs by memory that they share, on one host. NULL for the options is a group of one. NULL on
 * error.
 *
 * The folder must be there, on a file system of all ranks' hosts. Rank 0 leaves in it what the
 * others need, in files that only this user can read and write; whoever cannot write in the folder
 * cannot join. Files of earlier runs do not matter. A second run in the folder is refused as long
 * as the first one lives, where the file system has locks. The ranks leave the folder as they found
 * it, except after an error: then their small hidden files stay, until the next run. */
GD_API gd_group *gd_group_create(gd_context *ctx, const gd_group_options *options);

/* Leaves the group; ranks that still wait for this one get its error, if there is one. Free it
 * after the optimizers and replicated parameters. NULL is fine. */
GD_API void gd_group_free(gd_group *group);

GD_API int gd_group_rank(const gd_group *group);  /* NULL: 0 */
GD_API int gd_group_ranks(const gd_group *group); /* NULL: 1 */

/* ---- Collectives -------------------------------------------------------------------------- */

/* On the elements of packed tensors of the group's context: on a GPU they are queued like an op. */

/* Every rank gets the values of `root`. */
GD_API gd_status gd_group_broadcast(gd_group *group, gd_tensor *t, int root);

/* t becomes the sum over all ranks, of float32 or float64; with `mean`, divided by their number. */
GD_API gd_status gd_group_all_reduce(gd_group *group, gd_tensor *t, bool mean);

/* The same, but rank r gets only its slice; the rest of t is undefined. */
GD_API gd_status gd_group_reduce_scatter(gd_group *group, gd_tensor *t, bool mean);

/* Every rank gets all ranks' slices of t. */
GD_API gd_status gd_group_all_gather(gd_group *group, gd_tensor *t);

/* The slice of a rank in n elements: [*begin, *end). */
GD_API void gd_group_slice(const gd_group *group, int rank, int64_t n, int64_t *begin,
                           int64_t *end);

/* Of bytes in the host's memory: every rank sends `bytes` bytes and gets those of all, in the
 * order of ranks, in all [ranks * bytes]. With 0 bytes it is a barrier. Not inside the function
 * of a graph. */
GD_API gd_status gd_group_all_gather_bytes(gd_group *group, const void *mine, size_t bytes,
                                           void *all);

/* Copies rank 0's data[bytes] to all ranks. */
GD_API gd_status gd_group_broadcast_bytes(gd_group *group, void *data, size_t bytes);

/* After it all ranks have an error if any has one: its own, or that of the first rank which has
 * one, as "rank 2: ...". A rank with an error may call it, too. */
GD_API gd_status gd_group_agree(gd_group *group);

/* ---- Replicated parameters ---------------------------------------------------------------- */

typedef struct gd_replicate_options {
    int64_t bucket_bytes; /* of gradients, at least, except the last; unset: 25 MiB */
} gd_replicate_options;

/* Makes the parameters replicas of rank 0's, as DistributedDataParallel does in PyTorch: after
 * gd_params_finish and before an optimizer of them is created. Values become rank 0's; optimizers
 * and gd_clip_grad_norm use the means of the gradients over all ranks, norms are those of the
 * means, and reported losses are the means of the losses. After that gd_grad is valid only for this
 * rank's slices. NULL for the options: the defaults; with a NULL group nothing is sent.
 *
 * Buffers (gd_params_add_buffer) become rank 0's at the start, and again in each update, after the
 * forwards of its batches have changed them; so every step begins with those of rank 0, as with
 * broadcast_buffers=True in PyTorch, and the other ranks' changes are lost. */
GD_API gd_status gd_params_replicate(gd_params *params, gd_group *group,
                                     const gd_replicate_options *options);

/* Parameters and buffers become rank 0's again, for instance after rank 0 has loaded them. All
 * ranks call it, between updates. Parameters that are not replicated stay as they are. */
GD_API gd_status gd_params_broadcast(gd_params *params);

/* Says that the next backward is the last before the update: each bucket may be sent as soon as it
 * is complete. Otherwise all are sent with the update, with the same result. */
GD_API gd_status gd_params_last_backward(gd_params *params);

/* A slice of this rank: elements [begin, end) of the parameters' block (see gd_params_offset) have
 * their optimizer's state (gd_optimizer_state) at [at, at + end - begin). Parameters that are not
 * replicated are one slice, the whole block. */
typedef struct gd_params_slice {
    int64_t begin, end, at;
} gd_params_slice;

/* The slices in the order of `at`; false past the last. */
GD_API bool gd_params_slice_at(const gd_params *params, int64_t index, gd_params_slice *slice);

/* The offset of the parameter in the block. */
GD_API int64_t gd_params_offset(const gd_params *params, int index);

#ifdef __cplusplus
}
#endif
#endif
