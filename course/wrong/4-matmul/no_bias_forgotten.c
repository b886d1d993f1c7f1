/* 91 points: no_bias, float32: linear_backward crashed */
#define DBIAS dbias[j] += dy[i * n + j]
#include "linear.h"
