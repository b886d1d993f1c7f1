/* 56 points: all its values are float32 numbers: it was rounded */
#define DX (float)(rstd * (H - xhat * mean))
#include "rms_norm.h"
