/* 70 points: dbranch: the gradient is zero throughout, with a gradient for output 1 alone */
#define DBRANCH 0
#include "rms_norm.h"
