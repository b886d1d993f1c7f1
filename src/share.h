/* share.h - parameters that a group of processes shares (gradus/group.h). share.c keeps the books;
 * backward.c tells it of gradients, update.c and optim.c ask it where they would take all of a block. */
#ifndef GRADUS_SHARE_H
#define GRADUS_SHARE_H

#include "params.h"

typedef struct gd_bucket {
    gd_share *share;
    int64_t begin, end;  /* elements of the block: whole parameters */
    gd_params_slice own; /* this rank's part */
    int waits;           /* for so many gradients of the last backward */
    bool sent;
} gd_bucket;

struct gd_share {
    gd_params *params;
    gd_group *group;
    gd_bucket *bucket;   /* in the order in which they go */
    int64_t count, next; /* next: the first that was not sent */
    int64_t owned;       /* elements of all own slices */
    bool last;           /* buckets go as soon as they are complete */
    gd_tensor *squares;  /* [count + 1] float64: of each own slice, and room for a sum */
};

void gd_share_free(gd_share *share);

/* Forgets that gradients were sent. */
void gd_share_clear(gd_share *share);

/* The running backward has completed a gradient in the bucket. */
void gd_share_arrived(gd_bucket *bucket);

/* Sends what was not sent, and has the context wait for all: this rank's slices of the gradients are
 * now the means. */
gd_status gd_share_reduce(gd_share *share);

/* *sum, device memory, becomes the sum of squares of the own slices. */
void gd_share_squares(gd_share *share, double *sum);

/* n doubles of device memory become their sums over all ranks. */
gd_status gd_share_sum(gd_share *share, double *values, int64_t n);

/* Sends this rank's values of a bucket, and gets the others'. The context waits for those of the last
 * for all. */
gd_status gd_share_values(gd_share *share, int64_t index);

#endif
