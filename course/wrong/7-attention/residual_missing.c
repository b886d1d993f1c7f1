/* 70 points: dx: dx[ */
#define RESIDUAL (void)0
#include "attention.h"
