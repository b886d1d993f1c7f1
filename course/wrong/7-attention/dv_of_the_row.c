/* 40 points: the forward's own matrix is applied to dy, not its transpose */
#define DV dv[i * n + c] += (real)(p[j] * dy[j * n + c])
#include "attention.h"
