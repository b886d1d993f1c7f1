/* optimizer.h - internals of an optimizer: optim.c creates it and updates the parameters, update.c
 * submits updates to the device and reads their outcome. */
#ifndef GRADUS_OPTIMIZER_H
#define GRADUS_OPTIMIZER_H

#include "optim/params.h"

enum { GD_MAX_STATES = 3 };

typedef enum gd_optimizer_kind { GD_OPTIMIZER_SGD, GD_OPTIMIZER_ADAMW } gd_optimizer_kind;

struct gd_optimizer {
    gd_context *ctx; /* of the params, which may be freed before the optimizer is */
    gd_params *params;
    gd_optimizer_kind kind;
    gd_sgd_options sgd;
    gd_adamw_options adamw;
    /* AdamW: m, v; SGD with momentum: v; then the master, if any */
    gd_tensor *state[GD_MAX_STATES];
    gd_tensor *master; /* one of them, or NULL */

    gd_update_state *update; /* on the device */
    gd_update_slot *slots;   /* GD_UPDATE_SLOTS, shared by host and device */
    int64_t mark[GD_UPDATE_SLOTS];
    int64_t submitted, collected; /* updates, and their reports */
    double rate;
};

/* The device's part of a new optimizer; false, with the error set, if there is no memory. */
bool gd_update_create(gd_optimizer *optimizer);
void gd_update_free(gd_optimizer *optimizer);

/* Updates all parameters with update->apply and its numbers. */
void gd_optimizer_apply(const gd_optimizer *optimizer);

/* False, with the error set, unless low <= value < high. */
bool gd_option_in_range(gd_context *ctx, const char *who, const char *option, double value,
                        double low, double high);

#endif
