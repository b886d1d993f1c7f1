/* 70 points: dx: the sign is flipped */
#define DX dx[i] += (real)(2 * y * slope * g[i] * ds[i])
#include "second_order.h"
