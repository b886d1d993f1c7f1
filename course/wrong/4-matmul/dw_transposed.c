/* 55 points: dw: the right values in the wrong places: transposed */
#define DW dw[p * n + j]
#include "linear.h"
