/* walk.h - iterating over several strided arrays of one shape together.
 *
 * A place in the index space [n0, n1, ...] has its own offset in each array:
 *
 *     offset[k] = sum over d of index[d] * stride[k][d]
 *
 * A walk maintains these offsets while it moves from place to place like an odometer: the last
 * index counts up, and at its end it returns to 0 and carries. An operand that is repeated along an
 * axis (broadcast) has stride 0 there; broadcasting needs nothing else.
 *
 * Kernels keep the last dimension out of the walk (gd_walk_take_last) and run it in a plain loop.
 * Since dimensions that are contiguous in every array are merged first, that loop is as long as
 * possible: for packed operands of one shape it is the whole array.
 */
#ifndef GRADUS_WALK_H
#define GRADUS_WALK_H

#include "gradus/tensor.h"

#define GD_WALK_OPERANDS 4

typedef struct gd_walk {
    int ndim, operands;
    int64_t shape[GD_MAX_DIMS];
    int64_t stride[GD_WALK_OPERANDS][GD_MAX_DIMS];
    int64_t index[GD_MAX_DIMS];
    int64_t offset[GD_WALK_OPERANDS];
} gd_walk;

/* A walk through the index space `shape`, at its first place, with no operand yet. */
static inline gd_walk gd_walk_over(int ndim, const int64_t *shape)
{
    gd_walk walk = {.ndim = ndim};
    for (int d = 0; d < ndim; d++) walk.shape[d] = shape[d];
    return walk;
}

static inline gd_walk gd_walk_like(const gd_tensor *t)
{
    return gd_walk_over(gd_tensor_ndim(t), gd_tensor_shape(t));
}

/* Adds an operand of a shape that broadcasts to the walk's. */
static inline void gd_walk_add(gd_walk *walk, int ndim, const int64_t *shape,
                               const int64_t *strides)
{
    int64_t *stride = walk->stride[walk->operands++];
    int missing = walk->ndim - ndim;
    for (int d = 0; d < walk->ndim; d++) {
        bool repeated = d < missing || (shape[d - missing] == 1 && walk->shape[d] != 1);
        stride[d] = repeated ? 0 : strides[d - missing];
    }
}

static inline void gd_walk_add_tensor(gd_walk *walk, const gd_tensor *t)
{
    gd_walk_add(walk, gd_tensor_ndim(t), gd_tensor_shape(t), gd_tensor_strides(t));
}

/* The number of places. */
static inline int64_t gd_walk_count(const gd_walk *walk)
{
    int64_t count = 1;
    for (int d = 0; d < walk->ndim; d++) count *= walk->shape[d];
    return count;
}

/* Whether dimension d is one step of dimension d - 1 in every operand. */
static inline bool gd_walk_mergeable(const gd_walk *walk, int d)
{
    for (int k = 0; k < walk->operands; k++)
        if (walk->stride[k][d - 1] != walk->stride[k][d] * walk->shape[d]) return false;
    return true;
}

static inline void gd_walk_remove(gd_walk *walk, int d)
{
    walk->ndim--;
    for (int e = d; e < walk->ndim; e++) {
        walk->shape[e] = walk->shape[e + 1];
        for (int k = 0; k < walk->operands; k++) walk->stride[k][e] = walk->stride[k][e + 1];
    }
}

/* Drops dimensions of size 1 and merges those that can be. */
static inline void gd_walk_merge(gd_walk *walk)
{
    for (int d = walk->ndim - 1; d >= 0; d--)
        if (walk->shape[d] == 1) gd_walk_remove(walk, d);
    for (int d = walk->ndim - 1; d > 0; d--) {
        if (!gd_walk_mergeable(walk, d)) continue;
        walk->shape[d] *= walk->shape[d - 1];
        gd_walk_remove(walk, d - 1);
    }
}

/* Takes the last dimension out of the walk: returns its size, and stores each operand's stride
 * along it in `strides` [operands]. A walk without dimensions has a last dimension of 1. */
static inline int64_t gd_walk_take_last(gd_walk *walk, int64_t *strides)
{
    if (walk->ndim == 0) {
        for (int k = 0; k < walk->operands; k++) strides[k] = 1;
        return 1;
    }
    walk->ndim--;
    for (int k = 0; k < walk->operands; k++) strides[k] = walk->stride[k][walk->ndim];
    return walk->shape[walk->ndim];
}

/* Moves to a place, counted in the order of the walk. */
static inline void gd_walk_seek(gd_walk *walk, int64_t place)
{
    for (int k = 0; k < walk->operands; k++) walk->offset[k] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        int64_t size = walk->shape[d] ? walk->shape[d] : 1;
        walk->index[d] = place % size;
        place /= size;
        for (int k = 0; k < walk->operands; k++)
            walk->offset[k] += walk->index[d] * walk->stride[k][d];
    }
}

/* Moves to the next place; after the last comes the first. */
static inline void gd_walk_next(gd_walk *walk)
{
    for (int d = walk->ndim - 1; d >= 0; d--) {
        bool full = ++walk->index[d] == walk->shape[d];
        for (int k = 0; k < walk->operands; k++)
            walk->offset[k] +=
                full ? -(walk->shape[d] - 1) * walk->stride[k][d] : walk->stride[k][d];
        if (!full) return;
        walk->index[d] = 0;
    }
}

#endif
