/* 70 points: a constant factor 4 */
#define EACH *dloss
#include "../../solutions/5-softmax/softmax.c"
