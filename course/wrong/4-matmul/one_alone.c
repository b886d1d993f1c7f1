/* 70 points: db: the gradient is zero throughout */
#define DB (void)db
#include "product.h"
