/* 70 points: the dy of other elements has the wrong sign */
#define SOFTMAX dx[j] += (real)(y[j] * (dy[j] + dot))
#include "softmax.h"
