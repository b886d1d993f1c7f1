/* 70 points: a constant factor 4 */
#define EACH *dloss
#include "softmax.h"
