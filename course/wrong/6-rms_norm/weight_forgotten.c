/* 40 points: an extra factor 1/w */
#define H dy[k]
#include "rms_norm.h"
