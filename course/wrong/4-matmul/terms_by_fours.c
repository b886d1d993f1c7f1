/* 70 points: da: the gradient is zero throughout */
#define TERMS k - k % 4
#include "product.h"
