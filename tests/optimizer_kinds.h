/* optimizer_kinds.h - the optimizers of the tests, one a row with its options, and the rules that
 * they should follow, in double, one element at a time. */
#ifndef GRADUS_TEST_OPTIMIZER_KINDS_H
#define GRADUS_TEST_OPTIMIZER_KINDS_H

#include <check.h>
#include <math.h>

#include "gradus/gradus.h"

typedef enum optimizer_rule {
    OF_SGD,
    OF_ADAMW,
    OF_ADAM,
    OF_RMSPROP,
    OF_ADAGRAD,
    OF_LION,
    OF_MUON /* that of AdamW where there is no matrix */
} optimizer_rule;

typedef struct optimizer_row {
    optimizer_rule rule;
    bool defaults; /* it is made without options */
    union {
        gd_sgd_options sgd;
        gd_adamw_options adam;
        gd_rmsprop_options rmsprop;
        gd_adagrad_options adagrad;
        gd_lion_options lion;
        gd_muon_options muon;
    };
} optimizer_row;

/* The first OPTIMIZER_KINDS run in every test of optimizers. */
enum { OPTIMIZER_KINDS = 10, OPTIMIZER_ADAMW = 3, OPTIMIZER_LAZY = 11, OPTIMIZER_ROWS = 22 };

static const optimizer_row optimizer_rows[OPTIMIZER_ROWS] = {
    {OF_SGD, .defaults = true},
    {OF_SGD, .sgd = {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
    {OF_ADAMW, .defaults = true},
    {OF_ADAMW, .adam = {.beta2 = 0.99, .weight_decay = 0.1}},
    {OF_ADAM, .adam = {.weight_decay = 0.1}},
    {OF_RMSPROP, .defaults = true},
    {OF_RMSPROP, .rmsprop = {.momentum = 0.9, .weight_decay = 0.1, .centered = true, .eps = 1e-3}},
    {OF_ADAGRAD, .adagrad = {.rate_decay = 0.01, .initial = 0.1, .weight_decay = 0.1}},
    {OF_LION, .lion = {.weight_decay = 0.1}},
    {OF_MUON, .muon = {.weight_decay = 0.1, .adamw_rate = 0.5}},
    {OF_ADAGRAD, .adagrad = {.rate_decay = 0.01}},
    {OF_ADAMW, .adam = {.lazy = true, .weight_decay = 0.1}},
    {OF_ADAM, .adam = {.lazy = true, .weight_decay = 0.1}},
    {OF_SGD, .sgd = {.weight_decay = 0.1}},
    {OF_ADAGRAD, .adagrad = {.initial = 0.1, .eps = GD_ZERO, .weight_decay = 0.1}},
    {OF_SGD, .sgd = {.momentum = 0.9}},
    {OF_MUON, .muon = {.adamw = {.lazy = true}}},
    {OF_SGD, .sgd = {.momentum = 0.8, .dampening = 0.25}},
    {OF_SGD, .sgd = {.momentum = 0.9, .weight_decay = 1}},
    {OF_SGD, .sgd = {.momentum = 0.7, .nesterov = true}},
    {OF_ADAMW, .adam = {0.5, 0.6, 1e-3, 2, false}},
    {OF_LION, .lion = {.beta1 = 0.8, .beta2 = 0.25}},
};

static inline gd_optimizer *optimizer_of_kind(gd_params *params, int kind)
{
    const optimizer_row *row = &optimizer_rows[kind];
    switch (row->rule) {
    case OF_SGD:
        return gd_sgd_create(params, row->defaults ? NULL : &row->sgd);
    case OF_ADAMW:
        return gd_adamw_create(params, row->defaults ? NULL : &row->adam);
    case OF_ADAM:
        return gd_adam_create(params, &row->adam);
    case OF_RMSPROP:
        return gd_rmsprop_create(params, row->defaults ? NULL : &row->rmsprop);
    case OF_ADAGRAD:
        return gd_adagrad_create(params, &row->adagrad);
    case OF_LION:
        return gd_lion_create(params, &row->lion);
    default:
        return gd_muon_create(params, &row->muon);
    }
}

/* An element of a parameter, and of the states that the rule has. */
typedef struct optimized {
    double w, m, v, moved;
} optimized;

/* The options that are not those of the row's rule are not read. */
static inline void reference_update(const optimizer_row *row, optimized *e, double g, bool decays,
                                    double lr, int step)
{
    double beta1, beta2, d;
    switch (row->rule) {
    case OF_SGD:
        d = g + (decays ? row->sgd.weight_decay * e->w : 0);
        if (row->sgd.momentum != 0) {
            e->v = step == 0 ? d : row->sgd.momentum * e->v + (1 - row->sgd.dampening) * d;
            d = row->sgd.nesterov ? d + row->sgd.momentum * e->v : e->v;
        }
        e->w -= lr * d;
        break;
    case OF_ADAMW:
    case OF_ADAM:
        beta1 = gd_option(row->adam.beta1, 0.9), beta2 = gd_option(row->adam.beta2, 0.999);
        d = decays ? row->adam.weight_decay * e->w : 0;
        if (row->adam.lazy && g == 0) break;
        if (row->rule == OF_ADAM)
            g += d;
        else
            e->w -= lr * d;
        e->m = beta1 * e->m + (1 - beta1) * g;
        e->v = beta2 * e->v + (1 - beta2) * g * g;
        e->w -= lr * (e->m / (1 - pow(beta1, step + 1))) /
                (sqrt(e->v / (1 - pow(beta2, step + 1))) + gd_option(row->adam.eps, 1e-8));
        break;
    case OF_RMSPROP:
        g += decays ? row->rmsprop.weight_decay * e->w : 0;
        e->v = 0.99 * e->v + 0.01 * g * g;
        if (row->rmsprop.centered) e->m = 0.99 * e->m + 0.01 * g;
        d = g / (sqrt(e->v - e->m * e->m) + gd_option(row->rmsprop.eps, 1e-8));
        e->moved = row->rmsprop.momentum * e->moved + d;
        e->w -= lr * e->moved;
        break;
    case OF_ADAGRAD:
        g += decays ? row->adagrad.weight_decay * e->w : 0;
        e->v = (step ? e->v : row->adagrad.initial) + g * g;
        e->w -= lr / (1 + row->adagrad.rate_decay * step) * g /
                (sqrt(e->v) + gd_option(row->adagrad.eps, 1e-10));
        break;
    case OF_LION:
        beta1 = gd_option(row->lion.beta1, 0.9), beta2 = gd_option(row->lion.beta2, 0.99);
        d = beta1 * e->m + (1 - beta1) * g;
        e->m = beta2 * e->m + (1 - beta2) * g;
        e->w -= lr * ((d > 0) - (d < 0) + (decays ? row->lion.weight_decay * e->w : 0));
        break;
    default:
        ck_abort_msg("Muon's rule is not written here");
    }
}

#endif
