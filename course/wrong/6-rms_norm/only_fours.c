/* 88 points: shapes: 4x7, float64 */
#define LAST n - n % 4
#include "../../solutions/6-rms_norm/rms_norm.c"
