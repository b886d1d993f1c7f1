/* 94 points: logits of 1000 */
#define SHIFT most = 0
#include "softmax.h"
