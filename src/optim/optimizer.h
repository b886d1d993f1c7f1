/* optimizer.h - internals of an optimizer: rules.c makes one of each kind, optim.c has its states,
 * average.c exchanges parameters with their average, update.c submits updates to the device and
 * reads their outcome, apply.c makes them, counts.c counts them for each parameter. */
#ifndef GRADUS_OPTIMIZER_H
#define GRADUS_OPTIMIZER_H

#include "optim/params.h"
#include "optim/services.h"

enum { GD_MAX_STATES = GD_RULE_STATES + 2 };

typedef struct gd_history {
    int64_t of;           /* of a parameter: its count */
    bool trained, frozen; /* of a count: the running update changes, leaves out parameters of it */
    int64_t next;         /* of a count: that of those left out, when they part */
} gd_history;

struct gd_optimizer {
    gd_context *ctx; /* of the params, which may be freed before the optimizer is */
    gd_params *params;
    int64_t number; /* among those of the params, from 1 on */
    gd_rule rule;   /* of all parameters that muon does not update */
    bool has_muon;  /* those with GD_MUON follow it */
    gd_muon_rule muon;
    gd_tensor *of_rule[GD_RULE_STATES]; /* NULL for a state that it does not have */
    gd_tensor *master, *average;        /* NULL: none */
    gd_tensor *state[GD_MAX_STATES];    /* all of these, one after the other */
    int states;
    double average_decay;
    bool averaged; /* the parameters are their average now (gd_optimizer_swap_average) */

    gd_update_state *update; /* on the device */
    gd_update_slot *slots;   /* GD_UPDATE_SLOTS, shared by host and device */
    gd_update_count *counts; /* on the device, [params_count + 1], of which `histories` are used */
    gd_history *history;     /* [params_count + 1] */
    int64_t params_count, histories;
    int64_t mark[GD_UPDATE_SLOTS];
    int64_t submitted, collected; /* updates, and their reports */
    double rate;
    int64_t rates_of_0; /* of updates one after the other */
    bool adds_loss;     /* gd_optimizer_backward was called, */
    bool added_loss;    /* since the last update, too */
    bool has_loss[GD_UPDATE_SLOTS];
    int64_t batches; /* made by the gd_batches that are saved with it, */
    bool saves_batches;
};

/* The device's part of a new optimizer; false, with the error set, if there is no memory. */
bool gd_update_create(gd_optimizer *optimizer);
void gd_update_free(gd_optimizer *optimizer);

/* The number of updates of all parameters together (gd_optimizer_steps). */
gd_status gd_update_set_made(gd_optimizer *optimizer, int64_t made);

/* The largest count that a double holds exactly: the bias correction is a power of it. */
#define GD_MAX_UPDATES ((int64_t)1 << 53)

/* The counts of a new optimizer; false, with the error set, if there is no memory. */
bool gd_counts_create(gd_optimizer *optimizer);
void gd_counts_free(gd_optimizer *optimizer);

/* Sets and gets how often each parameter, in the order added, was updated. */
gd_status gd_counts_set_all(gd_optimizer *optimizer, int64_t made);
gd_status gd_counts_set(gd_optimizer *optimizer, const int64_t *made);
gd_status gd_counts_get(const gd_optimizer *optimizer, int64_t *made);

/* Before an update: parameters that it leaves out get another count than those with it. */
gd_status gd_counts_part(gd_optimizer *optimizer);

/* Which counts from `first` on are of parameters that it changes (gd_update_rule). */
uint64_t gd_counts_trained(const gd_optimizer *optimizer, int64_t first);

/* An optimizer by this rule. `state_names` are the rule's, NULL for a state that it does
 * not have. */
gd_optimizer *gd_optimizer_create(gd_params *params, const gd_rule *rule,
                                  const char *const state_names[GD_RULE_STATES], const char *who);

/* Frees it, wherever that is called. */
void gd_optimizer_destroy(gd_optimizer *optimizer);

/* One more state, of the length of the others; false, with the error set, if there is no memory. */
bool gd_optimizer_add_state(gd_optimizer *optimizer, const char *name, gd_tensor **state,
                            const char *who);

/* Moves an average of the slice's parameters, of their masters if there are any, after their
 * update; without a state it becomes them. */
void gd_update_average(const gd_optimizer *optimizer, const gd_params_slice *slice, void *average,
                       const gd_update_state *state);

/* Updates all parameters with update->apply and its numbers. */
void gd_optimizer_apply(const gd_optimizer *optimizer);

/* False, with the error set, unless low <= value < high. */
bool gd_option_in_range(gd_context *ctx, const char *who, const char *option, double value,
                        double low, double high);

#endif
