/* 20 points: the true gradient sums to 0 along axis 0, this one does not */
#define DELTA delta = 0
#include "attention.h"
