/* formula.h - dropout, an element: the same function forward and, with dy for x, backward. */
#ifndef GRADUS_DROPOUT_FORMULA_H
#define GRADUS_DROPOUT_FORMULA_H

#include "formulas.h"

/* k: whether the element's random bits keep it; scale is 1 / (1 - p). */
GD_FUNCTION REAL dropout(REAL x, bool k, REAL scale)
{
    return k ? x * scale : 0; /* [dx] */
}

#endif
