/* 55 points: dw: a constant factor 1/4 */
#define FACTOR 1 / (real)m
#include "linear.h"
