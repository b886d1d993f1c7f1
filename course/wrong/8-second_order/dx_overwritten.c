/* 94 points: when added to an existing gradient */
#define DX dx[i] = (real)(-2 * y * slope * g[i] * ds[i])
#include "second_order.h"
