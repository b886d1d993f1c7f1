/* formula.h - rope, a pair (a, b): rotated by an angle with the cosine c and the sine s, which is
 * negated in the backward. */
#ifndef GRADUS_ROPE_FORMULA_H
#define GRADUS_ROPE_FORMULA_H

#include "formulas.h"

GD_FUNCTION REAL rope_first(REAL a, REAL b, REAL c, REAL s)
{
    return a * c - b * s; /* [dx a] */
}

GD_FUNCTION REAL rope_second(REAL a, REAL b, REAL c, REAL s)
{
    return a * s + b * c; /* [dx b] */
}

#endif
