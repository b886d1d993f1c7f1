/* 94 points: a gradient where it should be 0 */
#define IGNORED 0
#include "softmax.h"
