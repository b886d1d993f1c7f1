/* 20 points: an extra factor 8, the size of axis 1 */
#define MEAN dot
#include "../../solutions/6-rms_norm/rms_norm.c"
