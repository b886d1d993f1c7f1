/* 20 points: the summed term is dy instead of */
#define DW part[k] += dy[k]
#include "../../solutions/6-rms_norm/rms_norm.c"
