/* formula.h - swiglu, y = silu(z) u, element by element. z is the gate, and s its sigmoid. */
#ifndef GRADUS_SWIGLU_FORMULA_H
#define GRADUS_SWIGLU_FORMULA_H

#include "elementwise/functions.h"

GD_FUNCTION REAL swiglu(REAL z, REAL u)
{
    return silu(z) * u;
}

/* silu_slope is s (1 + z (1 - s)). */
GD_FUNCTION REAL swiglu_dgate(REAL dy, REAL z, REAL u)
{
    return dy * u * silu_slope(z); /* [dgate] */
}

GD_FUNCTION REAL swiglu_dup(REAL dy, REAL z)
{
    return dy * silu(z); /* [dup] */
}

#endif
