/* 64 points: da: only dy[:, 4] is used */
#define DA da[i * k + p] = dy[i * n + j] * b[p * n + j]
#include "product.h"
