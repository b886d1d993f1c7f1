/* formula.h - batch_norm and group_norm, an element: d is dy, in group_norm h; scale is w r, in
 * group_norm r; means are over a channel or a group; centred is x - mean. */
#ifndef GRADUS_BATCH_NORM_FORMULA_H
#define GRADUS_BATCH_NORM_FORMULA_H

#include "formulas.h"

GD_FUNCTION ACC norm_xhat(ACC centred, ACC rstd)
{
    return centred * rstd; /* [xhat] */
}

/* sum is that of dy (x - mean). */
GD_FUNCTION ACC batch_norm_dw(ACC sum, ACC rstd, ACC n)
{
    return n > 0 ? sum * rstd : 0; /* [dw] */
}

/* fixed: mean and rstd are no functions of x. */
GD_FUNCTION ACC batch_norm_mean(ACC sum, ACC n, bool fixed)
{
    return fixed ? 0 : sum / n; /* [means] */
}

GD_FUNCTION ACC norm_dx(ACC scale, ACC d, ACC mean_d, ACC xhat, ACC mean_dx)
{
    return scale * (d - mean_d - xhat * mean_dx); /* [dx] [group_norm dx] */
}

/* ---- The same as two multiply-adds, for a GPU ----------------------------------------------- */

GD_FUNCTION ACC norm_slope(ACC scale, ACC mean_dx, ACC rstd)
{
    return -scale * mean_dx * rstd; /* [slope] */
}

/* `low` is what the rounded mean lacks (mean_parts.cuh). */
GD_FUNCTION ACC norm_offset(ACC scale, ACC mean_d, ACC slope, ACC low)
{
    return -scale * mean_d - slope * low; /* [offset] */
}

/* d is dy, and scale w r in group_norm too. */
GD_FUNCTION ACC norm_dx_fused(ACC d, ACC scale, ACC centred, ACC slope, ACC offset)
{
    return d * scale + (centred * slope + offset); /* [dx fused] */
}

#endif
