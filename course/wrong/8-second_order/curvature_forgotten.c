/* 50 points: with a gradient for output 2 alone */
#define DC dy[i] * s0 + dy1[i] * s1 *a[j]
#include "second_order.h"
