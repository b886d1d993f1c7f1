/* 70 points: dx: a constant factor 1/2 */
#define DX dx[i] += (real)(-y * slope * g[i] * ds[i])
#include "second_order.h"
