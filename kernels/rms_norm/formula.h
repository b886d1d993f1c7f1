/* formula.h - rms_norm, an element k of a row of n. w is the factor of xhat, offset + weight; of
 * add_rms_norm x is the sum. */
#ifndef GRADUS_RMS_NORM_FORMULA_H
#define GRADUS_RMS_NORM_FORMULA_H

#include "formulas.h"

/* squares is the sum of x^2 over the row. */
GD_FUNCTION ACC rms_norm_rstd(ACC squares, ACC n, ACC eps)
{
    return 1 / sqrt(squares / n + eps); /* [rstd] */
}

GD_FUNCTION REAL rms_norm_xhat(REAL x, REAL rstd)
{
    return x * rstd; /* [xhat] */
}

GD_FUNCTION REAL rms_norm_y(REAL xhat, REAL w, REAL b)
{
    return xhat * w + b; /* [y] */
}

/* The gradient by xhat. */
GD_FUNCTION REAL rms_norm_h(REAL dy, REAL w)
{
    return dy * w; /* [h] */
}

/* A term of the sum dot, and from it m. */
GD_FUNCTION REAL rms_norm_term(REAL h, REAL xhat)
{
    return h * xhat; /* [dot] */
}

GD_FUNCTION ACC rms_norm_m(ACC dot, ACC n)
{
    return dot / n; /* [m] */
}

/* With u = dy rstd and c = rstd^2 m; or with c = rstd m, and xhat in place of x. */
GD_FUNCTION REAL rms_norm_dx(REAL u, REAL w, REAL c, REAL x)
{
    return u * w - c * x; /* [dx] */
}

/* A row's term of dw: dy xhat, or u x. */
GD_FUNCTION REAL rms_norm_dw(REAL dy, REAL xhat)
{
    return dy * xhat; /* [dw] */
}

GD_FUNCTION REAL add_rms_norm_dx(REAL dx, REAL dsum)
{
    return dx + dsum; /* [add_rms_norm] */
}

#endif
