/* share.h - parameters shared over a group of processes (gradus/group.h). share.c keeps the
 * buckets; backward.c reports complete gradients to it, and update.c and optim.c use it to work on
 * this rank's slices instead of the whole block. */
#ifndef GRADUS_SHARE_H
#define GRADUS_SHARE_H

#include "optim/params.h"

typedef struct gd_bucket {
    gd_share *share;
    int64_t begin, end;  /* elements of the block; whole parameters */
    gd_params_slice own; /* this rank's slice */
    int waits;           /* gradients of the last backward that are missing */
    bool sent;
} gd_bucket;

struct gd_share {
    gd_params *params;
    gd_group *group;
    gd_bucket *bucket;   /* in the order in which they are sent */
    int64_t count, next; /* next: the first bucket that was not sent */
    int64_t owned;       /* elements of all own slices */
    bool last;           /* buckets are sent as soon as they are complete */
    gd_tensor *squares;  /* [count + 1] float64: a sum for each own slice, and room for one more */
};

void gd_share_free(gd_share *share);

/* Marks all buckets as not sent. */
void gd_share_clear(gd_share *share);

/* Called by a backward that has completed a gradient in the bucket. */
void gd_share_arrived(gd_bucket *bucket);

/* Sends the remaining buckets, and makes the context wait for all of them: afterwards this rank's
 * slices of the gradients hold the means over all ranks. */
gd_status gd_share_reduce(gd_share *share);

/* Sets *sum, in device memory, to the sum of squares of this rank's slices. */
void gd_share_squares(gd_share *share, double *sum);

/* Replaces n doubles in device memory by their sums over all ranks. */
gd_status gd_share_sum(gd_share *share, double *values, int64_t n);

/* All-gathers the values of a bucket. With the last bucket the context waits for all of them. */
gd_status gd_share_values(gd_share *share, int64_t index);

#endif
