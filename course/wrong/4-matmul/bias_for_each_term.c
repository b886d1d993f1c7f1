/* 55 points: dbias: a constant factor 3 */
#define DBIAS \
    for (int64_t p = 0; dbias && p < k; p++) dbias[j] += dy[i * n + j]
#include "linear.h"
