/* 94 points: a gradient where it should be 0 */
#define IGNORED 0
#include "../../solutions/5-softmax/softmax.c"
