/* 70 points: da: da[ */
#define THIRD -2 * s1 *(1 - s0 * s0)
#include "../../solutions/8-second_order/second_order.c"
