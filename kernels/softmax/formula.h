/* formula.h - softmax and log_softmax, an element of a row: m is the row's maximum, S the sum of
 * its exponentials after m is subtracted. */
#ifndef GRADUS_SOFTMAX_FORMULA_H
#define GRADUS_SOFTMAX_FORMULA_H

#include "formulas.h"

/* s is 1 / S; of log_softmax log(S). */
GD_FUNCTION REAL softmax(REAL x, REAL m, REAL s, bool log_of)
{
    return log_of ? (x - m) - s : GD_EXP(x - m) * s;
}

/* A term of the sum s in the backward. */
GD_FUNCTION ACC softmax_term(ACC y, ACC dy, bool log_of)
{
    return dy * (log_of ? 1 : y); /* [s] */
}

GD_FUNCTION REAL softmax_dx(REAL y, REAL dy, REAL s)
{
    return y * (dy - s); /* [softmax] */
}

GD_FUNCTION REAL log_softmax_dx(REAL y, REAL dy, REAL s)
{
    return dy - GD_EXP(y) * s; /* [log_softmax] */
}

#endif
