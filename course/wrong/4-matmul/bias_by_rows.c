/* 55 points: dbias: bias[0] does not use dy[1, 0], but bias[0] uses dy[0, 1] */
#define DBIAS \
    if (dbias) dbias[i] += dy[i * n + j]
#include "linear.h"
