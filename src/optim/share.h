/* share.h - parameters shared by several processes: what optimizers need to know of it. Everything
 * else is in group/share.c, which fills this in (gd_params_share). */
#ifndef GRADUS_OPTIM_SHARE_H
#define GRADUS_OPTIM_SHARE_H

#include "core/core.h"

typedef struct gd_share gd_share;

typedef struct gd_share_calls {
    void (*free)(gd_share *share);
    /* The next backward overwrites the gradients. */
    void (*clear)(gd_share *share);
    /* This rank's slice of bucket `index`; false: there is no such bucket. */
    bool (*slice_at)(const gd_share *share, int64_t index, gd_params_slice *slice);
    /* Sends the remaining buckets, and makes the context wait for all of them: afterwards this
     * rank's slices of the gradients hold the means over all ranks. */
    gd_status (*reduce)(gd_share *share);
    /* Sets *sum, in device memory, to the sum of squares of this rank's slices. */
    void (*squares)(gd_share *share, double *sum);
    /* Replaces n doubles in device memory by their sums over all ranks. */
    gd_status (*sum)(gd_share *share, double *values, int64_t n);
    /* All-gathers the values of a bucket. With the last bucket the context waits for all of
     * them. */
    gd_status (*gather)(gd_share *share, int64_t index);
} gd_share_calls;

struct gd_share {
    const gd_share_calls *calls;
    int ranks;
    int64_t owned; /* elements of all own slices */
    bool begun;    /* some buckets were sent: they hold means already */
    double *norm;  /* device memory for a sum of squares */
};

#endif
