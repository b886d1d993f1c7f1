/* 70 points: dw: the wrong elements are all in row 2 */
#define WO n, 1
#include "attention.h"
