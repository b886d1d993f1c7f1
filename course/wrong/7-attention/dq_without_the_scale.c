/* 40 points: dq: a constant factor 2 */
#define DQ dq[i * n + c] += (real)(ds * sqrt((double)d) * k[j * n + c])
#include "attention.h"
