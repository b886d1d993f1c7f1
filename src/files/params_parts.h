/* params_parts.h - what a file has of a group of parameters and its optimizer: params_save.c writes
 * it, params_load.c reads it. */
#ifndef GRADUS_PARAMS_PARTS_H
#define GRADUS_PARAMS_PARTS_H

#include "files/safetensors.h"
#include "optim/optimizer.h"

/* Room for a state's name, which is at most 40 bytes, and a parameter's. */
enum { GD_PART_NAME_SIZE = sizeof GD_PART_PREFIX + 41 + GD_NAME_SIZE };

/* A tensor of a file: a parameter, a buffer, or a state of a parameter. */
typedef struct gd_part {
    char name[GD_PART_NAME_SIZE]; /* first, so that the name leads here */
    gd_tensor *tensor;            /* the parameter or buffer */
    int64_t index;                /* of the parameter; past them: of the buffer */
    int state;                    /* of the optimizer; -1: the tensor itself */
    /* Set by a load: */
    const gd_safetensors_entry *entry; /* NULL: stays as it is */
    void *host;                        /* its elements, in the dtype that they will have */
    size_t bytes;
} gd_part;

/* All of them, [*count + 1]; without `values` only states, of an optimizer that is NULL none. NULL,
 * with the error set, if there is no memory. Free with gd_parts_free. */
gd_part *gd_parts_create(const gd_params *params, const gd_optimizer *optimizer, bool values,
                         int64_t *count, const char *who);
void gd_parts_free(gd_context *ctx, gd_part *parts, int64_t count);

/* The name of its rule, as in the functions that make optimizers. */
const char *gd_optimizer_kind(const gd_optimizer *optimizer);

/* False, with the error set, unless the group, and the optimizer if there is one, can be saved and
 * loaded now. */
bool gd_parts_ready(const gd_params *params, const gd_optimizer *optimizer, const char *who);

#endif
