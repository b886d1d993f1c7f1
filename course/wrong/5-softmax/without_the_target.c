/* 70 points: one element of each row is off */
#define TARGET 0
#include "softmax.h"
