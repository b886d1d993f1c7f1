/* 70 points: db: db[ */
#define DB db[p * n + j] += dy[i * n + j] * b[p * n + j]
#include "product.h"
