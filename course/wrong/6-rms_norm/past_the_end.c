/* 88 points: wrote outside of an array */
#define LAST (n + 3) / 4 * 4
#include "../../solutions/6-rms_norm/rms_norm.c"
