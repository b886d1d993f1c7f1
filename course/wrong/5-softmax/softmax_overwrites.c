/* 94 points: when added to an existing gradient */
#define SOFTMAX dx[j] = (real)(y[j] * (dy[j] - dot))
#include "softmax.h"
