/* 34 points: of the dy summed into k[0, 0, 0] only the last 4 count */
#define DK dk[j * n + c] = (real)(ds * q[i * n + c])
#include "attention.h"
