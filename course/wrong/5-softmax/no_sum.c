/* 70 points: a sum along axis 1 is missing */
#define SOFTMAX dx[j] += y[j] * dy[j]
#include "softmax.h"
