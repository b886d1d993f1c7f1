/* 50 points: da: da[ */
#define THIRD -2 * s1 *(1 - s0 * s0)
#include "second_order.h"
