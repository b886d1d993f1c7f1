/* 50 points: da: da[ */
#define DA by_z *t[i]
#include "second_order.h"
