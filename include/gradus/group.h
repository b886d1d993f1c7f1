/* group.h - training on several devices: one process for each, all running the same program.
 *
 * A group is the processes of one run. Each has a rank, from 0; the others connect to rank 0.
 * Parameters that are shared over a group start as rank 0's, get the mean of all ranks' gradients,
 * and stay equal to the last bit:
 *
 *     gd_group_options o = gd_group_environment();   // as torchrun, mpirun or Slurm set it
 *     gd_group *group = gd_group_create(ctx, &o);
 *     ... gd_params_create, gd_params_add, gd_params_finish, fill ...
 *     gd_params_share(params, group, NULL);          // before the optimizer is made
 *     gd_optimizer *adamw = gd_adamw_create(params, NULL);
 *     for (...) {
 *         ... this rank's part of the batch, forward ...
 *         gd_params_last_backward(params);           // what is complete is sent at once
 *         gd_optimizer_backward(adamw, loss, 1);
 *         gd_optimizer_update(adamw, 1.0);           // by the mean gradient and its norm
 *         gd_params_clear_grads(params);
 *         gd_step_end(ctx);
 *     }
 *
 * What is sent (ZeRO-1: Rajbhandari et al. 2020, arXiv:1910.02054). The block of gradients is cut
 * into buckets, stretches of whole parameters, in the order in which a backward completes them. As
 * soon as a bucket is complete its mean is taken by a reduce-scatter, beside the backward that goes
 * on: rank r gets the r-th slice. It keeps the optimizer's state of its slices alone, a 1/N of all,
 * updates these, and an all-gather brings everyone the values. No size has to divide another: n
 * elements are cut into N slices of n / N / 16 * 16, and the last rank's has the rest besides.
 *
 * Same bits. With the same number of ranks every run gives the same bits. On the CPU sums are taken
 * in the order of ranks. NCCL is held to one algorithm and one protocol, without NVLink multicast,
 * whose sums are not repeatable.
 *
 * When something dies. A rank that has an error, ends, or is silent for longer than the timeout
 * sets the error of every other, one sentence that names the rank and the call: "reduce_scatter:
 * rank 2 is gone". After that the group can only be freed.
 *
 * Every rank must make the same calls on a group in the same order. A NULL group is a group of one:
 * all calls accept it, so a program needs no separate path for a single device.
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
    int rank, ranks;   /* 0 <= rank < ranks; ranks unset: 1 */
    int local_rank;    /* among those of this host: which of its GPUs is meant. The group does not
                        * choose it: the context's device is the user's */
    char host[256];    /* of rank 0; unset: 127.0.0.1 */
    int port;          /* where rank 0 listens; unset: 29500 */
    double timeout;    /* seconds that a rank may be silent while another waits; unset: 600 */
    int listener;      /* rank 0: a socket that listens already; unset: host and port */
    char problem[256]; /* gd_group_environment: what cannot be used, in one sentence; else "" */
} gd_group_options;

/* What the environment says: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (torchrun);
 * else OMPI_COMM_WORLD_* (Open MPI), PMI_* (MPICH, Intel MPI), or SLURM_* of a job step (srun), where
 * MASTER_ADDR and MASTER_PORT are taken too, if they are set. A group of one where it says nothing. */
GD_API gd_group_options gd_group_environment(void);

/* Connects all ranks; returns when all are there, or with an error after the timeout. The context's
 * device decides what the ranks talk through: TCP for the CPU, NCCL for GPUs (in a build that has
 * it). Whoever can reach the port can join, so the network must be trusted. NULL for the
 * options is a group of one. NULL on error. */
GD_API gd_group *gd_group_create(gd_context *ctx, const gd_group_options *options);

/* Leaves the group; others who still wait for this rank get its error, if one stands. After the
 * optimizers and parameters that are shared, before the context. NULL is fine. */
GD_API void gd_group_free(gd_group *group);

GD_API int gd_group_rank(const gd_group *group);  /* NULL: 0 */
GD_API int gd_group_ranks(const gd_group *group); /* NULL: 1 */

/* ---- Collectives -------------------------------------------------------------------------- */

/* On the elements of packed tensors of the group's context: on a GPU they are queued like an op. */

/* Every rank gets what `root` has. */
GD_API gd_status gd_group_broadcast(gd_group *group, gd_tensor *t, int root);

/* t becomes the sum over all ranks, of float32 or float64; with `mean` that is divided by their
 * number. */
GD_API gd_status gd_group_all_reduce(gd_group *group, gd_tensor *t, bool mean);

/* The same, but rank r gets its slice alone; the rest of t holds anything. */
GD_API gd_status gd_group_reduce_scatter(gd_group *group, gd_tensor *t, bool mean);

/* Each rank's slice of t goes to all. */
GD_API gd_status gd_group_all_gather(gd_group *group, gd_tensor *t);

/* The slice of n elements that a rank has: [*begin, *end). */
GD_API void gd_group_slice(const gd_group *group, int rank, int64_t n, int64_t *begin,
                           int64_t *end);

/* Between hosts, without the device: every rank gives `bytes` bytes and gets those of all, in the
 * order of ranks, in all [ranks * bytes]. Of no bytes, it is a barrier. */
GD_API gd_status gd_group_gather(gd_group *group, const void *mine, size_t bytes, void *all);

/* Everybody's data[bytes] become those of rank 0. */
GD_API gd_status gd_group_tell(gd_group *group, void *data, size_t bytes);

/* ---- Shared parameters -------------------------------------------------------------------- */

typedef struct gd_share_options {
    int64_t bucket_bytes; /* of gradients, at least, but for the last; unset: 25 MiB */
} gd_share_options;

/* Shares a group of parameters, after gd_params_finish and before an optimizer is made of it. Values
 * become rank 0's; gradients that optimizers and gd_clip_grad_norm take are the means over all
 * ranks, norms are those of the means, and reported losses are the means of the losses. Once they
 * are taken, what gd_grad shows is of no use but for this rank's slices. NULL for the options: the
 * defaults; a NULL group shares nothing. */
GD_API gd_status gd_params_share(gd_params *params, gd_group *group,
                                 const gd_share_options *options);

/* The next backward is the last before the update: each bucket may go as soon as it is complete.
 * Where this is not said, all go with the update, with the same result. */
GD_API gd_status gd_params_last_backward(gd_params *params);

/* A slice of this rank's: elements [begin, end) of the block in which the parameters lie (as
 * gd_params_offset says where) have their optimizer's state (gd_optimizer_state) at [at, at + end -
 * begin). Where nothing is shared there is one, the whole block. */
typedef struct gd_params_slice {
    int64_t begin, end, at;
} gd_params_slice;

/* The slices in the order of `at`; false past the last. */
GD_API bool gd_params_slice_at(const gd_params *params, int64_t index, gd_params_slice *slice);

/* Where the parameter begins in the block. */
GD_API int64_t gd_params_offset(const gd_params *params, int index);

#ifdef __cplusplus
}
#endif
#endif
