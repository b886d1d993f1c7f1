/* 55 points: the forward's own matrix is applied to dy, not its transpose */
#define W w[p * n + j]
#include "linear.h"
