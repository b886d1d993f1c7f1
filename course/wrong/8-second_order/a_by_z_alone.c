/* 70 points: da: da[ */
#define DA by_z *t[i]
#include "../../solutions/8-second_order/second_order.c"
