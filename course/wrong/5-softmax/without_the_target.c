/* 70 points: one element of each row is off */
#define TARGET 0
#include "../../solutions/5-softmax/softmax.c"
