/* services.h - the kernels that update parameters (kernels/optim), by the conventions of
 * core/services.h, and what they share with optimizers. */
#ifndef GRADUS_OPTIM_SERVICES_H
#define GRADUS_OPTIM_SERVICES_H

#include "core/services.h"
#include "gradus/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The state of an optimizer on its device, which its kernels read and write: the host is several
 * steps ahead, and the arguments in a replayed graph cannot change. */
typedef struct gd_update_state {
    /* Between updates. */
    int64_t decided; /* updates submitted and decided: the number of the next one */
    int64_t made;    /* of these, made */
    gd_loss_scale scale;
    bool halted; /* one was not finite: none is made until the host resumes */
    /* The current step's: */
    double loss;    /* the sum of fraction * loss so far */
    double squares; /* sum of squares of all gradients */
    /* What was decided, for the kernels that update. */
    bool apply;
    double factor; /* of each gradient: clipping, and one over the loss scale */
    double rate;   /* the learning rate */
} gd_update_state;

/* The updates of parameters that were always updated together, on the device: those that were
 * frozen for a while have had fewer than others. */
typedef struct gd_update_count {
    int64_t made;                        /* of them, with the one that was decided: AdamW's t */
    double rate_by_bias1, root_by_bias2; /* AdamW: rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} gd_update_count;

enum { GD_UPDATE_COUNTS = 64 }; /* of one call of gd_decide_service */

/* The host's input to an update, and the device's report. Update n uses slot n mod GD_UPDATE_SLOTS
 * of memory that both see, and the host does not submit it before the last update of that slot is
 * done. */
typedef struct gd_update_slot {
    double rate;             /* the host's */
    gd_update_report report; /* the device's */
} gd_update_slot;

enum { GD_UPDATE_SLOTS = 8 };

/* What the host decides of an update. */
typedef struct gd_update_rule {
    bool measured;   /* state->squares is measured, for clipping and for refusing an update */
    double max_norm; /* <= 0: not clipped */
    double beta1, beta2;
    gd_update_count *counts; /* on the device */
    uint64_t trained;        /* bit i: counts[i] is of parameters that it updates */
} gd_update_rule;

typedef enum gd_rule_kind {
    GD_RULE_SGD,     /* state: v, or NULL without momentum */
    GD_RULE_ADAMW,   /* m, v */
    GD_RULE_ADAM,    /* m, v */
    GD_RULE_RMSPROP, /* v; velocity, or NULL without momentum; mean, or NULL: not centered */
    GD_RULE_ADAGRAD, /* v */
    GD_RULE_LION,    /* m */
    GD_RULE_AVERAGE, /* w is a moving average of g (the master, if any) with beta1; not clipped */
    GD_RULE_KINDS
} gd_rule_kind;

/* How an update changes parameters; optim.h has the formulas. A rule does not use all of it. */
typedef struct gd_rule {
    gd_rule_kind kind;
    bool lazy;   /* elements whose gradient is 0 stay as they are */
    double rate; /* multiplies the learning rate */
    double weight_decay, momentum, dampening, beta1, beta2, eps;
    double rate_decay; /* Adagrad */
    bool nesterov;
} gd_rule;

/* The matrices that Muon updates. */
typedef struct gd_muon_rule {
    double rate; /* multiplies the learning rate */
    double weight_decay, momentum;
    bool nesterov, match_adamw;
} gd_muon_rule;

/* Parameters in 16 bits, GD_BFLOAT16 or GD_FLOAT16; NULL: there are none. An update sets them to
 * their rounded masters. Before it, a master that does not round to its parameter takes the
 * parameter's value, which has been written by others. */
typedef struct gd_rounded {
    void *data;
    gd_dtype dtype;
} gd_rounded;

enum { GD_RULE_STATES = 3 };

/* n parameters w with their gradients g and states; all are of one dtype, float32 or float64. Where
 * ops read the parameters in 16 bits, w is their master in float32. */
typedef struct gd_update_arrays {
    void *w, *state[GD_RULE_STATES];
    const void *g;
    const gd_update_count *count; /* of the average: NULL */
    gd_dtype dtype;
    gd_rounded rounded;
    int64_t n;
    const uint8_t *touched; /* of g, for a rule that does nothing where g is 0; otherwise NULL */
} gd_update_arrays;

/* state->loss += fraction * *loss; *dloss, of the same real dtype, = fraction * scale. */
typedef void gd_add_loss_service(gd_update_state *state, void *dloss, const void *loss,
                                 gd_dtype dtype, double fraction, gd_context *ctx);

/* Decides whether the next update is made (optim.h has the conditions) and reports to its slot;
 * without slots it was decided by an earlier call. If so, it is counted. */
typedef void gd_decide_service(gd_update_state *state, gd_update_slot *slots,
                               const gd_update_rule *rule, gd_context *ctx);

/* Applies the decision to these parameters. Without a state an average becomes g. */
typedef void gd_optimize_service(const gd_update_arrays *arrays, const gd_rule *rule,
                                 const gd_update_state *state, gd_context *ctx);

/* The same by Muon, for one matrix w [rows, columns]; state[0] is its momentum. Called within a
 * frame, which gives it temporary memory. */
typedef void gd_muon_service(const gd_update_arrays *arrays, int64_t rows, int64_t columns,
                             const gd_muon_rule *rule, const gd_update_state *state,
                             gd_context *ctx);

/* Commits buffers (committed = current) if the update was applied, else rolls them back (current =
 * committed); both have `bytes`, a multiple of 64. */
typedef void gd_settle_service(void *current, void *committed, int64_t bytes,
                               const gd_update_state *state, gd_context *ctx);

/* Each device's, in its gd_services; as those of GD_SERVICES. */
#define GD_UPDATE_SERVICES(X) X(add_loss) X(decide) X(optimize) X(muon) X(settle)
typedef struct gd_update_services {
    GD_UPDATE_SERVICES(GD_SERVICE_FIELD)
} gd_update_services;
GD_UPDATE_SERVICES(GD_SERVICE_FUNCTIONS)

#ifdef __cplusplus
}
#endif
#endif
