/* 70 points: the forward's own matrix is applied to dy, not its transpose */
#define DA da[i * k + p] += dy[i * n + j] * b[j * k + p]
#include "product.h"
