/* formula.h - lstm and gru, a unit of one step. The letters are those of README.md: gates after
 * their functions, c or h before the step, and dh and dc as they arrive. */
#ifndef GRADUS_RNN_FORMULA_H
#define GRADUS_RNN_FORMULA_H

#include "elementwise/functions.h"

/* ---- LSTM ---------------------------------------------------------------------------------- */

GD_FUNCTION REAL lstm_cell(REAL i, REAL f, REAL g, REAL c)
{
    return f * c + i * g;
}

GD_FUNCTION REAL lstm_dc(REAL dc, REAL dh, REAL o, REAL tanh_c)
{
    return dc + dh * o * (1 - tanh_c * tanh_c); /* [lstm dc] */
}

GD_FUNCTION REAL lstm_di(REAL dc, REAL g, REAL i)
{
    return dc * g * i * (1 - i); /* [di] */
}

GD_FUNCTION REAL lstm_df(REAL dc, REAL c, REAL f)
{
    return dc * c * f * (1 - f); /* [df] */
}

GD_FUNCTION REAL lstm_dg(REAL dc, REAL i, REAL g)
{
    return dc * i * (1 - g * g); /* [dg] */
}

GD_FUNCTION REAL lstm_do(REAL dh, REAL tanh_c, REAL o)
{
    return dh * tanh_c * o * (1 - o); /* [do] */
}

/* ---- GRU ----------------------------------------------------------------------------------- */

GD_FUNCTION REAL gru_state(REAL z, REAL n, REAL h)
{
    return (1 - z) * n + z * h;
}

GD_FUNCTION REAL gru_dn(REAL dh, REAL z, REAL n)
{
    return dh * (1 - z) * (1 - n * n); /* [gru dn] */
}

GD_FUNCTION REAL gru_dr(REAL dn, REAL m, REAL r)
{
    return dn * m * r * (1 - r); /* [dr] */
}

GD_FUNCTION REAL gru_dz(REAL dh, REAL h, REAL n, REAL z)
{
    return dh * (h - n) * z * (1 - z); /* [dz] */
}

/* The gradient of m, the state's part of n. */
GD_FUNCTION REAL gru_dm(REAL dn, REAL r)
{
    return dn * r; /* [reset] */
}

#endif
