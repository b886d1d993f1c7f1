/* formula.h - cross_entropy and nll_loss, an element of a row of logits: m is the row's maximum and
 * l the logarithm of the sum of exponentials after m is subtracted. */
#ifndef GRADUS_CROSS_ENTROPY_FORMULA_H
#define GRADUS_CROSS_ENTROPY_FORMULA_H

#include "formulas.h"

/* g is the gradient that arrives at the row. */
GD_FUNCTION REAL cross_entropy_dx(REAL x, REAL m, REAL l, REAL g)
{
    return GD_EXP(x - m - l) * g; /* [dx] */
}

/* In the target's column, after the line above. */
GD_FUNCTION REAL cross_entropy_dx_target(REAL dx, REAL g)
{
    return dx - g; /* [dx target] */
}

/* ---- Shares: w is the weight of a class, part its share without it ------------------------- */

/* on = 1 - eps, off = eps / V */
GD_FUNCTION ACC cross_entropy_part(ACC q, ACC on, ACC off)
{
    return on * q + off;
}

/* Call only if part != 0: inf * 0 would be NaN. */
GD_FUNCTION ACC cross_entropy_share(ACC w, ACC part)
{
    return w * part; /* [soft c] */
}

/* C p, where C is the sum of a row's c; without any a logit of -inf adds nothing. */
GD_FUNCTION ACC cross_entropy_pull(ACC C, ACC log_p)
{
    return C != 0 ? C * exp(log_p) : 0;
}

GD_FUNCTION ACC cross_entropy_soft_dx(ACC g, ACC pull, ACC c)
{
    return g * (pull - c); /* [soft dx] */
}

/* w is on times the weight of the class. */
GD_FUNCTION ACC cross_entropy_soft_dq(ACC g, ACC w, ACC log_p)
{
    return w != 0 ? g * w * -log_p : 0; /* [soft dq] */
}

/* A term of the sum over rows. */
GD_FUNCTION ACC cross_entropy_soft_dw(ACC g, ACC part, ACC log_p)
{
    return part == 0 ? 0 : g * part * -log_p; /* [soft dw] */
}

/* ---- nll_loss ------------------------------------------------------------------------------ */

GD_FUNCTION REAL nll_loss_dx(REAL w, REAL g)
{
    return -w * g; /* [nll_loss] */
}

#endif
