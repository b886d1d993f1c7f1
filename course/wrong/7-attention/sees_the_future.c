/* 20 points: v[1, 0, 0] uses dy[0, 0, 0], though that y does not depend on it */
#define END t
#include "attention.h"
