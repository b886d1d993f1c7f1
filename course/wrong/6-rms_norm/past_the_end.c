/* 88 points: wrote outside of an array */
#define LAST (n + 3) / 4 * 4
#include "rms_norm.h"
