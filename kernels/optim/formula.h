/* formula.h - the updates of the optimizers, an element: w is the weight, g its gradient, m and v
 * are its states. `fresh` is 1 - beta, and r and s are the numbers of README.md. */
#ifndef GRADUS_OPTIM_FORMULA_H
#define GRADUS_OPTIM_FORMULA_H

#include "formulas.h"

/* The gradient with the weight decay of all but AdamW and Lion; without one w does not matter, even
 * if it is infinite. */
GD_FUNCTION REAL decayed(REAL g, REAL decay, REAL w)
{
    return decay != 0 ? g + decay * w : g; /* [decay] */
}

/* A moving average: SGD's velocity, m, and the mean of a centered RMSprop. */
GD_FUNCTION REAL averaged(REAL m, REAL g, REAL beta, REAL fresh)
{
    return beta * m + fresh * g; /* [m] */
}

GD_FUNCTION REAL averaged_square(REAL v, REAL g, REAL beta, REAL fresh)
{
    return beta * v + fresh * g * g; /* [v] */
}

/* By what SGD moves, times the learning rate; v is the velocity after this update. */
GD_FUNCTION REAL sgd_step(REAL g, REAL v, REAL momentum, bool nesterov)
{
    return nesterov ? g + momentum * v : v; /* [sgd] */
}

/* `keep` is 1 - lr decay. */
GD_FUNCTION REAL adamw_weight(REAL w, REAL m, REAL v, REAL keep, REAL r, REAL s, REAL eps)
{
    return keep * w - r * m / (s * GD_MATH(sqrt)(v) + eps); /* [adamw] */
}

/* Rounding may make it negative; then 0 is meant. */
GD_FUNCTION REAL rmsprop_variance(REAL v, REAL m)
{
    return v - m * m; /* [centered] */
}

GD_FUNCTION REAL rmsprop_step(REAL g, REAL v, REAL eps)
{
    return g / (GD_MATH(sqrt)(v) + eps); /* [rmsprop] */
}

GD_FUNCTION REAL adagrad_weight(REAL w, REAL g, REAL v, REAL lr, REAL eps)
{
    return w - lr * g / (GD_MATH(sqrt)(v) + eps); /* [adagrad] */
}

/* sign is that of m after this g, NaN of NaN. */
GD_FUNCTION REAL lion_weight(REAL w, REAL sign, REAL keep, REAL lr)
{
    return keep * w - lr * sign; /* [lion] */
}

GD_FUNCTION REAL average_weight(REAL w, REAL g, REAL fresh)
{
    return w + fresh * (g - w); /* [average] */
}

#endif
