/* optimizer.h - an optimizer from inside: optim.c makes it and moves the parameters, update.c asks
 * its device for updates and reads what came of them. */
#ifndef GRADUS_OPTIMIZER_H
#define GRADUS_OPTIMIZER_H

#include "params.h"

enum { GD_MAX_STATES = 3 };

typedef enum gd_optimizer_kind { GD_OPTIMIZER_SGD, GD_OPTIMIZER_ADAMW } gd_optimizer_kind;

struct gd_optimizer {
    gd_context *ctx; /* of the params, which may be freed before the optimizer is */
    gd_params *params;
    gd_optimizer_kind kind;
    gd_sgd_options sgd;
    gd_adamw_options adamw;
    gd_tensor
        *state[GD_MAX_STATES]; /* AdamW: m, v; SGD with momentum: v; then the master, if any */
    gd_tensor *master;         /* one of them, or NULL */

    gd_update_state *update; /* on the device */
    gd_update_slot *slots;   /* GD_UPDATE_SLOTS, that host and device see */
    int64_t mark[GD_UPDATE_SLOTS];
    int64_t asked, told; /* updates asked for, and reports given */
    double rate;
};

/* The device's part of a new optimizer; false, and the error set, if there is no memory. */
bool gd_update_create(gd_optimizer *optimizer);
void gd_update_free(gd_optimizer *optimizer);

/* Has all parameters updated as update->apply and its numbers say. */
void gd_optimizer_apply(const gd_optimizer *optimizer);

/* False, and the error set, unless low <= value < high. */
bool gd_option_in_range(gd_context *ctx, const char *who, const char *option, double value,
                        double low, double high);

#endif
