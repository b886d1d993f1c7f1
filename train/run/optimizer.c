/* optimizer.c - see optimizer.h. */
#include "optimizer.h"

const optimizer_row optimizer_rows[] = {[OPTIMIZER_ADAMW] = {"AdamW", 0.002, 0.1, 0, true, 2},
                                        [OPTIMIZER_ADAM] = {"Adam", 0.002, 0, 0, true, 2},
                                        [OPTIMIZER_SGD] = {"SGD", 0.3, 0, 0.9, false, 0},
                                        [OPTIMIZER_RMSPROP] = {"RMSprop", 0.002, 0, 0, true, 1},
                                        [OPTIMIZER_ADAGRAD] = {"Adagrad", 0.02, 0, 0, false, 1},
                                        [OPTIMIZER_LION] = {"Lion", 0.0007, 0.3, 0, true, 1},
                                        [OPTIMIZER_MUON] = {"Muon", 0.01, 0.1, 0.95, true, 2}};

static gd_optimizer *create(gd_params *params, const train_options *o)
{
    const gd_adamw_options adam = {
        .beta1 = 0.9, .beta2 = gd_literal(o->beta2), .weight_decay = o->weight_decay};
    switch (o->optimizer) {
    case OPTIMIZER_ADAMW:
        return gd_adamw_create(params, &adam);
    case OPTIMIZER_ADAM:
        return gd_adam_create(params, &adam);
    case OPTIMIZER_SGD:
        return gd_sgd_create(params, &(gd_sgd_options){.momentum = gd_literal(o->momentum),
                                                       .weight_decay = o->weight_decay});
    case OPTIMIZER_RMSPROP:
        return gd_rmsprop_create(params, &(gd_rmsprop_options){.alpha = gd_literal(o->beta2),
                                                               .momentum = gd_literal(o->momentum),
                                                               .weight_decay = o->weight_decay});
    case OPTIMIZER_ADAGRAD:
        return gd_adagrad_create(params, &(gd_adagrad_options){.weight_decay = o->weight_decay});
    case OPTIMIZER_LION:
        return gd_lion_create(params, &(gd_lion_options){.beta2 = gd_literal(o->beta2),
                                                         .weight_decay = o->weight_decay});
    case OPTIMIZER_MUON:
        return gd_muon_create(params, &(gd_muon_options){.momentum = gd_literal(o->momentum),
                                                         .weight_decay = o->weight_decay,
                                                         .match_adamw = true,
                                                         .adamw = adam});
    }
    return NULL;
}

gd_optimizer *optimizer_create(gd_params *params, const train_options *o)
{
    gd_optimizer *optimizer = create(params, o);
    if (optimizer && o->average > 0) gd_optimizer_average(optimizer, o->average);
    return optimizer;
}

int optimizer_states(const train_options *o)
{
    const bool momentum = o->momentum > 0 && o->optimizer != OPTIMIZER_MUON; /* which has one */
    return optimizer_rows[o->optimizer].states + momentum + (o->average > 0);
}
