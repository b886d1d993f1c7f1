/* 70 points: db: each element uses only its own dy: a sum along axis 0 is missing */
#define DB db[p * n + j] += dy[p * n + j] * a[i * k + p]
#include "product.h"
