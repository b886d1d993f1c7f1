/* 70 points: x */
#define DOT dot = 0
#define SOFTMAX                             \
    for (int64_t r = -i; r < rows - i; r++) \
    dx[j] += y[j] * ((r == 0 ? dy[j] : 0) - y[j + r * columns] * dy[j + r * columns])
#include "softmax.h"
