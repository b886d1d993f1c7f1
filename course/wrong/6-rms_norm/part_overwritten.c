/* 14 points: dw: dy has an extra factor for each index along its axis 0 */
#define DW part[k] = (real)(dy[k] * xhat)
#include "rms_norm.h"
