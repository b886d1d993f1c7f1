/* functions.h - the functions that loss.def calls, written once for all devices, as those of the
 * elementwise functions are. */
#ifndef GRADUS_LOSS_FUNCTIONS_H
#define GRADUS_LOSS_FUNCTIONS_H

#include "elementwise/functions.h"

/* A loss of the sum, and the part of its gradient that each element gets. */
GD_FUNCTION ACC loss_divided(ACC sum, ACC divisor)
{
    return sum / divisor; /* [reduction] */
}

/* The slope of |e|: 0 at 0 and at NaN. */
GD_FUNCTION REAL step(REAL e)
{
    return e > 0 ? 1 : e < 0 ? -1 : 0;
}

GD_FUNCTION REAL huber(REAL e, REAL p)
{
    REAL size = GD_MATH(fabs)(e);
    return size < p ? e / 2 * e : p * (size - p / 2);
}

/* The same over p, in which no product overflows or vanishes where the loss does not. */
GD_FUNCTION REAL smooth_l1(REAL e, REAL p)
{
    REAL size = GD_MATH(fabs)(e);
    return size < p ? size / p * size / 2 : size - p / 2;
}

/* The probability that the target stands for. */
GD_FUNCTION REAL kl_share(REAL t, REAL log_target)
{
    return log_target != 0 ? GD_MATH(exp)(t) : t;
}

/* t ln(t) is 0 at 0, its limit, and so is e^t t at -inf. */
GD_FUNCTION REAL kl_div(REAL x, REAL t, REAL log_target)
{
    REAL log_t = log_target != 0 ? t : GD_MATH(log)(t);
    return t == (log_target != 0 ? -(REAL)INFINITY : 0) ? 0 : kl_share(t, log_target) * (log_t - x);
}

GD_FUNCTION REAL kl_log_target_slope(REAL x, REAL t)
{
    return t == -(REAL)INFINITY ? 0 : GD_MATH(exp)(t) * (t - x + 1); /* [kl_div target] */
}

GD_FUNCTION REAL kl_target_slope(REAL x, REAL t, REAL log_target)
{
    return log_target != 0 ? kl_log_target_slope(x, t) : GD_MATH(log)(t) - x + 1;
}

#endif
