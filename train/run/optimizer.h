/* optimizer.h - the optimizers of gradus-train (--optimizer). */
#ifndef GRADUS_TRAIN_OPTIMIZER_H
#define GRADUS_TRAIN_OPTIMIZER_H

#include "train_options.h"

/* The optimizer that the options ask for, with its average. NULL on error. */
gd_optimizer *optimizer_create(gd_params *params, const train_options *o);

/* What is known of each, by its optimizer_kind. */
typedef struct optimizer_row {
    const char *title;                 /* in the report */
    double lr, weight_decay, momentum; /* unless they are given */
    bool has_beta2;
    int states; /* how many numbers it keeps for each weight, but for those of optimizer_states */
} optimizer_row;
extern const optimizer_row optimizer_rows[];

/* The same with those of --momentum and --average; without masters. */
int optimizer_states(const train_options *o);

#endif
