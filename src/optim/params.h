/* params.h - internals of a group of parameters: params.c creates it, block.c and buffers.c give it
 * memory, grads.c has its gradients, apply.c updates it. */
#ifndef GRADUS_PARAMS_H
#define GRADUS_PARAMS_H

#include "optim/replica.h"

/* In a file, names of an optimizer's states and numbers begin with it (files/params_save.c). */
#define GD_PART_PREFIX "optimizer."

typedef struct gd_param {
    gd_tensor *tensor; /* its header; its gradient's header is tensor->grad */
    unsigned flags;
    double rate, weight_decay; /* factors of the optimizer's (gd_params_set_factors) */
} gd_param;

typedef struct gd_initial {
    gd_tensor *tensor;
    gd_init init;
} gd_initial;

struct gd_params {
    gd_context *ctx;
    gd_dtype dtype;
    gd_param *list; /* in the order added */
    int64_t count, capacity;
    int64_t *order; /* [count]: the parameters in the order of the block; after gd_params_finish */
    gd_tensor *values, *grads; /* the blocks [block]; NULL before gd_params_finish */
    gd_initial *initial;       /* in the order said (initial.c) */
    int64_t initials, initial_capacity;
    gd_tensor **buffer; /* in the order added (buffers.c) */
    int64_t buffers, buffer_capacity;
    gd_tensor *buffer_block; /* the memory of all of them; NULL before gd_params_finish */
    gd_tensor
        *committed;     /* what it held after the last update; NULL before there is an optimizer */
    uint64_t spent;     /* the version of the gradients when an update had used them; 0: none has */
    bool had_gradients; /* at some time */
    int64_t optimizers,
        updated_by[2];   /* made for it; the numbers of the two that updated it last */
    gd_replica *replica; /* with other processes; NULL: with none */
};

/* The factor of the optimizer's weight decay. */
static inline double gd_param_decay(const gd_param *p)
{
    return p->flags & GD_DECAY ? p->weight_decay : 0;
}

/* Whether one update can treat both in the same way. */
static inline bool gd_param_alike(const gd_param *a, const gd_param *b)
{
    return a->rate == b->rate && gd_param_decay(a) == gd_param_decay(b);
}

/* The dtype of gradients, of the optimizer's state, and of what it computes. */
static inline gd_dtype gd_params_state_dtype(const gd_params *params)
{
    return params->dtype == GD_FLOAT64 ? GD_FLOAT64 : GD_FLOAT32;
}

enum { GD_BLOCK_ALIGNMENT = 64 }; /* bytes */

/* Elements of a parameter or buffer in a block, including the gap after it. */
static inline int64_t gd_params_room(const gd_tensor *t)
{
    const int64_t unit = GD_BLOCK_ALIGNMENT / (int64_t)gd_dtype_size(t->dtype);
    return (t->count + unit - 1) / unit * unit;
}

/* A one-dimensional tensor of zeros that belongs to a group or an optimizer. */
gd_tensor *gd_params_block(gd_context *ctx, gd_dtype dtype, int64_t block,
                           gd_memory_class memory_class, const char *who);

/* Element `start` of a block; NULL for a block that is not there. */
static inline void *gd_block_at(const gd_tensor *block, int64_t start)
{
    if (!block) return NULL;
    return (char *)gd_tensor_data(block) + (size_t)start * gd_dtype_size(block->dtype);
}

/* Gives all buffers their memory, zeroed; undone by gd_buffers_undo, also after an error. */
gd_status gd_buffers_finish(gd_params *params);
void gd_buffers_undo(gd_params *params);
void gd_buffers_free(gd_params *params);

/* Gives the parameters and buffers their initial values; and forgets those of tensors that the
 * group does not have any more. */
gd_status gd_params_begin(gd_params *params);
void gd_initials_truncate(gd_params *params);

/* Makes later updates commit the buffers, or restore what was committed last. */
gd_status gd_buffers_commit(gd_params *params);

/* True if the group can be used: there is no error, and it has memory. */
bool gd_params_ready(const gd_params *params, const char *who);

/* What a call returns that does nothing with the group, which may be NULL. */
static inline gd_status gd_params_status(const gd_params *params)
{
    return params ? params->ctx->status : GD_ERROR_ARGUMENT;
}

/* A parameter that no gradient reached in this step may still hold that of an earlier one, since
 * clearing writes nothing; this sets those of the parameters in elements [begin, end) to zero
 * before the block is read as a whole. */
void gd_params_zero_missing_grads(gd_params *params, int64_t begin, int64_t end);

/* The block of gradients, those missing included, is about to be read as a whole: where it is
 * replicated, this rank's slices of the means. */
gd_status gd_params_complete_grads(gd_params *params);

#endif
