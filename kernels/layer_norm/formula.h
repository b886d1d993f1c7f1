/* formula.h - layer_norm, an element of a row of n. */
#ifndef GRADUS_LAYER_NORM_FORMULA_H
#define GRADUS_LAYER_NORM_FORMULA_H

#include "formulas.h"

/* centred is x - mean. */
GD_FUNCTION ACC layer_norm_xhat(ACC centred, ACC rstd)
{
    return centred * rstd; /* [xhat] */
}

GD_FUNCTION ACC layer_norm_h(ACC dy, ACC w)
{
    return dy * w; /* [h] */
}

GD_FUNCTION ACC layer_norm_mean(ACC sum, ACC n)
{
    return sum / n; /* [means] */
}

GD_FUNCTION ACC layer_norm_dx(ACC h, ACC mean_h, ACC xhat, ACC mean_hx, ACC rstd)
{
    return rstd * (h - mean_h - xhat * mean_hx); /* [dx] */
}

GD_FUNCTION ACC layer_norm_dw(ACC dy, ACC xhat)
{
    return dy * xhat; /* [dw] */
}

#endif
