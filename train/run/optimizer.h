/* optimizer.h - the optimizers of gradus-train (--optimizer). */
#ifndef GRADUS_TRAIN_OPTIMIZER_H
#define GRADUS_TRAIN_OPTIMIZER_H

#include "train_options.h"

/* The optimizer that the options ask for, with its average. NULL on error. */
gd_optimizer *optimizer_create(gd_params *params, const train_options *o);

/* How many numbers it keeps for each weight, without masters. */
int optimizer_states(const train_options *o);

/* Whether --beta2 means something to it. */
bool optimizer_has_beta2(const train_options *o);

#endif
