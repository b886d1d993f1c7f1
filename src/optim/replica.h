/* replica.h - parameters replicated over several processes: what optimizers need to know of
 * it. Everything else is in group/replicate.c, which fills this in (gd_params_replicate). */
#ifndef GRADUS_OPTIM_REPLICA_H
#define GRADUS_OPTIM_REPLICA_H

#include "core/core.h"

typedef struct gd_replica gd_replica;

typedef struct gd_replica_calls {
    void (*free)(gd_replica *replica);
    /* The next backward overwrites the gradients. */
    void (*clear)(gd_replica *replica);
    /* This rank's slice of bucket `index`; false: there is no such bucket. */
    bool (*slice_at)(const gd_replica *replica, int64_t index, gd_params_slice *slice);
    /* Sends the remaining buckets, and makes the context wait for all of them: afterwards this
     * rank's slices of the gradients hold the means over all ranks. */
    gd_status (*reduce)(gd_replica *replica);
    /* Sets *sum, in device memory, to the sum of squares of this rank's slices. */
    void (*squares)(gd_replica *replica, double *sum);
    /* Replaces n doubles in device memory by their sums over all ranks. */
    gd_status (*sum)(gd_replica *replica, double *values, int64_t n);
    /* All-gathers a bucket of a block over all parameters, such as their values. With the last
     * bucket the context waits for all of them. */
    gd_status (*gather)(gd_replica *replica, int64_t index, const gd_tensor *block);
    /* The buffers become rank 0's. */
    gd_status (*send_buffers)(gd_replica *replica);
    /* The bucket that has a parameter, and its first element in the block; -1: it is empty. */
    int64_t (*bucket_of)(const gd_replica *replica, const gd_tensor *parameter, int64_t *begin);
    /* Puts all ranks' slices of a bucket of `state` together in `whole`, unless a rank has an
     * error: then all have one. */
    gd_status (*collect)(gd_replica *replica, int64_t index, const gd_tensor *state,
                         const gd_tensor *whole);
    /* If any rank has an error, all have one. */
    gd_status (*agree)(gd_replica *replica);
} gd_replica_calls;

struct gd_replica {
    const gd_replica_calls *calls;
    int rank, ranks;
    int64_t owned;   /* elements of all own slices */
    int64_t largest; /* of a bucket */
    bool begun;      /* some buckets were sent: they hold means already */
    double *norm;    /* device memory for a sum of squares */
};

#endif
