/* 60 points: matmul_backward wrote outside of an array, to da[12]: da has 12 elements */
#define DA da[i * n + p] += dy[i * n + j] * b[p * n + j]
#include "product.h"
