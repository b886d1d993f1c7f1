/* 70 points: dx: dx[ */
#define RESIDUAL (void)0
#include "../../solutions/7-attention/attention.c"
